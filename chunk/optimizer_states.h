// Which optimizer states the chunks of a run have, and how they are kept. The kernels that update
// them are in offload/; here is what their layout follows from.
#ifndef GANTRY_CHUNK_OPTIMIZER_STATES_H_
#define GANTRY_CHUNK_OPTIMIZER_STATES_H_

#include <cstdint>
#include <ostream>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "chunk/block.h"

namespace gantry {

enum class OptimizerKind : uint8_t { kAdamW, kAdam, kSgd, kLion, kAdafactor };
std::string_view Name(OptimizerKind kind);  // "adamw", "adam", "sgd", "lion", "adafactor"
inline std::ostream& operator<<(std::ostream& out, OptimizerKind kind) { return out << Name(kind); }
// Accepts the names above. Errors: kInvalidArgument that lists them.
absl::StatusOr<OptimizerKind> ParseOptimizerKind(std::string_view name);

// How the state of a chunk is kept.
enum class StateFormat : uint8_t {
  kF32,          // f32 master, f32 moments
  kSplitMaster,  // the 16 bits below a bf16 parameter instead of the f32 master; all else as kF32
  kEightBit,     // f32 master; momentum and variance as 8-bit codes, two bytes an element together
};
std::string_view Name(StateFormat format);  // "f32", "split_master", "eight_bit"
inline std::ostream& operator<<(std::ostream& out, StateFormat format) {
  return out << Name(format);
}
// Accepts the names above. Errors: kInvalidArgument that lists them.
absl::StatusOr<StateFormat> ParseStateFormat(std::string_view name);

// The state arrays of a kind beside the master, one value an element, which chunks hold. Adafactor
// has a factored variance instead, which belongs to tensors.
struct OptimizerStates {
  bool momentum;
  bool variance;

  bool operator==(const OptimizerStates&) const = default;
};
OptimizerStates StatesOf(OptimizerKind kind);
inline bool FactorsVariance(OptimizerKind kind) { return kind == OptimizerKind::kAdafactor; }

// The factors of a variance: a tensor of rank 2 or more, [..., R, C], has one a row ([..., R]) and
// one a column ([..., C]). Below rank 2 there are none, and the variance is kept as it is.
struct FactorCounts {
  int64_t rows;
  int64_t columns;

  bool operator==(const FactorCounts&) const = default;
};
// REQUIRES: every extent at least 1.
FactorCounts FactorsOf(std::span<const int64_t> shape);

// How many values one kind of state of a tensor has: one an element, but for a factored variance,
// which is its row factors and then its column factors. REQUIRES: as FactorsOf.
int64_t StateElements(StateKind state, std::span<const int64_t> shape, OptimizerKind optimizer);

// Whether chunks can keep a kind's state so: all kinds in kF32; all but adafactor, which has no
// moments, in kEightBit; in kSplitMaster those with a variance, whose sign holds the one bit that
// 16 + 16 bits cannot. Errors: kInvalidArgument saying why not.
absl::Status CheckSupported(OptimizerKind kind, StateFormat format);

}  // namespace gantry

#endif  // GANTRY_CHUNK_OPTIMIZER_STATES_H_
