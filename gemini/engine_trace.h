// What the engine tells its trace sink beside transfers: operators, stalls, updates, and the slots
// in use. Internal to the engine's target. Does nothing without a sink.
//
// Thread-compatible; the engine's mutex guards it.
#ifndef GANTRY_GEMINI_ENGINE_TRACE_H_
#define GANTRY_GEMINI_ENGINE_TRACE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/trace_sink.h"
#include "chunk/chunk_manager.h"
#include "device/slot_pool.h"
#include "placement_policy/trace.h"

namespace gantry {

class EngineTrace {
 public:
  // Both outlive this; the sink may be null.
  EngineTrace(TraceSink* sink, Clock* clock) : sink_(sink), clock_(clock) {}

  // An operator computes from when its blocks are there until the next one is asked for: a slice on
  // the track "compute forward" or "compute backward".
  void BeginOperator(std::string_view name, Phase phase, ChunkManager& manager);
  void EndOperator(Nanoseconds end);
  // A slice on the track "stall".
  void Stall(std::string_view cause, Nanoseconds begin, Nanoseconds end);
  // Counters like "device grad bytes", where they have changed since they were last told.
  void Memory(ChunkManager& manager);

 private:
  TraceSink* const sink_;
  Clock* const clock_;
  std::string name_;  // of the operator that computes
  std::string_view track_;
  Nanoseconds begin_ = -1;                                       // -1: none does
  std::array<std::array<int64_t, kMemoryTagCount>, 2> slots_{};  // by tier and tag, as told
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_ENGINE_TRACE_H_
