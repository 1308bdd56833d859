// Runs the steps of a trace on a real engine in virtual time: every moment takes its lease, waits
// as long as the moment computes, and lets go. Movement, updates and files are the engine's own; so
// what a plan promised can be compared with what came of it, without noise.
#ifndef GANTRY_TESTS_SIMULATION_TRACE_REPLAY_H_
#define GANTRY_TESTS_SIMULATION_TRACE_REPLAY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "gemini/engine.h"
#include "gemini/layer_activations.h"
#include "placement_policy/trace.h"

namespace gantry {

struct ReplayOptions {
  const Trace* trace;
  std::string policy;
  int64_t device_slots = 0;
  int64_t host_slots = 0;
  int64_t look_ahead = 8;
  // Time of one slot on each lane, whatever the size of the replay's slots; 0 for files: no tier.
  Nanoseconds copy_per_slot = 0;
  Nanoseconds file_per_slot = 0;
  Nanoseconds update_per_slot = 0;  // of memory traffic
  double noise = 0.0;               // each moment varies by up to this part, anew in each step
  bool wait_for_norm = false;
  // Of a trace that keeps all: activations are replayed, and what layers save is as this says.
  std::optional<LayerSaving> saving = std::nullopt;
  int64_t steps = 8;
  uint64_t seed = 1;
};

struct ReplayedStep {
  Nanoseconds elapsed = 0;
  Nanoseconds compute = 0;
  std::array<Nanoseconds, kStallCauseCount> stalls{};
  std::array<int64_t, kTransferLaneCount> slots{};  // moved, by lane
};

struct ReplayResult {
  std::vector<ReplayedStep> steps;
  MovementReport report;
  std::vector<std::string> messages;
};

// Leases at most 8 chunks a moment. REQUIRES for `saving`: a layer's first saved activation is
// created by its last moment forward and used by its first one backward.
absl::StatusOr<ReplayResult> ReplayTrace(const ReplayOptions& options);

}  // namespace gantry

#endif  // GANTRY_TESTS_SIMULATION_TRACE_REPLAY_H_
