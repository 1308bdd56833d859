// Goal: factors, clipping and update follow torch.optim.Adafactor's formulas, with the same bits
// for any cut into slices, any team and every instruction set. Method: a plain double
// implementation of the formulas with a tolerance, and bit comparison of runs that are cut
// differently.
#include "offload/adafactor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "offload/dispatch_targets.h"
#include "offload/elements.h"
#include "offload/optimizer.h"

namespace gantry {
namespace {

using Shape = std::vector<int64_t>;

OptimizerHyper HyperAt(int64_t step) {
  return {.kind = OptimizerKind::kAdafactor,
          .learning_rate = 0.05,
          .epsilon = 0x1p-23,
          .weight_decay = 0.1,
          .step = step};
}

std::unique_ptr<ThreadTeam> MakeTeam(int threads) {
  return ThreadTeam::Create({.threads = threads}).value();
}

// torch.optim.Adafactor, written out in double for matrices [matrices, rows, columns].
class Reference {
 public:
  explicit Reference(const Shape& shape) {
    for (const int64_t extent : shape) elements_ *= extent;
    factored_ = shape.size() >= 2;
    columns_ = factored_ ? shape.back() : elements_;
    rows_ = factored_ ? shape[shape.size() - 2] : 1;
    row_.resize(elements_ / columns_);
    column_.resize(factored_ ? elements_ / rows_ : 0);
    variance_.resize(elements_);
  }

  void Step(std::vector<double>& p, const std::vector<double>& g, const OptimizerHyper& hyper) {
    const auto step = static_cast<double>(hyper.step);
    const double weight = std::pow(step, -0.8);
    const double rho = std::min(hyper.learning_rate, 1 / std::sqrt(step));
    const double alpha = std::max(1e-3, Norm(p) / std::sqrt(elements_)) * rho;
    for (double& x : p) x *= 1 - hyper.learning_rate * hyper.weight_decay;
    if (factored_) Factor(g, weight, hyper.epsilon);
    std::vector<double> u(elements_);
    for (int64_t i = 0; i < elements_; ++i) {
      if (!factored_) variance_[i] += weight * (g[i] * g[i] - variance_[i]);
      u[i] = g[i] / std::sqrt(std::max(variance_[i], hyper.epsilon * hyper.epsilon));
    }
    clip_ = std::max(1.0, Norm(u) / std::sqrt(elements_));
    for (int64_t i = 0; i < elements_; ++i) p[i] -= alpha / clip_ * u[i];
  }
  double clip() const { return clip_; }
  const std::vector<double>& row() const { return row_; }
  const std::vector<double>& column() const { return column_; }

 private:
  static double Norm(const std::vector<double>& values) {
    double sum = 0;
    for (const double x : values) sum += x * x;
    return std::sqrt(sum);
  }
  void Factor(const std::vector<double>& g, double weight, double epsilon) {
    for (double& x : row_) x *= 1 - weight;
    for (double& x : column_) x *= 1 - weight;
    const auto column_of = [&](int64_t i) {
      return i / columns_ / rows_ * columns_ + i % columns_;
    };
    for (int64_t i = 0; i < elements_; ++i) {
      row_[i / columns_] += weight * g[i] * g[i] / static_cast<double>(columns_);
      column_[column_of(i)] += weight * g[i] * g[i] / static_cast<double>(rows_);
    }
    for (int64_t i = 0; i < elements_; ++i) {
      const int64_t first = i / columns_ / rows_ * rows_;
      double mean = 0;
      for (int64_t r = 0; r < rows_; ++r) mean += row_[first + r] / static_cast<double>(rows_);
      variance_[i] = row_[i / columns_] * column_[column_of(i)] / std::max(mean, epsilon);
    }
  }

  int64_t elements_ = 1, rows_, columns_;
  bool factored_;
  std::vector<double> row_, column_, variance_;
  double clip_ = 0;
};

// A tensor's state and one step's gradient, which carries a factor of 8.
struct Tensor {
  explicit Tensor(const Shape& shape)
      : factors(shape),
        master(factors.elements()),
        gradient(factors.elements()),
        parameter(factors.elements()) {
    const Random random({.seed = 1804, .stream = 4235});
    for (size_t i = 0; i < master.size(); ++i) {
      master[i] = static_cast<float>(0.1 * random.Normal(i));
    }
  }
  void SetStep(int64_t step) {
    const Random random({.seed = 1804, .stream = static_cast<uint64_t>(step)});
    for (size_t i = 0; i < gradient.size(); ++i) {
      // Sudden growth, so that clipping has work to do.
      const double size = step % 4 == 0 ? 1.0 : 0.1;
      gradient[i] = BFloat16(static_cast<float>(8.0 * size * random.Normal(i)));
    }
  }
  // Calls body(begin, count) for slices of the given sizes in turn.
  void ForSlices(const std::vector<int64_t>& sizes,
                 const std::function<void(int64_t, int64_t)>& body) const {
    int64_t begin = 0;
    for (size_t i = 0; begin < factors.elements(); ++i) {
      const int64_t count = std::min(sizes[i % sizes.size()], factors.elements() - begin);
      body(begin, count);
      begin += count;
    }
  }
  ConstElements GradientAt(int64_t begin) const { return {gradient.data() + begin, DType::kBF16}; }
  void Step(int64_t step, const std::vector<int64_t>& sizes, ThreadTeam* team) {
    SetStep(step);
    ForSlices(sizes, [&](int64_t begin, int64_t count) {
      factors.ObserveGradient(begin, count, GradientAt(begin), team);
    });
    ForSlices(sizes, [&](int64_t begin, int64_t count) {
      factors.ObserveMaster(begin, count, master.data() + begin, team);
    });
    factors.UpdateFactors(HyperAt(step), 0.125f);
    ForSlices(sizes, [&](int64_t begin, int64_t count) {
      factors.MeasureUpdate(begin, count, GradientAt(begin), team);
    });
    ForSlices(sizes, [&](int64_t begin, int64_t count) {
      factors.Update(begin,
                     {.count = count,
                      .master = master.data() + begin,
                      .gradient = GradientAt(begin),
                      .parameter = Elements{parameter.data() + begin, DType::kBF16}},
                     team);
    });
  }
  // Master, parameter and factors.
  std::vector<uint32_t> Bits() {
    std::vector<uint32_t> bits;
    bits.reserve(4 * master.size());
    for (const float x : master) bits.push_back(std::bit_cast<uint32_t>(x));
    for (const BFloat16 x : parameter) bits.push_back(x.bits);
    for (const std::span<float> state :
         {factors.row_factors(), factors.column_factors(), factors.variance()}) {
      for (const float x : state) bits.push_back(std::bit_cast<uint32_t>(x));
    }
    return bits;
  }

  AdafactorFactors factors;
  std::vector<float> master;
  std::vector<BFloat16> gradient;
  std::vector<BFloat16> parameter;
};

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> kShapes = {
      {},      {1},      {7},        {17'000},     {1, 1},      {1, 33},  {33, 1},
      {5, 16}, {64, 33}, {2, 3, 17}, {2, 1, 3, 5}, {3, 17'000}, {700, 90}};
  return kShapes;
}

TEST(AdafactorTest, FollowsTorchsFormulasInDouble) {
  SCOPED_TRACE("seed 1804");
  const auto team = MakeTeam(1);
  for (const Shape& shape : Shapes()) {
    SCOPED_TRACE(testing::PrintToString(shape));
    Tensor tensor(shape);
    Reference reference(shape);
    std::vector<double> p(tensor.master.begin(), tensor.master.end());
    std::vector<double> g(p.size());
    double most_clipped = 0;
    for (int64_t step = 1; step <= 12; ++step) {
      tensor.Step(step, {int64_t{1} << 20}, team.get());
      for (size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>(tensor.gradient[i]) / 8.0;
      reference.Step(p, g, HyperAt(step));
      most_clipped = std::max(most_clipped, reference.clip());
    }
    for (size_t i = 0; i < p.size(); ++i) {
      ASSERT_NEAR(tensor.master[i], p[i], 1e-6) << i;
      ASSERT_EQ(tensor.parameter[i], BFloat16(tensor.master[i]));
    }
    for (size_t i = 0; i < tensor.factors.row_factors().size(); ++i) {
      const double expected = reference.row()[i];
      ASSERT_NEAR(tensor.factors.row_factors()[i], expected, 1e-6 * expected);
    }
    for (size_t i = 0; i < tensor.factors.column_factors().size(); ++i) {
      const double expected = reference.column()[i];
      ASSERT_NEAR(tensor.factors.column_factors()[i], expected, 1e-6 * expected);
    }
    EXPECT_TRUE(p.size() == 1 || most_clipped > 1.5) << "clipping was not tried";
  }
}

TEST(AdafactorTest, FactorsHaveTheShapesOfRowsAndColumns) {
  const auto expect_sizes = [](const Shape& shape, size_t rows, size_t columns, size_t variance) {
    AdafactorFactors factors(shape);
    EXPECT_EQ(factors.row_factors().size(), rows);
    EXPECT_EQ(factors.column_factors().size(), columns);
    EXPECT_EQ(factors.variance().size(), variance);
  };
  expect_sizes({}, 0, 0, 1);
  expect_sizes({9}, 0, 0, 9);
  expect_sizes({4, 9}, 4, 9, 0);
  expect_sizes({2, 3, 4, 9}, 24, 54, 0);
}

std::vector<uint32_t> BitsAfterThreeSteps(const Shape& shape, const std::vector<int64_t>& cut,
                                          ThreadTeam* team) {
  Tensor tensor(shape);
  for (int64_t step = 1; step <= 3; ++step) tensor.Step(step, cut, team);
  return tensor.Bits();
}

TEST(AdafactorTest, SlicesTeamsAndTargetsGiveTheSameBits) {
  SCOPED_TRACE("seed 1804");
  const auto one = MakeTeam(1);
  const auto three = MakeTeam(3);
  const std::vector<std::vector<int64_t>> cuts = {
      {int64_t{1} << 20}, {32768}, {1, 2, 3, 15, 16, 17, 33}, {90, 45}, {16384, 5000, 7}};
  for (const Shape& shape : Shapes()) {
    SCOPED_TRACE(testing::PrintToString(shape));
    const std::vector<uint32_t> expected = BitsAfterThreeSteps(shape, cuts[0], one.get());
    for (const int64_t target : DispatchTargets()) {
      SCOPED_TRACE(DispatchTargetName(target));
      const ScopedDispatchTarget scope(target);
      for (size_t c = 0; c < cuts.size(); ++c) {
        ThreadTeam* const team = c % 2 == 0 ? one.get() : three.get();
        ASSERT_EQ(BitsAfterThreeSteps(shape, cuts[c], team), expected) << "cut " << c;
      }
    }
  }
}

TEST(AdafactorTest, ElementTypesAreReadAndWritten) {
  const auto team = MakeTeam(1);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    constexpr int64_t kCount = 42;
    AdafactorFactors factors(Shape{6, 7});
    std::vector<float> master(kCount, 0.5f);
    std::vector<uint32_t> gradient(kCount);
    std::vector<uint32_t> parameter(kCount);
    for (int64_t i = 0; i < kCount; ++i) StoreElement(dtype, gradient.data(), i, 0.25f);
    factors.ObserveGradient(0, kCount, {gradient.data(), dtype}, team.get());
    factors.ObserveMaster(0, kCount, master.data(), team.get());
    factors.UpdateFactors(HyperAt(1), 1.0f);
    factors.MeasureUpdate(0, kCount, {gradient.data(), dtype}, team.get());
    factors.Update(0,
                   {.count = kCount,
                    .master = master.data(),
                    .gradient = {gradient.data(), dtype},
                    .parameter = Elements{parameter.data(), dtype}},
                   team.get());
    // u = 1 everywhere and RMS(p) = 0.5: the master loses its decay and half the learning rate.
    for (int64_t i = 0; i < kCount; ++i) {
      EXPECT_NEAR(master[i], 0.5 * (1 - 0.005) - 0.5 * 0.05, 1e-7);
      float rounded = 0;
      StoreElement(dtype, &rounded, 0, master[i]);
      EXPECT_EQ(LoadElement(dtype, parameter.data(), i), LoadElement(dtype, &rounded, 0));
    }
  }
}

TEST(AdafactorTest, PassesBegunAnewForgetAStepThatWasSkipped) {
  const auto team = MakeTeam(1);
  const Shape shape = {20, 30};
  Tensor straight(shape);
  straight.Step(1, {600}, team.get());
  Tensor skipped(shape);
  skipped.SetStep(9);
  skipped.factors.ObserveGradient(0, 600, skipped.GradientAt(0), team.get());
  skipped.factors.ObserveMaster(0, 450, skipped.master.data(), team.get());
  skipped.Step(1, {600}, team.get());
  EXPECT_EQ(skipped.Bits(), straight.Bits());
}

TEST(AdafactorTest, StateResumesWithTheSameBits) {
  const auto team = MakeTeam(1);
  for (const Shape& shape : {Shape{20, 30}, Shape{50}}) {
    Tensor straight(shape);
    for (int64_t step = 1; step <= 3; ++step) straight.Step(step, {600}, team.get());
    Tensor first(shape);
    for (int64_t step = 1; step <= 2; ++step) first.Step(step, {600}, team.get());
    Tensor second(shape);
    second.master = first.master;
    std::ranges::copy(first.factors.row_factors(), second.factors.row_factors().begin());
    std::ranges::copy(first.factors.column_factors(), second.factors.column_factors().begin());
    std::ranges::copy(first.factors.variance(), second.factors.variance().begin());
    second.Step(3, {600}, team.get());
    EXPECT_EQ(second.Bits(), straight.Bits());
  }
}

TEST(AdafactorTest, NanEntersWhatItTouchesAndIsCanonical) {
  const auto team = MakeTeam(1);
  for (const int64_t target : DispatchTargets()) {
    SCOPED_TRACE(DispatchTargetName(target));
    const ScopedDispatchTarget scope(target);
    Tensor tensor({4, 40});
    tensor.Step(1, {160}, team.get());
    std::vector<float> gradient(160, 1.0f);
    gradient[50] = std::bit_cast<float>(0xffc12345u);
    const ConstElements view = {gradient.data(), DType::kF32};
    tensor.factors.ObserveGradient(0, 160, view, team.get());
    tensor.factors.ObserveMaster(0, 160, tensor.master.data(), team.get());
    tensor.factors.UpdateFactors(HyperAt(2), 1.0f);
    tensor.factors.MeasureUpdate(0, 160, view, team.get());
    tensor.factors.Update(
        0, {.count = 160, .master = tensor.master.data(), .gradient = view, .parameter = {}},
        team.get());
    EXPECT_EQ(std::bit_cast<uint32_t>(tensor.factors.row_factors()[1]), 0x7fc00000u);
    EXPECT_EQ(std::bit_cast<uint32_t>(tensor.factors.column_factors()[10]), 0x7fc00000u);
    EXPECT_FALSE(std::isnan(tensor.factors.row_factors()[0]));
    // Row 1 makes the mean of the rows NaN, and that every element.
    for (const float x : tensor.master) EXPECT_EQ(std::bit_cast<uint32_t>(x), 0x7fc00000u);
  }
}

TEST(AdafactorDeathTest, PassesOutOfOrderAbort) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto team = MakeTeam(1);
  Tensor tensor({4, 8});
  AdafactorFactors& factors = tensor.factors;
  EXPECT_DEATH(factors.ObserveMaster(8, 8, tensor.master.data(), team.get()), "8 follows 0");
  EXPECT_DEATH(factors.UpdateFactors(HyperAt(1), 1.0f), "next");
  EXPECT_DEATH(factors.MeasureUpdate(8, 8, tensor.GradientAt(8), team.get()), "next");
  EXPECT_DEATH(factors.Update(0, {.count = 0, .gradient = {}, .parameter = {}}, team.get()),
               "MeasureUpdate");
  tensor.Step(1, {32}, team.get());
  EXPECT_DEATH(factors.MeasureUpdate(0, 32, tensor.GradientAt(0), team.get()), "next");
  OptimizerHyper adam = HyperAt(1);
  adam.kind = OptimizerKind::kAdam;
  EXPECT_DEATH(factors.UpdateFactors(adam, 1.0f), "adam");
}

}  // namespace
}  // namespace gantry
