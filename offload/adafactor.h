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
// (torch's epsilon is 2^-23 unless set.) Sums and means are double, in an order fixed by the shape
// and by where the tensor lies: results have the same bits on every instruction set, for any team,
// and however the tensor is cut into slices. A NaN anywhere becomes the canonical NaN of everything
// it enters.
//
// A tensor lies in the space of its group (chunk_layout.h), which is cut into norm segments of
// 16,384 elements. The part of it in one segment is a piece: sums over the tensor are made of one
// sum a piece. One step, whose gradient is read three times, in slices; each slice of the last
// three calls consists of whole pieces:
//
//   for (slice) factors.ObserveGradient(slice.begin, slice.count, gradient, team);   // in order
//   factors.UpdateFactors(hyper, gradient_factor);            // the clip coefficient is known
//   for (slice) factors.MeasureUpdate(slice.begin, slice.count, gradient, team);     // in any
//   order for (slice) factors.Update(slice.begin, {...}, team);                            // in
//   any order
//
// RMS(p) needs no pass of its own: Update notes the squares of the masters it writes. Who writes
// masters otherwise calls ObserveMaster; before, they count as zero.
//
// A pass over the gradient that is begun anew at element 0 forgets what it had: a skipped step
// needs nothing else. Not thread-safe, but factors of different tensors may be used at once, on one
// team too. Owns the factors, and beside them 8 bytes a row and a column, 4 more a row, and 16 a
// piece.
#ifndef GANTRY_OFFLOAD_ADAFACTOR_H_
#define GANTRY_OFFLOAD_ADAFACTOR_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/parallel_for.h"
#include "chunk/optimizer_states.h"
#include "offload/elements.h"
#include "offload/gradient_norm.h"
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
  // `shape` as in TensorSpec: every extent at least 1, empty for a scalar. `offset` is the tensor's
  // in the space of its group, in elements.
  AdafactorFactors(std::span<const int64_t> shape, int64_t offset);

  int64_t elements() const { return elements_; }

  // What a checkpoint holds, zero before the first step: StateElements(kVariance, ...) values, the
  // row factors and then the column factors, or below rank 2 the variance of each element.
  std::span<float> state() { return state_; }
  std::span<float> row_factors() { return state().first(static_cast<size_t>(counts_.rows)); }
  std::span<float> column_factors() {
    return state().subspan(static_cast<size_t>(counts_.rows), static_cast<size_t>(counts_.columns));
  }
  // Host memory, which does not change.
  Bytes bytes() const;

  // Adds the squares of elements [begin, begin + count) of the gradient, not yet multiplied by the
  // gradient factor. REQUIRES: `begin` is where the pass stopped, or 0.
  void ObserveGradient(int64_t begin, int64_t count, ConstElements gradient, ThreadTeam* team);
  // Whether the pass is complete, and UpdateFactors has not used it yet.
  bool observed() const { return gradient_pass_.next == elements_; }

  // Notes the squares of a master that Update has not written. REQUIRES: whole pieces.
  void ObserveMaster(int64_t begin, int64_t count, const float* master, ThreadTeam* team);
  // The whole pieces that elements [begin, begin + count) touch.
  struct Range {
    int64_t begin;
    int64_t count;
  };
  Range PiecesAround(int64_t begin, int64_t count) const;

  // REQUIRES: observed(), kind adafactor, ValidateOptimizer(hyper).ok().
  void UpdateFactors(const OptimizerHyper& hyper, float gradient_factor);

  // Adds the squares of u, for its RMS. Below rank 2 it updates the variance, too.
  // REQUIRES: UpdateFactors has been called; whole pieces, each once.
  void MeasureUpdate(int64_t begin, int64_t count, ConstElements gradient, ThreadTeam* team);

  // Updates the slice that starts at element `begin`: master, gradient and parameter of it are
  // used. REQUIRES: MeasureUpdate has covered the tensor; whole pieces.
  void Update(int64_t begin, const OptimizerSlice& slice, ThreadTeam* team);

 private:
  static constexpr int64_t kSumLanes = 16;
  using SumLanes = std::array<double, kSumLanes>;

  // Sums of squares of rows, of which the last may still lack elements.
  struct RowPass {
    int64_t next = 0;  // the element expected
    SumLanes lanes{};
  };

  void SumRows(int64_t begin, int64_t count, ConstElements gradient, ThreadTeam* team);
  void SumColumns(int64_t begin, int64_t count, ConstElements gradient, ThreadTeam* team);
  void ScaleRows(double epsilon);

  int64_t PieceOf(int64_t element) const { return (element + phase_) / kNormSegmentElements; }
  int64_t PieceBegin(int64_t piece) const;
  // Calls body(piece, begin, end) for each piece of a range, on the team.
  template <typename Body>
  void ForPieces(int64_t begin, int64_t count, ThreadTeam* team, const Body& body) const;
  // Calls body(begin, end) for the part of each row in a range.
  template <typename Body>
  void ForRows(int64_t begin, int64_t end, const Body& body) const;
  // From `element` to the end of its row; `gradient` starts at the element. Leaves the rate to the
  // caller.
  AdafactorTerms TermsAt(int64_t element, ConstElements gradient) const;

  bool factored() const { return counts_.rows > 0; }
  int64_t pieces() const { return static_cast<int64_t>(master_sums_.size()); }

  int64_t elements_;
  FactorCounts counts_;
  int64_t phase_;            // elements before the tensor in its first segment
  int64_t row_length_ = 1;   // below rank 2: all elements
  int64_t matrix_rows_ = 1;  // of each matrix
  std::vector<float> state_;

  RowPass gradient_pass_;
  std::vector<double> row_sums_;
  std::vector<double> column_sums_;
  std::vector<float> row_scales_;    // row / max(mean of row, epsilon)
  std::vector<double> master_sums_;  // by piece, of squares
  std::vector<double> update_sums_;  // by piece, of squares; negative: not measured
  int64_t pieces_measured_ = 0;

  // Of the step that UpdateFactors began.
  float gradient_factor_ = 0;
  float variance_weight_ = 0;  // w
  float least_variance_ = 0;   // epsilon^2
  float decay_ = 0;
  double rate_ = 0;  // before the division by max(1, RMS(u))
  float clipped_rate_ = 0;
};

}  // namespace gantry

#endif  // GANTRY_OFFLOAD_ADAFACTOR_H_
