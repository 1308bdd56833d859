// The trace file: a step's trace as versioned JSON, to be planned for elsewhere, kept and compared.
// docs/formats/trace.md describes it. Pure functions.
#ifndef GANTRY_PLACEMENT_POLICY_TRACE_FILE_H_
#define GANTRY_PLACEMENT_POLICY_TRACE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "placement_policy/trace.h"

namespace gantry {

inline constexpr int64_t kTraceFileVersion = 1;
inline constexpr size_t kTraceFileBytesMax = size_t{256} << 20;

// What the file says of the operators' names. Without them it tells sizes and times of a model, but
// nothing that its author chose.
enum class TraceNames : uint8_t { kKeep, kDrop };

struct TraceFileOptions {
  TraceNames names = TraceNames::kKeep;
};

// The same trace always gives the same text. Uses are written in the order of their moments, so
// those that no moment has are left out. REQUIRES: trace.Validate() is OK.
std::string FormatTrace(const Trace& trace, const TraceFileOptions& options);

// Errors: kInvalidArgument naming the field, for whatever is not such a file or no valid trace.
absl::StatusOr<Trace> ParseTrace(std::string_view text);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_TRACE_FILE_H_
