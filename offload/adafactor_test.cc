// Goal: factors, clipping and update follow torch.optim.Adafactor's formulas, with the same bits
// for any cut into slices, any order of slices, any team and every instruction set. Method: a plain
// double implementation of the formulas with a tolerance, and bit comparison of runs that are cut
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
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "offload/dispatch_targets.h"
#include "offload/elements.h"
#include "offload/gradient_norm.h"
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

// How a step's passes are cut: the first pass into slices of these sizes in turn; the others into
// slices of so many pieces, taken in a stride over the tensor.
struct Cut {
  std::vector<int64_t> sizes;
  int64_t pieces = 1;
  int64_t stride = 1;
};
const Cut kWhole = {.sizes = {int64_t{1} << 20}, .pieces = int64_t{1} << 20};

// A tensor's state and one step's gradient, which carries a factor of 8.
struct Tensor {
  explicit Tensor(const Shape& shape, int64_t offset = 0)
      : factors(shape, offset),
        master(factors.elements()),
        gradient(factors.elements()),
        parameter(factors.elements()) {
    const Random random({.seed = 1804, .stream = 4235});
    for (size_t i = 0; i < master.size(); ++i) {
      master[i] = static_cast<float>(0.1 * random.Normal(i));
    }
    const auto one = MakeTeam(1);
    factors.ObserveMaster(0, factors.elements(), master.data(), one.get());
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
  // Calls body(begin, count) for slices of whole pieces: every stride-th, from each start.
  void ForPieces(const Cut& cut, const std::function<void(int64_t, int64_t)>& body) const {
    std::vector<AdafactorFactors::Range> slices;
    for (int64_t begin = 0; begin < factors.elements();) {
      AdafactorFactors::Range slice{.begin = begin, .count = 0};
      for (int64_t i = 0; i < cut.pieces && begin < factors.elements(); ++i) {
        const int64_t count = factors.PiecesAround(begin, 1).count;
        slice.count += count;
        begin += count;
      }
      slices.push_back(slice);
    }
    for (int64_t start = cut.stride - 1; start >= 0; --start) {
      for (size_t i = static_cast<size_t>(start); i < slices.size();
           i += static_cast<size_t>(cut.stride)) {
        body(slices[i].begin, slices[i].count);
      }
    }
  }
  ConstElements GradientAt(int64_t begin) const { return {gradient.data() + begin, DType::kBF16}; }
  void Step(int64_t step, const Cut& cut, ThreadTeam* team) {
    SetStep(step);
    ForSlices(cut.sizes, [&](int64_t begin, int64_t count) {
      factors.ObserveGradient(begin, count, GradientAt(begin), team);
    });
    factors.UpdateFactors(HyperAt(step), 0.125f);
    ForPieces(cut, [&](int64_t begin, int64_t count) {
      factors.MeasureUpdate(begin, count, GradientAt(begin), team);
    });
    ForPieces(cut, [&](int64_t begin, int64_t count) {
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
    for (const float x : factors.state()) bits.push_back(std::bit_cast<uint32_t>(x));
    return bits;
  }

  AdafactorFactors factors;
  std::vector<float> master;
  std::vector<BFloat16> gradient;
  std::vector<BFloat16> parameter;
};

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> kShapes = {
      {},      {1},      {7},        {17'000},     {1, 1},      {1, 33},   {33, 1},
      {5, 16}, {64, 33}, {2, 3, 17}, {2, 1, 3, 5}, {3, 17'000}, {700, 90}, {50'000}};
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
      tensor.Step(step, kWhole, team.get());
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
  const auto expect_sizes = [](const Shape& shape, size_t rows, size_t columns, size_t state) {
    AdafactorFactors factors(shape, 0);
    EXPECT_EQ(factors.row_factors().size(), rows);
    EXPECT_EQ(factors.column_factors().size(), columns);
    EXPECT_EQ(factors.state().size(), state);
  };
  expect_sizes({}, 0, 0, 1);
  expect_sizes({9}, 0, 0, 9);
  expect_sizes({4, 9}, 4, 9, 13);
  expect_sizes({2, 3, 4, 9}, 24, 54, 78);
}

TEST(AdafactorTest, BytesAreThoseOfTheTables) {
  const AdafactorFactors matrix(Shape{4, 9}, 0);
  EXPECT_EQ(matrix.bytes(), Bytes((4 + 9) * 12 + 4 * 4 + 16));
  const AdafactorFactors vector(Shape{20'000}, 64);
  EXPECT_EQ(vector.bytes(), Bytes(20'000 * 4 + 2 * 16));
}

TEST(AdafactorTest, PiecesEndWhereSegmentsEnd) {
  constexpr int64_t kSegment = kNormSegmentElements;
  const auto around = [](const AdafactorFactors& factors, int64_t begin, int64_t count) {
    const AdafactorFactors::Range range = factors.PiecesAround(begin, count);
    return std::pair(range.begin, range.begin + range.count);
  };
  const AdafactorFactors factors(Shape{3 * kSegment}, 5 * kSegment + 64);
  const int64_t border = kSegment - 64;
  EXPECT_EQ(around(factors, 0, 1), std::pair(int64_t{0}, border));
  EXPECT_EQ(around(factors, border - 1, 1), std::pair(int64_t{0}, border));
  EXPECT_EQ(around(factors, border, 1), std::pair(border, border + kSegment));
  EXPECT_EQ(around(factors, border - 1, 2), std::pair(int64_t{0}, border + kSegment));
  EXPECT_EQ(around(factors, 3 * kSegment - 1, 1), std::pair(border + 2 * kSegment, 3 * kSegment));
  EXPECT_EQ(factors.PiecesAround(7, 0).count, 0);
}

std::vector<uint32_t> BitsAfterThreeSteps(const Shape& shape, int64_t offset, const Cut& cut,
                                          ThreadTeam* team) {
  Tensor tensor(shape, offset);
  for (int64_t step = 1; step <= 3; ++step) tensor.Step(step, cut, team);
  return tensor.Bits();
}

TEST(AdafactorTest, SlicesTeamsAndTargetsGiveTheSameBits) {
  SCOPED_TRACE("seed 1804");
  const auto one = MakeTeam(1);
  const auto three = MakeTeam(3);
  const std::vector<Cut> cuts = {kWhole,
                                 {.sizes = {32768}, .pieces = 2},
                                 {.sizes = {1, 2, 3, 15, 16, 17, 33}, .stride = 2},
                                 {.sizes = {90, 45}, .stride = 3},
                                 {.sizes = {16384, 5000, 7}, .pieces = 3, .stride = 2}};
  for (const Shape& shape : Shapes()) {
    for (const int64_t offset : {int64_t{0}, int64_t{10'048}}) {
      SCOPED_TRACE(testing::PrintToString(shape));
      const std::vector<uint32_t> expected = BitsAfterThreeSteps(shape, offset, cuts[0], one.get());
      for (const int64_t target : DispatchTargets()) {
        SCOPED_TRACE(DispatchTargetName(target));
        const ScopedDispatchTarget scope(target);
        for (size_t c = 0; c < cuts.size(); ++c) {
          ThreadTeam* const team = c % 2 == 0 ? one.get() : three.get();
          ASSERT_EQ(BitsAfterThreeSteps(shape, offset, cuts[c], team), expected) << "cut " << c;
        }
      }
    }
  }
}

// Update's own notes of the masters are those of ObserveMaster.
TEST(AdafactorTest, MastersAreNotedAsTheyAreWritten) {
  const auto team = MakeTeam(1);
  for (const Shape& shape : Shapes()) {
    SCOPED_TRACE(testing::PrintToString(shape));
    Tensor noted(shape, 64);
    Tensor observed(shape, 64);
    for (int64_t step = 1; step <= 3; ++step) {
      noted.Step(step, kWhole, team.get());
      const int64_t count = observed.factors.elements();
      observed.factors.ObserveMaster(0, count, observed.master.data(), team.get());
      observed.Step(step, kWhole, team.get());
    }
    EXPECT_EQ(noted.Bits(), observed.Bits());
  }
}

TEST(AdafactorTest, ElementTypesAreReadAndWritten) {
  const auto team = MakeTeam(1);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    constexpr int64_t kCount = 42;
    AdafactorFactors factors(Shape{6, 7}, 0);
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
  straight.Step(1, kWhole, team.get());
  for (const int64_t seen : {1, 450, 600}) {
    Tensor skipped(shape);
    skipped.SetStep(9);
    skipped.factors.ObserveGradient(0, seen, skipped.GradientAt(0), team.get());
    EXPECT_EQ(skipped.factors.observed(), seen == 600);
    skipped.Step(1, kWhole, team.get());
    EXPECT_EQ(skipped.Bits(), straight.Bits());
  }
}

TEST(AdafactorTest, StateResumesWithTheSameBits) {
  const auto team = MakeTeam(1);
  for (const Shape& shape : {Shape{20, 30}, Shape{50}}) {
    Tensor straight(shape);
    for (int64_t step = 1; step <= 3; ++step) straight.Step(step, kWhole, team.get());
    Tensor first(shape);
    for (int64_t step = 1; step <= 2; ++step) first.Step(step, kWhole, team.get());
    Tensor second(shape);
    second.master = first.master;
    second.factors.ObserveMaster(0, second.factors.elements(), second.master.data(), team.get());
    std::ranges::copy(first.factors.state(), second.factors.state().begin());
    second.Step(3, kWhole, team.get());
    EXPECT_EQ(second.Bits(), straight.Bits());
  }
}

TEST(AdafactorTest, NanEntersWhatItTouchesAndIsCanonical) {
  const auto team = MakeTeam(1);
  for (const int64_t target : DispatchTargets()) {
    SCOPED_TRACE(DispatchTargetName(target));
    const ScopedDispatchTarget scope(target);
    Tensor tensor({4, 40});
    tensor.Step(1, kWhole, team.get());
    std::vector<float> gradient(160, 1.0f);
    gradient[50] = std::bit_cast<float>(0xffc12345u);
    const ConstElements view = {gradient.data(), DType::kF32};
    tensor.factors.ObserveGradient(0, 160, view, team.get());
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
  EXPECT_DEATH(factors.ObserveGradient(8, 8, tensor.GradientAt(8), team.get()), "8 follows 0");
  EXPECT_DEATH(factors.UpdateFactors(HyperAt(1), 1.0f), "0 of 32");
  EXPECT_DEATH(factors.ObserveMaster(0, 31, tensor.master.data(), team.get()), "0, 31");
  EXPECT_DEATH(factors.MeasureUpdate(8, 24, tensor.GradientAt(8), team.get()), "8, 24");
  EXPECT_DEATH(factors.Update(0, {.count = 0, .gradient = {}, .parameter = {}}, team.get()),
               "MeasureUpdate");
  tensor.Step(1, kWhole, team.get());
  EXPECT_DEATH(factors.MeasureUpdate(0, 32, tensor.GradientAt(0), team.get()), "already");
  OptimizerHyper adam = HyperAt(1);
  adam.kind = OptimizerKind::kAdam;
  EXPECT_DEATH(factors.UpdateFactors(adam, 1.0f), "adam");
}

}  // namespace
}  // namespace gantry
