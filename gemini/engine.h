// The heterogeneous memory engine: a ParameterStore whose blocks live on the device, in pinned host
// memory and in files, and move between them asynchronously so that each operator finds its
// parameters at their fixed addresses. Whatever the budgets and the policy, the numbers are the
// same to the bit.
//
//   GANTRY_ASSIGN_OR_RETURN(auto engine, Engine::Create({.device = device, .team = team,
//       .clock = clock, .logger = logger, .files = &files, .device_memory = 8_GiB,
//       .host_memory = 48_GiB, .spill_directories = {"/nvme0/spill"}}));
//   GANTRY_ASSIGN_OR_RETURN(TensorId w, engine->Register({.name = "w", .shape = {3 * c, c},
//       .dtype = DType::kBF16}, {}));
//   GANTRY_RETURN_IF_ERROR(engine->Seal());
//   GANTRY_RETURN_IF_ERROR(engine->BeginStep({.optimizer = adam}));
//   ...
//
// Threads: the compute thread calls; a mover thread takes completions and starts transfers; an
// update thread runs optimizer updates; lanes and I/O have their own. One mutex guards the tables;
// no transfer and no update runs under it; zeroing (blocks that were never written, padding of
// gradients) and the copies of ReadState and WriteState do.
// Lock order: engine, then arena, then pool and transfer engine.
//
// After an error of the background work (a failed read, say) every later call returns it.
#ifndef GANTRY_GEMINI_ENGINE_H_
#define GANTRY_GEMINI_ENGINE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/trace_sink.h"
#include "chunk/optimizer_states.h"
#include "device/device.h"
#include "device/slot_pool.h"
#include "gemini/parameter_store.h"
#include "nvme/block_store.h"
#include "nvme/create_io_backend.h"
#include "offload/transfer_engine.h"
#include "placement_policy/machine.h"
#include "placement_policy/movement_decision.h"
#include "placement_policy/policy.h"
#include "placement_policy/trace.h"

namespace gantry {

struct EngineOptions {
  // Outlive the engine.
  Device* device;
  ThreadTeam* team;
  Clock* clock;
  Logger* logger;
  FileCalls* files;
  TraceSink* trace_sink = nullptr;  // null: off
  // Null: the engine has threads. Otherwise it has none, and where it would wait it runs the loop,
  // on whose virtual time the device and the I/O backend must be. For deterministic simulation.
  EventLoop* event_loop = nullptr;
  // With an event loop. Not 0: completions are taken when they come, as a thread would, and updates
  // take this long per byte of memory traffic. 0: completions are taken when the engine is called,
  // and updates take what the loop draws, so that seeds differ in as much as possible.
  int64_t simulated_update_bytes_per_second = 0;

  Bytes device_memory = Bytes(0);  // parameters, gradients and activations together
  Bytes host_memory = Bytes(0);    // ignored on a unified device
  std::vector<std::string> spill_directories = {};  // none: no file tier
  std::vector<double> spill_shares = {};  // of each directory in every block; empty: measured
  Verification verification = Verification::kEveryRead;
  IoPreference io = IoPreference::kAuto;
  IoBackendFactory make_io = {};  // empty: CreateIoBackend

  std::string policy = "planned";         // placement_policy/policy.h
  StaticFractions static_fractions = {};  // of the static policy
  int64_t look_ahead = 8;               // moments whose blocks are fetched ahead; 0: on demand only
  int64_t chunk_elements = 0;           // 0: chosen from the model and the budgets
  DType gradient_dtype = DType::kBF16;  // kF32 accumulates micro-batches exactly
  // Which states there are and how they are kept. kSplitMaster changes no number, kEightBit does.
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  StateFormat state_format = StateFormat::kF32;
  UpdateOrder update_order = UpdateOrder::kExact;
  // For the policy `planned`: how fast the machine is. What is 0 is measured in the first steps.
  MachineRates rates = {};
};

// Why compute waited.
enum class StallCause : uint8_t { kParameter, kRoom, kUpdate, kNorm };
inline constexpr int kStallCauseCount = 4;
std::string_view Name(StallCause cause);  // "parameter", "room", "update", "norm"

struct EngineStatistics {
  PoolUsage device;
  PoolUsage host;
  std::array<TransferCounters, kTransferLaneCount> lanes;  // by TransferLane
  std::array<Nanoseconds, kStallCauseCount> stalls;        // by StallCause
  Nanoseconds update_busy = 0;  // of the update thread, norms and factors included
  int64_t leases = 0;
  int64_t leases_waited = 0;       // of these, not served at once
  int64_t leases_off_plan = 0;     // of these, not the ones the trace expected
  int64_t updates_speculated = 0;  // ran before the norm was known, since Seal
  int64_t updates_taken_back = 0;  // of these, undone
  int64_t chunk_elements = 0;
  int64_t chunk_count = 0;
  double padding_fraction = 0.0;
  // Host memory beside the budgets: scales of eight-bit moments, and what was written to them and
  // is not rounded yet; Adafactor's factors and their sums.
  Bytes state_outside_slots = Bytes(0);
  std::vector<StripeReport> stripes;  // of the file tier; empty without one
  StoreCounters store;                // since Seal

  std::string io_backend() const;  // "io_uring", "threads" or "none"
  bool direct_io() const;          // in every directory
  Bytes file_bytes() const;        // preallocated
};

// The movement plan of one step (policy `planned`), beside what was measured.
struct MovementReport {
  bool planned = false;       // false: blocks move on demand (no times yet, or no plan fits)
  Nanoseconds planning = 0;   // time it took
  Nanoseconds predicted = 0;  // elapsed time of a step, by the simulator
  Nanoseconds compute = 0;    // of this, computing
  Nanoseconds bound = 0;  // no plan with its placement takes less (placement_policy/lower_bound.h)
  PlacementShape shape;   // where updates run, what stays
  MachineRates rates;     // that were measured or given, and used
  // Of what is executed: the same trace, times, machine and options give the same. Ranks of one
  // group have to agree on it before the plan takes effect, in the step that makes it.
  uint64_t hash = 0;
};

// What a movement plan was made from, and the plan.
struct PlannedStep {
  Trace trace;  // with measured times
  Machine machine;
  MovementDecision decision;
};

// What the model needs at the chosen chunk size, known after a dry run.
struct BudgetReport {
  Bytes least_device = Bytes(0);
  Bytes least_host = Bytes(0);
  Bytes model_state = Bytes(0);  // parameters, gradients and optimizer states, with padding
  Bytes activations_max = Bytes(0);
};

class Engine : public ParameterStore {
 public:
  // Errors: kInvalidArgument for options that contradict each other.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);

  // How long a dry step of this key would take if computing took no time: what its blocks' moves
  // and updates take by a plan, at the rates given or else assumed, within the budgets and at the
  // chunk size that Seal would choose now. For comparing ways to run the same step: the last dry
  // step of a key counts. Equal models, budgets and steps give equal times.
  // REQUIRES: before Seal. Errors: kInvalidArgument without such a dry step; kResourceExhausted
  // when the budgets are too small.
  virtual absl::StatusOr<Nanoseconds> MovementTime(std::string_view key) = 0;
  // Waits until no update and no transfer is under way.
  virtual absl::Status Drain() = 0;
  virtual EngineStatistics statistics() const = 0;
  virtual void ResetStatistics() = 0;  // counters and stalls; peaks stay
  // Valid after Seal.
  virtual BudgetReport budget_report() const = 0;
  // The plan that steps of this key follow; not planned for an unknown key.
  virtual MovementReport movement_report(std::string_view key) const = 0;
  // What that plan was made from; null while steps of this key follow none. Valid until the next
  // step begins.
  virtual const PlannedStep* planned_step(std::string_view key) const = 0;
  // The compiled trace of a key; null when no such step was recorded. Its compute times are medians
  // of the key's last steps (gemini/step_times.h), those of updates of what their jobs took; 0
  // before the first such step ran. Valid as long as the engine; the next call renews its times.
  virtual const Trace* trace(std::string_view key) = 0;
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_ENGINE_H_
