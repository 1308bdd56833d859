// Adapters against a reference in double, every gradient by central differences of it: LoRA and
// DoRA, with and without dropout, whose choices the reference asks the kernel for. DoRA's norms are
// held where they are while the reference's inputs move, as no gradient flows through them.
#include "trainer/nn/lora.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "trainer/autograd/testing/test_bench.h"
#include "trainer/nn/testing/operator_checker.h"

namespace gantry {
namespace {

constexpr int64_t kRows = 5;
constexpr int64_t kIn = 7;
constexpr int64_t kOut = 4;
constexpr int64_t kColumns = 9;  // of y
constexpr int64_t kFirst = 3;
constexpr int64_t kRank = 2;
constexpr float kScale = 1.5F;

struct Choice {
  double dropout = 0.0;
  bool dora = false;
  bool bias = false;
  Trainability x = Trainability::kTrainable;
  Trainability y = Trainability::kTrainable;
  Trainability adapter = Trainability::kTrainable;
};

LoraOptions OptionsOf(const Choice& choice) {
  return {.rank = kRank,
          .scale = kScale,
          .dropout = choice.dropout,
          .seed = 17,
          .step = 3,
          .first_row = 6};
}

// What is where among a case's values.
enum ValueIndex : size_t { kX, kY, kA, kB, kW, kM, kBias };

double At(const Values& values, int64_t row, int64_t col, int64_t cols) {
  return values[static_cast<size_t>(row * cols + col)];
}

// An element of s B A.
double LowRank(const std::vector<Values>& values, int64_t o, int64_t i) {
  double sum = 0;
  for (int64_t k = 0; k < kRank; ++k) {
    sum += At(values[kB], o, k, kRank) * At(values[kA], k, i, kIn);
  }
  return kScale * sum;
}

Values NormsOf(const std::vector<Values>& values) {
  Values norms;
  for (int64_t o = 0; o < kOut; ++o) {
    double squares = 0;
    for (int64_t i = 0; i < kIn; ++i) {
      squares += std::pow(At(values[kW], o, i, kIn) + LowRank(values, o, i), 2);
    }
    norms.push_back(std::sqrt(squares));
  }
  return norms;
}

// The norms of the values it was asked for first, until more than one element differs from those.
struct HeldNorms {
  std::vector<Values> values;
  Values norms;

  const Values& For(const std::vector<Values>& now) {
    int64_t differences = 0;
    for (size_t part = 0; part < values.size(); ++part) {
      for (size_t i = 0; i < values[part].size(); ++i) {
        differences += values[part][i] == now[part][i] ? 0 : 1;
      }
    }
    if (values.empty() || differences > 1) {
      values = now;
      norms = NormsOf(now);
    }
    return norms;
  }
};

// x' W^T and s x' A^T B^T of one row and output.
struct Products {
  double u = 0;
  double v = 0;
};
Products ProductsOf(const Choice& choice, const std::vector<Values>& values, int64_t row,
                    int64_t o) {
  const LoraOptions options = OptionsOf(choice);
  // A is the first parameter that the checker registers: tensor 0.
  const DropoutKey key{.seed = options.seed,
                       .stream = 0,
                       .step = options.step,
                       .first_element = options.first_row * kIn};
  Products products;
  for (int64_t i = 0; i < kIn; ++i) {
    const auto element = key.first_element + static_cast<uint64_t>(row * kIn + i);
    double x = At(values[kX], row, i, kIn) / (1 - choice.dropout);
    if (choice.dropout > 0 && !DropoutKeeps(key, choice.dropout, element)) x = 0;
    products.u += x * At(values[kW], o, i, kIn);
    products.v += x * LowRank(values, o, i);
  }
  return products;
}

Values Reference(const Choice& choice, const std::vector<Values>& values, HeldNorms& held) {
  Values y = values[kY];
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t o = 0; o < kOut; ++o) {
      const auto at = static_cast<size_t>(o);
      const auto [u, v] = ProductsOf(choice, values, row, o);
      double& out = y[static_cast<size_t>(row * kColumns + kFirst + o)];
      if (!choice.dora) {
        out += v;
        continue;
      }
      const double gain = values[kM][at] / held.For(values)[at];
      const double bias = choice.bias ? values[kBias][at] : 0.0;
      // Without dropout u is y without its bias.
      out =
          choice.dropout == 0.0 ? gain * (out - bias + v) + bias : out + (gain - 1) * u + gain * v;
    }
  }
  return y;
}

OperatorCase LoraCase(const Choice& choice) {
  OperatorCase c;
  c.inputs = {{.shape = {kRows, kIn}, .trainability = choice.x},
              {.shape = {kRows, kColumns}, .trainability = choice.y}};
  c.parameters = {{.shape = {kRank, kIn}, .trainability = choice.adapter},
                  {.shape = {kOut, kRank}, .trainability = choice.adapter},
                  {.shape = {kOut, kIn}, .trainability = Trainability::kFrozen}};
  if (choice.dora) c.parameters.push_back({.shape = {1, kOut}, .trainability = choice.adapter});
  if (choice.bias) {
    c.parameters.push_back({.shape = {1, kOut}, .trainability = Trainability::kFrozen});
  }
  c.run = [choice](Tape& tape, std::vector<Var> inputs,
                   const std::vector<Parameter>& parameters) -> absl::StatusOr<std::vector<Var>> {
    const Var x = inputs[0];
    Var y = std::move(inputs[1]);
    inputs.clear();
    LoraAdapter adapter{.a = parameters[0],
                        .b = parameters[1],
                        .magnitude = std::nullopt,
                        .base = {.parameter = parameters[2], .out_features = kOut},
                        .first_column = kFirst};
    if (choice.dora) adapter.magnitude = parameters[3];
    if (choice.bias) adapter.base.bias = parameters[4];
    GANTRY_ASSIGN_OR_RETURN(Var out, AddLora(tape, x, std::move(y), adapter, OptionsOf(choice)));
    return std::vector<Var>{std::move(out)};
  };
  auto held = std::make_shared<HeldNorms>();  // shared: by the copies of the reference
  c.reference = [choice, held](const std::vector<Values>& values) {
    return Reference(choice, values, *held);
  };
  return c;
}

constexpr Trainability kFrozen = Trainability::kFrozen;

TEST(LoraTest, Gradients) { CheckOperator(LoraCase({})); }

TEST(LoraTest, GradientsWithDropout) { CheckOperator(LoraCase({.dropout = 0.4})); }

TEST(LoraTest, InputsWithoutGradient) {
  CheckOperator(LoraCase({.x = kFrozen}));
  CheckOperator(LoraCase({.dropout = 0.4, .x = kFrozen}));
  CheckOperator(LoraCase({.y = kFrozen}));
  CheckOperator(LoraCase({.x = kFrozen, .y = kFrozen}));
}

TEST(LoraTest, FrozenAdaptersPassGradientsOn) {
  CheckOperator(LoraCase({.adapter = kFrozen}));
  CheckOperator(LoraCase({.dropout = 0.4, .dora = true, .adapter = kFrozen}));
}

TEST(DoraTest, Gradients) {
  CheckOperator(LoraCase({.dora = true}));
  CheckOperator(LoraCase({.dora = true, .bias = true}));
}

TEST(DoraTest, GradientsWithDropout) {
  CheckOperator(LoraCase({.dropout = 0.4, .dora = true}));
  CheckOperator(LoraCase({.dropout = 0.4, .dora = true, .bias = true}));
}

TEST(DoraTest, InputsWithoutGradient) {
  CheckOperator(LoraCase({.dora = true, .x = kFrozen}));
  CheckOperator(LoraCase({.dropout = 0.4, .dora = true, .x = kFrozen, .y = kFrozen}));
}

Parameter Registered(MemoryStore& store, const char* name, MatrixShape shape, Trainability kind) {
  const auto id = store.Register(
      {.name = name, .shape = {shape.rows, shape.cols}, .dtype = DType::kF32, .trainability = kind},
      {});
  EXPECT_THAT(id, IsOk());
  return {.tensor = *id, .trainability = kind};
}

// In an evaluation nothing is dropped: the output is that without dropout.
TEST(LoraTest, EvaluationsDropNothing) {
  TestBench bench({});
  const Parameter a = Registered(bench.store(), "a", {kRank, kIn}, Trainability::kTrainable);
  const Parameter b = Registered(bench.store(), "b", {kOut, kRank}, Trainability::kTrainable);
  const Parameter w = Registered(bench.store(), "w", {kOut, kIn}, kFrozen);
  ASSERT_THAT(bench.store().Seal(), IsOk());
  for (const auto& [parameter, count] : {std::pair{a, kRank * kIn}, std::pair{b, kOut * kRank}}) {
    const std::vector<float> values(static_cast<size_t>(count), 0.5F);
    ASSERT_THAT(bench.store().WriteState(StateKind::kParameter, parameter.tensor, 0,
                                         std::as_bytes(std::span(values))),
                IsOk());
  }
  ASSERT_THAT(bench.store().BeginStep({.optimizer = std::nullopt}), IsOk());
  ASSERT_THAT(bench.store().BeginMicroBatch(), IsOk());
  Tape tape(bench.context(), Tape::Mode::kEvaluation);
  const Values ones(static_cast<size_t>(kRows * kIn), 1.0);
  const Values zeros(static_cast<size_t>(kRows * kOut), 0.0);
  const auto y = AddLora(tape, Var(bench.MakeActivation({kRows, kIn}, ones), nullptr),
                         Var(bench.MakeActivation({kRows, kOut}, zeros), nullptr),
                         {.a = a,
                          .b = b,
                          .magnitude = std::nullopt,
                          .base = {.parameter = w, .out_features = kOut},
                          .first_column = 0},
                         OptionsOf({.dropout = 0.9}));
  ASSERT_THAT(y, IsOk());
  // Each of two ranks adds 7 * 0.5, times 0.5, times the scale.
  EXPECT_EQ(ValuesOf(y->value()), Values(static_cast<size_t>(kRows * kOut), 2 * 3.5 * 0.5 * 1.5));
}

}  // namespace
}  // namespace gantry
