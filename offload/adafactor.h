// Adafactor (Shazeer and Stern, arXiv 1804.04235) in the form of torch.optim.Adafactor: the second
// moment of a matrix is kept as one factor a row and one a column. With N elements and, in a tensor
// of more than two dimensions, for each of its matrices alone:
//
//   w    = step^-0.8
//   row  = row + w * (mean over the row of g^2 - row), column likewise
//   v    = row * column / max(mean of row, epsilon)           rank below 2: v = v + w * (g^2 - v)
//   u    = g / sqrt(max(v, epsilon^2))
//   rate = max(1e-3, RMS(p)) * min(lr, 1 / sqrt(step)) / max(1, RMS(u))
//   p    = p * (1 - lr * weight_decay) - rate * u
//
// (torch's epsilon is 2^-23 unless set.) Sums and means are double, in an order fixed by the shape:
// results have the same bits on every instruction set, for any team, and however the tensor is cut
// into slices. A NaN anywhere becomes the canonical NaN of everything it enters.
//
// One step, whose tensor may arrive in slices; the three passes take slices in the order of the
// tensor, all of it, and the first two may run at any time before UpdateFactors:
//
//   for (slice) factors.ObserveGradient(slice.begin, slice.count, gradient, team);
//   for (slice) factors.ObserveMaster(slice.begin, slice.count, master, team);
//   factors.UpdateFactors(hyper, gradient_factor);            // the clip coefficient is known
//   for (slice) factors.MeasureUpdate(slice.begin, slice.count, gradient, team);
//   for (slice) factors.Update(slice.begin, {...}, team);     // in any order
//
// A pass that is begun anew at element 0 forgets what it had: a skipped step needs nothing else.
// Not thread-safe, but factors of different tensors may be used at once, on one team too. Owns the
// factors and, during a step, 8 bytes more for each row and column.
#ifndef GANTRY_OFFLOAD_ADAFACTOR_H_
#define GANTRY_OFFLOAD_ADAFACTOR_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel_for.h"
#include "offload/elements.h"
#include "offload/optimizer.h"

namespace gantry {

// What the kernels make u of consecutive elements of one row from: v is `scale` times `estimate`.
struct AdafactorTerms {
  ConstElements gradient;
  const float* estimate;
  float scale;
  float gradient_factor;
  float least_variance;  // epsilon^2
  float decay;           // what the master is multiplied by, and u before it is subtracted
  float rate;
};

class AdafactorFactors {
 public:
  // `shape` as in TensorSpec: every extent at least 1, empty for a scalar.
  explicit AdafactorFactors(std::span<const int64_t> shape);

  int64_t elements() const { return elements_; }

  // What a checkpoint holds, zero before the first step. A tensor of rank 2 or more has one row
  // factor for each index but the last, and one column factor for each but the last but one
  // ([..., R, C]: [..., R] and [..., C]); others have the variance, one value an element, instead.
  std::span<float> row_factors() { return row_factors_; }
  std::span<float> column_factors() { return column_factors_; }
  std::span<float> variance() { return variance_; }

  // Add the squares of elements [begin, begin + count) of the gradient, not yet multiplied by the
  // gradient factor, and of the master. REQUIRES: `begin` is where the pass stopped, or 0.
  void ObserveGradient(int64_t begin, int64_t count, ConstElements gradient, ThreadTeam* team);
  void ObserveMaster(int64_t begin, int64_t count, const float* master, ThreadTeam* team);

  // REQUIRES: both passes complete, kind adafactor, ValidateOptimizer(hyper).ok().
  void UpdateFactors(const OptimizerHyper& hyper, float gradient_factor);

  // Adds the squares of u, for its RMS. Below rank 2 it updates the variance, too.
  // REQUIRES: UpdateFactors has been called; `begin` is where the pass stopped.
  void MeasureUpdate(int64_t begin, int64_t count, ConstElements gradient, ThreadTeam* team);

  // Updates the slice that starts at element `begin`: master, gradient and parameter of it are
  // used. REQUIRES: MeasureUpdate has covered the tensor.
  void Update(int64_t begin, const OptimizerSlice& slice, ThreadTeam* team) const;

 private:
  static constexpr int64_t kSumLanes = 16;

  // Sums of squares of rows, of which the last may still lack elements.
  struct RowPass {
    int64_t next = 0;  // the element expected
    std::array<double, kSumLanes> lanes{};
    double total = 0;
  };

  // Takes `pass` over elements [begin, begin + count): add(begin, end, lanes) adds the squares of
  // elements of one row to lanes of their column mod kSumLanes, finish(row, sum) gets complete rows
  // in order.
  template <typename Add, typename Finish>
  void SumRows(RowPass& pass, int64_t begin, int64_t count, ThreadTeam* team, const Add& add,
               const Finish& finish) const;
  void SumColumns(int64_t begin, int64_t count, ConstElements gradient, ThreadTeam* team);
  void ScaleRows(double epsilon);
  // From `element` to the end of its row; `gradient` starts at the element. Leaves the rate to the
  // caller.
  AdafactorTerms TermsAt(int64_t element, ConstElements gradient) const;

  bool factored() const { return !column_factors_.empty(); }

  int64_t elements_ = 1;
  int64_t row_length_ = 1;   // below rank 2: of the pieces that sums are made of
  int64_t matrix_rows_ = 1;  // of each matrix
  std::vector<float> row_factors_;
  std::vector<float> column_factors_;
  std::vector<float> variance_;

  RowPass gradient_pass_;
  RowPass master_pass_;
  RowPass update_pass_;
  std::vector<double> row_sums_;
  std::vector<double> column_sums_;
  std::vector<float> row_scales_;  // row / max(mean of row, epsilon)

  // Of the step that UpdateFactors began.
  float gradient_factor_ = 0;
  float variance_weight_ = 0;  // w
  float least_variance_ = 0;   // epsilon^2
  float decay_ = 0;
  double rate_ = 0;  // before the division by max(1, RMS(u))
};

}  // namespace gantry

#endif  // GANTRY_OFFLOAD_ADAFACTOR_H_
