// The kernels below are compiled once per instruction set (Highway's foreach_target) and chosen at
// run time; -ffp-contract=off keeps multiplication and addition two roundings on each. A sum of
// squares has one definition, whatever the vector length: of a row, an element of column c goes to
// lane c mod 16, in order, and the lanes are added up as a tree; of a piece, an element at place c
// of its segment does; and the pieces of a tensor are added up as norm segments are.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/adafactor.cc"
// The sums below are an array of vectors, which scalable vectors do not allow.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include "offload/adafactor.h"

#include <hwy/foreach_target.h>  // includes this file again, once per target
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/parallel_for.h"
#include "chunk/block.h"
#include "chunk/optimizer_states.h"
#include "offload/elements.h"
#include "offload/elements_simd-inl.h"
#include "offload/gradient_norm.h"
#include "offload/optimizer.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

constexpr int64_t kLanes = 16;
using SumTag = hn::CappedTag<double, kLanes>;

template <class D, typename Gradient>
HWY_INLINE VectorOf<D> UpdateOf(D d, const AdafactorTerms& terms, int64_t i) {
  const auto least = hn::Set(d, terms.least_variance);
  const auto g = hn::Mul(hn::Set(d, terms.gradient_factor),
                         LoadElements(d, static_cast<const Gradient*>(terms.gradient.data) + i));
  const auto v = hn::Mul(hn::Set(d, terms.scale), hn::LoadU(d, terms.estimate + i));
  return hn::Div(g, hn::Sqrt(hn::IfThenElse(hn::Lt(v, least), least, v)));  // NaN stays
}

// What is squared: elements as they are, or updates.
template <typename Element>
struct PlainValues {
  const Element* from;
  template <class D>
  HWY_INLINE VectorOf<D> At(D d, int64_t i) const {
    return LoadElements(d, from + i);
  }
};
template <typename Gradient>
struct UpdateValues {
  const AdafactorTerms& terms;
  template <class D>
  HWY_INLINE VectorOf<D> At(D d, int64_t i) const {
    return UpdateOf<D, Gradient>(d, terms, i);
  }
};

template <class D64, class Values>
HWY_INLINE hn::Vec<D64> SquaresAt(D64 d64, const Values& values, int64_t i) {
  const auto x = hn::PromoteTo(d64, values.At(hn::Rebind<float, D64>(), i));
  return hn::Mul(x, x);
}
// sums[0 ...] += the squares of a vector of values.
template <class D64, class Values>
HWY_INLINE void AddVector(D64 d64, const Values& values, int64_t i, double* sums) {
  hn::StoreU(hn::Add(hn::LoadU(d64, sums), SquaresAt(d64, values, i)), d64, sums);
}

// Adds the squares of values from `i` on, which belongs to lane 0, while all lanes get one; returns
// the first not added. kVector... are the indices of the vectors that hold the lanes: a pack,
// because gcc keeps an array that a loop indexes in memory.
template <class Values, size_t... kVector>
HWY_NOINLINE int64_t AddToAllLanes(const Values& values, int64_t i, int64_t count, double* lanes,
                                   std::index_sequence<kVector...> /*vectors*/) {
  const SumTag d64;
  constexpr int64_t kWidth = kLanes / sizeof...(kVector);
  hn::Vec<SumTag> sums[] = {hn::LoadU(d64, lanes + kVector * kWidth)...};
  for (; i + kLanes <= count; i += kLanes) {
    ((sums[kVector] = hn::Add(sums[kVector], SquaresAt(d64, values, i + kVector * kWidth))), ...);
  }
  (hn::StoreU(sums[kVector], d64, lanes + kVector * kWidth), ...);
  return i;
}

// Adds the squares of values [0, count), of which the first belongs to lane `phase`.
template <class Values>
HWY_NOINLINE void AddToLanes(const Values& values, int64_t count, int64_t phase, double* lanes) {
  constexpr std::make_index_sequence<kLanes / MaxLanes(SumTag())> kVectors;
  const hn::CappedTag<double, 1> single;
  int64_t i = 0;
  for (; i < count && (phase + i) % kLanes != 0; ++i) {
    AddVector(single, values, i, lanes + (phase + i) % kLanes);
  }
  i = AddToAllLanes(values, i, count, lanes, kVectors);
  for (; i < count; ++i) AddVector(single, values, i, lanes + (phase + i) % kLanes);
}

// Calls body(a value of the element type), for each of the element types.
template <typename Body>
HWY_INLINE void WithType(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(float());
    case DType::kBF16:
      return body(BFloat16());
    case DType::kF16:
      return body(Float16());
  }
}

void AddSquares(ConstElements from, int64_t count, int64_t phase, double* lanes) {
  WithType(from.dtype, [=](auto element) HWY_ATTR {
    using Element = decltype(element);
    const PlainValues<Element> values = {static_cast<const Element*>(from.data)};
    AddToLanes(values, count, phase, lanes);
  });
}

void AddUpdateSquares(const AdafactorTerms& terms, int64_t count, int64_t phase, double* lanes) {
  WithType(terms.gradient.dtype, [&](auto element) HWY_ATTR {
    const UpdateValues<decltype(element)> values = {terms};
    AddToLanes(values, count, phase, lanes);
  });
}

// Adds the square of each of `count` elements to a sum of its own.
void AddSquaresEach(ConstElements from, int64_t count, double* sums) {
  WithType(from.dtype, [=](auto element) HWY_ATTR {
    using Element = decltype(element);
    const PlainValues<Element> values = {static_cast<const Element*>(from.data)};
    const SumTag d64;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d64));
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) AddVector(d64, values, i, sums + i);
    for (; i < count; ++i) AddVector(hn::CappedTag<double, 1>(), values, i, sums + i);
  });
}

// v = v + weight * (g^2 - v) from `i` on while whole vectors fit; returns the first not done.
template <class D, typename Gradient>
HWY_NOINLINE int64_t AverageVectors(D d, const AdafactorTerms& terms, float weight, float* variance,
                                    int64_t i, int64_t count) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= count; i += lanes) {
    const auto g = hn::Mul(hn::Set(d, terms.gradient_factor),
                           LoadElements(d, static_cast<const Gradient*>(terms.gradient.data) + i));
    const auto v = hn::LoadU(d, variance + i);
    const auto moved = hn::Mul(hn::Set(d, weight), hn::Sub(hn::Mul(g, g), v));
    hn::StoreU(CanonicalizeNan(d, hn::Add(v, moved)), d, variance + i);
  }
  return i;
}

void Average(const AdafactorTerms& terms, float weight, float* variance, int64_t count) {
  WithType(terms.gradient.dtype, [&](auto element) HWY_ATTR {
    using Gradient = decltype(element);
    using Whole = hn::ScalableTag<float>;
    using Single = hn::CappedTag<float, 1>;
    const int64_t rest =
        AverageVectors<Whole, Gradient>(Whole(), terms, weight, variance, 0, count);
    AverageVectors<Single, Gradient>(Single(), terms, weight, variance, rest, count);
  });
}

// p = p * decay - rate * u from `i` on while whole vectors fit; returns the first not done.
template <class D, typename Gradient>
HWY_NOINLINE int64_t ApplyVectors(D d, const AdafactorTerms& terms, float* master, int64_t i,
                                  int64_t count) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= count; i += lanes) {
    const auto kept = hn::Mul(hn::LoadU(d, master + i), hn::Set(d, terms.decay));
    const auto moved = hn::Mul(hn::Set(d, terms.rate), UpdateOf<D, Gradient>(d, terms, i));
    hn::StoreU(CanonicalizeNan(d, hn::Sub(kept, moved)), d, master + i);
  }
  return i;
}

template <class D, typename Parameter>
HWY_NOINLINE int64_t RoundVectors(D d, const float* master, Parameter* parameter, int64_t i,
                                  int64_t count) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= count; i += lanes) {
    StoreElements(d, hn::LoadU(d, master + i), parameter + i);
  }
  return i;
}

void Apply(const AdafactorTerms& terms, float* master, int64_t count) {
  WithType(terms.gradient.dtype, [&](auto element) HWY_ATTR {
    using Gradient = decltype(element);
    using Whole = hn::ScalableTag<float>;
    using Single = hn::CappedTag<float, 1>;
    const int64_t rest = ApplyVectors<Whole, Gradient>(Whole(), terms, master, 0, count);
    ApplyVectors<Single, Gradient>(Single(), terms, master, rest, count);
  });
}

void Round(const float* master, Elements parameter, int64_t count) {
  WithType(parameter.dtype, [&](auto element) HWY_ATTR {
    auto* const to = static_cast<decltype(element)*>(parameter.data);
    const int64_t rest = RoundVectors(hn::ScalableTag<float>(), master, to, 0, count);
    RoundVectors(hn::CappedTag<float, 1>(), master, to, rest, count);
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gantry {
namespace {

HWY_EXPORT(AddSquares);
HWY_EXPORT(AddUpdateSquares);
HWY_EXPORT(AddSquaresEach);
HWY_EXPORT(Average);
HWY_EXPORT(Apply);
HWY_EXPORT(Round);

constexpr int64_t kTaskElements = int64_t{32} * 1024;
constexpr int64_t kTaskPieces = kTaskElements / kNormSegmentElements;
constexpr int64_t kTaskColumns = 512;  // their sums stay in the first-level cache
constexpr double kUnmeasured = -1.0;
constexpr double kDecayExponent = -0.8;
constexpr double kLeastRms = 1e-3;

float ToFloat(double value) {
  return std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(value);
}

ConstElements From(ConstElements elements, int64_t index) {
  return {.data = static_cast<const std::byte*>(elements.data) + index * SizeOf(elements.dtype),
          .dtype = elements.dtype};
}

double SumTree(std::array<double, 16> lanes) {
  for (size_t width = 8; width > 0; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

}  // namespace

AdafactorFactors::AdafactorFactors(std::span<const int64_t> shape, int64_t offset)
    : elements_(StateElements(StateKind::kMaster, shape, OptimizerKind::kAdafactor)),
      counts_(FactorsOf(shape)),
      phase_(offset % kNormSegmentElements) {
  for (const int64_t extent : shape) GANTRY_CHECK_GE(extent, 1);
  GANTRY_CHECK_GE(offset, 0);
  state_.resize(
      static_cast<size_t>(StateElements(StateKind::kVariance, shape, OptimizerKind::kAdafactor)));
  row_sums_.resize(static_cast<size_t>(counts_.rows));
  row_scales_.resize(static_cast<size_t>(counts_.rows));
  column_sums_.resize(static_cast<size_t>(counts_.columns));
  master_sums_.resize(static_cast<size_t>(SegmentCount(phase_ + elements_)));
  update_sums_.assign(master_sums_.size(), kUnmeasured);
  row_length_ = factored() ? shape.back() : elements_;
  if (factored()) matrix_rows_ = shape[shape.size() - 2];
}

Bytes AdafactorFactors::bytes() const {
  const size_t doubles =
      row_sums_.size() + column_sums_.size() + master_sums_.size() + update_sums_.size();
  const size_t floats = state_.size() + row_scales_.size();
  return Bytes(static_cast<int64_t>(doubles * sizeof(double) + floats * sizeof(float)));
}

int64_t AdafactorFactors::PieceBegin(int64_t piece) const {
  return std::clamp(piece * kNormSegmentElements - phase_, int64_t{0}, elements_);
}

AdafactorFactors::Range AdafactorFactors::PiecesAround(int64_t begin, int64_t count) const {
  if (count == 0) return {.begin = begin, .count = 0};
  const int64_t first = PieceBegin(PieceOf(begin));
  return {.begin = first, .count = PieceBegin(PieceOf(begin + count - 1) + 1) - first};
}

template <typename Body>
void AdafactorFactors::ForPieces(int64_t begin, int64_t count, ThreadTeam* team,
                                 const Body& body) const {
  GANTRY_CHECK(team != nullptr);
  GANTRY_CHECK(begin >= 0 && count >= 0 && count <= elements_ - begin) << begin << ", " << count;
  if (count == 0) return;
  const Range whole = PiecesAround(begin, count);
  GANTRY_CHECK(whole.begin == begin && whole.count == count) << begin << ", " << count;
  const int64_t first = PieceOf(begin);
  team->For({.count = PieceOf(begin + count - 1) + 1 - first, .grain = kTaskPieces},
            [&](int64_t from, int64_t to) {
              for (int64_t piece = first + from; piece < first + to; ++piece) {
                body(piece, PieceBegin(piece), PieceBegin(piece + 1));
              }
            });
}

template <typename Body>
void AdafactorFactors::ForRows(int64_t begin, int64_t end, const Body& body) const {
  while (begin < end) {
    const int64_t stop = std::min(end, (begin / row_length_ + 1) * row_length_);
    body(begin, stop);
    begin = stop;
  }
}

void AdafactorFactors::SumRows(int64_t begin, int64_t count, ConstElements gradient,
                               ThreadTeam* team) {
  const int64_t end = begin + count;
  const int64_t first_row = begin / row_length_;
  const SumLanes carried = gradient_pass_.lanes;  // by the first row, from the last call
  const int64_t grain = std::max(int64_t{1}, kTaskElements / row_length_);
  team->For({.count = CeilDiv(end, row_length_) - first_row, .grain = grain},
            [&](int64_t first, int64_t last) {
              for (int64_t row = first_row + first; row < first_row + last; ++row) {
                const int64_t from = std::max(row * row_length_, begin);
                const int64_t to = std::min((row + 1) * row_length_, end);
                const int64_t column = from - row * row_length_;
                SumLanes lanes = column > 0 ? carried : SumLanes{};
                HWY_DYNAMIC_DISPATCH(AddSquares)
                (From(gradient, from - begin), to - from, column % kSumLanes, lanes.data());
                if (to == (row + 1) * row_length_) {
                  row_sums_[static_cast<size_t>(row)] = SumTree(lanes);
                } else {
                  gradient_pass_.lanes = lanes;
                }
              }
            });
}

void AdafactorFactors::SumColumns(int64_t begin, int64_t count, ConstElements gradient,
                                  ThreadTeam* team) {
  const int64_t end = begin + count;
  // Each task owns some columns and takes the rows in order.
  team->For({.count = row_length_, .grain = kTaskColumns}, [&](int64_t first, int64_t last) {
    for (int64_t row = begin / row_length_; row * row_length_ < end; ++row) {
      const int64_t from = std::max(row * row_length_ + first, begin);
      const int64_t to = std::min(row * row_length_ + last, end);
      if (from >= to) continue;
      const int64_t column = from - row * row_length_;
      double* const sums = column_sums_.data() + row / matrix_rows_ * row_length_ + column;
      HWY_DYNAMIC_DISPATCH(AddSquaresEach)(From(gradient, from - begin), to - from, sums);
    }
  });
}

void AdafactorFactors::ObserveGradient(int64_t begin, int64_t count, ConstElements gradient,
                                       ThreadTeam* team) {
  GANTRY_CHECK(team != nullptr);
  GANTRY_CHECK(begin == gradient_pass_.next || begin == 0)
      << begin << " follows " << gradient_pass_.next;
  GANTRY_CHECK(count >= 0 && count <= elements_ - begin);
  if (begin == 0) {
    gradient_pass_ = RowPass();
    std::ranges::fill(column_sums_, 0.0);
  }
  if (count == 0) return;
  if (factored()) {
    SumRows(begin, count, gradient, team);
    SumColumns(begin, count, gradient, team);
  }
  gradient_pass_.next = begin + count;
}

void AdafactorFactors::ObserveMaster(int64_t begin, int64_t count, const float* master,
                                     ThreadTeam* team) {
  ForPieces(begin, count, team, [&](int64_t piece, int64_t first, int64_t last) {
    SumLanes lanes{};
    HWY_DYNAMIC_DISPATCH(AddSquares)
    ({master + (first - begin), DType::kF32}, last - first, (first + phase_) % kSumLanes,
     lanes.data());
    master_sums_[static_cast<size_t>(piece)] = SumTree(lanes);
  });
}

void AdafactorFactors::ScaleRows(double epsilon) {
  const std::span<const float> factors = row_factors();
  for (size_t first = 0; first < factors.size(); first += static_cast<size_t>(matrix_rows_)) {
    const std::span rows = factors.subspan(first, static_cast<size_t>(matrix_rows_));
    double sum = 0;
    for (const float row : rows) sum += row;
    const double mean = std::max(sum / static_cast<double>(matrix_rows_), epsilon);
    for (size_t i = 0; i < rows.size(); ++i) row_scales_[first + i] = ToFloat(rows[i] / mean);
  }
}

void AdafactorFactors::UpdateFactors(const OptimizerHyper& hyper, float gradient_factor) {
  GANTRY_CHECK(hyper.kind == OptimizerKind::kAdafactor) << Name(hyper.kind);
  GANTRY_CHECK_OK(ValidateOptimizer(hyper));
  GANTRY_CHECK(observed()) << gradient_pass_.next << " of " << elements_;
  const auto step = static_cast<double>(hyper.step);
  const double weight = std::pow(step, kDecayExponent);
  const double square = double{gradient_factor} * gradient_factor;
  const auto average = [&](std::span<float> factors, const std::vector<double>& sums,
                           int64_t length) {
    for (size_t i = 0; i < factors.size(); ++i) {
      const double mean = square * sums[i] / static_cast<double>(length);
      factors[i] = ToFloat(factors[i] + weight * (mean - factors[i]));
    }
  };
  average(row_factors(), row_sums_, row_length_);
  average(column_factors(), column_sums_, matrix_rows_);
  ScaleRows(hyper.epsilon);
  const double squares = CombineSegments(master_sums_);
  const double rms = std::sqrt(squares / static_cast<double>(elements_));
  gradient_factor_ = gradient_factor;
  variance_weight_ = static_cast<float>(weight);
  least_variance_ = static_cast<float>(hyper.epsilon * hyper.epsilon);
  decay_ = static_cast<float>(1.0 - hyper.learning_rate * hyper.weight_decay);
  rate_ = std::max(rms, kLeastRms) * std::min(hyper.learning_rate, 1.0 / std::sqrt(step));
  gradient_pass_ = RowPass();
  std::ranges::fill(update_sums_, kUnmeasured);
  pieces_measured_ = 0;
}

AdafactorTerms AdafactorFactors::TermsAt(int64_t element, ConstElements gradient) const {
  AdafactorTerms terms = {.gradient = gradient,
                          .estimate = state_.data() + element,
                          .scale = 1.0f,
                          .gradient_factor = gradient_factor_,
                          .least_variance = least_variance_,
                          .decay = decay_,
                          .rate = clipped_rate_};
  if (!factored()) return terms;
  const int64_t row = element / row_length_;
  const int64_t column = element % row_length_;
  terms.estimate = state_.data() + counts_.rows + row / matrix_rows_ * row_length_ + column;
  terms.scale = row_scales_[static_cast<size_t>(row)];
  return terms;
}

void AdafactorFactors::MeasureUpdate(int64_t begin, int64_t count, ConstElements gradient,
                                     ThreadTeam* team) {
  if (count == 0) return;
  ForPieces(begin, count, team, [&](int64_t piece, int64_t first, int64_t last) {
    double& sum = update_sums_[static_cast<size_t>(piece)];
    // Twice would average the variance twice.
    GANTRY_CHECK_EQ(sum, kUnmeasured) << "piece " << piece << " was measured already";
    SumLanes lanes{};
    ForRows(first, last, [&](int64_t from, int64_t to) {
      const AdafactorTerms terms = TermsAt(from, From(gradient, from - begin));
      if (!factored()) {
        HWY_DYNAMIC_DISPATCH(Average)(terms, variance_weight_, state_.data() + from, to - from);
      }
      HWY_DYNAMIC_DISPATCH(AddUpdateSquares)
      (terms, to - from, (from + phase_) % kSumLanes, lanes.data());
    });
    sum = SumTree(lanes);
  });
  pieces_measured_ += PieceOf(begin + count - 1) + 1 - PieceOf(begin);
  if (pieces_measured_ < pieces()) return;
  const double squares = CombineSegments(update_sums_);
  const double rms = std::sqrt(squares / static_cast<double>(elements_));
  clipped_rate_ = ToFloat(rate_ / std::max(rms, 1.0));
}

void AdafactorFactors::Update(int64_t begin, const OptimizerSlice& slice, ThreadTeam* team) {
  GANTRY_CHECK_EQ(pieces_measured_, pieces()) << "Update before MeasureUpdate was complete";
  GANTRY_CHECK(slice.momentum == nullptr && slice.variance == nullptr);
  GANTRY_CHECK(slice.count == 0 || (slice.master != nullptr && slice.gradient.data != nullptr));
  ForPieces(begin, slice.count, team, [&](int64_t piece, int64_t first, int64_t last) {
    float* const master = slice.master + (first - begin);
    ForRows(first, last, [&](int64_t from, int64_t to) {
      const AdafactorTerms terms = TermsAt(from, From(slice.gradient, from - begin));
      HWY_DYNAMIC_DISPATCH(Apply)(terms, master + (from - first), to - from);
    });
    SumLanes lanes{};
    HWY_DYNAMIC_DISPATCH(AddSquares)
    ({master, DType::kF32}, last - first, (first + phase_) % kSumLanes, lanes.data());
    master_sums_[static_cast<size_t>(piece)] = SumTree(lanes);
    if (!slice.parameter.has_value()) return;
    const DType dtype = slice.parameter->dtype;
    auto* const parameter =
        static_cast<std::byte*>(slice.parameter->data) + (first - begin) * SizeOf(dtype);
    HWY_DYNAMIC_DISPATCH(Round)(master, {parameter, dtype}, last - first);
  });
}

}  // namespace gantry
#endif  // HWY_ONCE
