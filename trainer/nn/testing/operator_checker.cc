#include "trainer/nn/testing/operator_checker.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "trainer/autograd/testing/test_bench.h"

namespace gantry {
namespace {

constexpr double kDifference = 1e-5;
constexpr double kEarlierContribution = 0.5;

struct Tolerance {
  DType dtype;
  double relative;  // of the largest value compared
};

double LargestOf(const Values& values) {
  double largest = 1e-3;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

void ExpectNear(const Values& actual, const Values& expected, double relative,
                const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  const double tolerance = relative * LargestOf(expected);
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance) << what << ", element " << i;
  }
}

class CaseRun {
 public:
  CaseRun(const OperatorCase& c, Tolerance tolerance)
      : case_(c), tolerance_(tolerance), bench_({.compute_dtype = tolerance.dtype}) {
    DrawValues();
    expected_ = c.reference(values_);
    outputs_weight_ = Draw(1000, expected_.size(), 1.0);
  }

  void Run() {
    RegisterParameters();
    bench_.BeginTraining(0.0);
    RunOnce(0.0);
    CheckParameterGradients(1.0);
    // A second micro-batch would reset readiness; the step below adds to what is there.
    ASSERT_THAT(bench_.store().EndStep(), IsOk());
    StepOptions two;
    two.micro_batches = 2;
    two.optimizer = OptimizerStep{.learning_rate = 0.0};
    ASSERT_THAT(bench_.store().BeginStep(two), IsOk());
    ASSERT_THAT(bench_.store().BeginMicroBatch(), IsOk());
    RunOnce(0.0);
    ASSERT_THAT(bench_.store().BeginMicroBatch(), IsOk());
    RunOnce(kEarlierContribution);
    CheckParameterGradients(2.0);
    ASSERT_THAT(bench_.store().EndStep(), IsOk());
  }

 private:
  Values Draw(uint64_t stream, size_t count, double scale) const {
    const Random random({.seed = case_.seed, .stream = stream});
    Values values;
    for (size_t i = 0; i < count; ++i) {
      values.push_back(RoundTo(tolerance_.dtype, scale * random.Normal(i)));
    }
    return values;
  }

  void DrawValues() {
    for (const auto* parts : {&case_.inputs, &case_.parameters}) {
      for (const OperatorCase::Part& part : *parts) {
        const auto count = static_cast<size_t>(part.shape.rows * part.shape.cols);
        values_.push_back(Draw(values_.size(), count, case_.scale));
      }
    }
  }

  void RegisterParameters() {
    for (size_t i = 0; i < case_.parameters.size(); ++i) {
      const OperatorCase::Part& part = case_.parameters[i];
      const auto id = bench_.store().Register({.name = StrCat("p", i),
                                               .shape = {part.shape.rows, part.shape.cols},
                                               .dtype = tolerance_.dtype,
                                               .trainability = part.trainability},
                                              {});
      ASSERT_THAT(id, IsOk());
      parameters_.push_back({.tensor = *id, .trainability = part.trainability});
    }
    ASSERT_THAT(bench_.store().Seal(), IsOk());
    for (size_t i = 0; i < parameters_.size(); ++i) WriteParameter(i);
  }

  void WriteParameter(size_t i) {
    const Values& values = values_[case_.inputs.size() + i];
    std::vector<float> f32(values.begin(), values.end());
    std::vector<BFloat16> bf16(f32.begin(), f32.end());
    const auto bytes = tolerance_.dtype == DType::kF32 ? std::as_bytes(std::span(f32))
                                                       : std::as_bytes(std::span(bf16));
    ASSERT_THAT(bench_.store().WriteState(StateKind::kParameter, parameters_[i].tensor, 0, bytes),
                IsOk());
  }

  std::vector<Var> MakeInputs() {
    std::vector<Var> inputs;
    for (size_t i = 0; i < case_.inputs.size(); ++i) {
      const OperatorCase::Part& part = case_.inputs[i];
      Var input = bench_.MakeInput(part.shape, values_[i]);
      if (part.trainability == Trainability::kFrozen) input = Var(input.value(), nullptr);
      inputs.push_back(std::move(input));
    }
    return inputs;
  }

  // Forward and backward pass; the inputs' gradients hold `earlier` beforehand, unless it is 0.
  void RunOnce(double earlier) {
    Tape tape(bench_.context(), Tape::Mode::kTraining);
    std::vector<GradientCellPtr> cells;
    {
      std::vector<Var> inputs = MakeInputs();
      for (const Var& input : inputs) cells.push_back(input.gradient());
      const auto outputs = case_.run(tape, std::move(inputs), parameters_);
      ASSERT_THAT(outputs, IsOk());
      Values actual;
      for (const Var& output : *outputs) {
        const Values values = ValuesOf(output.value());
        Seed(output, actual.size());
        actual.insert(actual.end(), values.begin(), values.end());
      }
      ExpectNear(actual, expected_, tolerance_.relative, "output");
    }
    for (size_t i = 0; i < cells.size(); ++i) {
      if (earlier == 0.0 || cells[i] == nullptr) continue;
      cells[i]->sum =
          bench_.MakeActivation(case_.inputs[i].shape, Values(values_[i].size(), earlier));
    }
    ASSERT_THAT(tape.Backward(), IsOk());
    for (size_t i = 0; i < cells.size(); ++i) {
      if (cells[i] == nullptr) continue;
      Values expected = Differences(i);
      for (double& value : expected) value += earlier;
      ExpectNear(ValuesOf(cells[i]->sum), expected, tolerance_.relative,
                 StrCat("gradient of input ", i));
    }
  }

  // Hands the loss's derivative to an output whose elements start at `first` of all.
  void Seed(const Var& output, size_t first) {
    if (!output.requires_gradient()) return;
    const auto count = static_cast<size_t>(output.value().rows() * output.value().cols());
    output.gradient()->sum = bench_.MakeActivation(
        output.value().shape(), std::span(outputs_weight_).subspan(first, count));
  }

  double LossAt(const std::vector<Values>& values) const {
    const Values outputs = case_.reference(values);
    double loss = 0;
    for (size_t i = 0; i < outputs.size(); ++i) loss += outputs[i] * outputs_weight_[i];
    return loss;
  }

  // The derivative of the loss by each element of values_[part].
  Values Differences(size_t part) const {
    Values result;
    std::vector<Values> moved = values_;
    for (size_t i = 0; i < values_[part].size(); ++i) {
      const double center = values_[part][i];
      moved[part][i] = center + kDifference;
      const double above = LossAt(moved);
      moved[part][i] = center - kDifference;
      const double below = LossAt(moved);
      moved[part][i] = center;
      result.push_back((above - below) / (2 * kDifference));
    }
    return result;
  }

  void CheckParameterGradients(double times) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i].trainable()) continue;
      const auto gradient = bench_.store().Gradient(parameters_[i].tensor);
      ASSERT_THAT(gradient, IsOk());
      Values expected = Differences(case_.inputs.size() + i);
      for (double& value : expected) value *= times;
      ExpectNear(Values(gradient->begin(), gradient->end()), expected, tolerance_.relative,
                 StrCat("gradient of parameter ", i));
    }
  }

  const OperatorCase& case_;
  Tolerance tolerance_;
  TestBench bench_;
  std::vector<Values> values_;  // of the inputs, then the parameters
  Values expected_;
  Values outputs_weight_;
  std::vector<Parameter> parameters_;
};

}  // namespace

void CheckOperator(const OperatorCase& c) {
  SCOPED_TRACE(StrCat("seed ", c.seed));
  for (const Tolerance& tolerance : {Tolerance{DType::kF32, 2e-5}, Tolerance{DType::kBF16, 3e-2}}) {
    SCOPED_TRACE(std::string(Name(tolerance.dtype)));
    CaseRun(c, tolerance).Run();
  }
}

}  // namespace gantry
