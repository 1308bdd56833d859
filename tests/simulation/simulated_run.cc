#include "tests/simulation/simulated_run.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/event_loop.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "device/fake/fake_device.h"
#include "gemini/engine.h"
#include "gemini/testing/memory_store.h"
#include "gemini/testing/toy_model.h"
#include "nvme/simulated_io.h"
#include "tests/simulation/spill_folders.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_directory.h"

namespace gantry {
namespace {

constexpr StateKind kKinds[] = {StateKind::kParameter, StateKind::kMaster, StateKind::kMomentum,
                                StateKind::kVariance};

// What an engine stands on.
class SimulatedMachine {
 public:
  SimulatedMachine(const Scenario& scenario, uint64_t order_seed, FaultPlan* faults)
      : scenario_(scenario),
        loop_({.clock = &clock_, .seed = order_seed}),
        faults_(faults),
        folders_(scenario.spill_directories) {
    auto team = ThreadTeam::Create({.threads = 1});
    GANTRY_CHECK_OK(team.status());
    team_ = *std::move(team);
    auto device = CreateFakeDevice({.topology = scenario.topology,
                                    .bandwidth_bytes_per_second = scenario.lane_bandwidth,
                                    .latency = scenario.lane_latency,
                                    .clock = &clock_,
                                    .loop = &loop_,
                                    .faults = faults});
    GANTRY_CHECK_OK(device.status());
    device_ = *std::move(device);
  }

  absl::StatusOr<std::unique_ptr<Engine>> MakeEngine() {
    const int64_t slot = 2 * scenario_.chunk_elements;
    return Engine::Create(
        {.device = device_.get(),
         .team = team_.get(),
         .clock = &clock_,
         .logger = &logger_,
         .files = faults_->files(),
         .event_loop = &loop_,
         .device_memory = Bytes(slot * scenario_.device_slots),
         .host_memory = Bytes(slot * scenario_.host_slots),
         .spill_directories = scenario_.files ? folders_.paths() : std::vector<std::string>(),
         // As measured, which would take virtual time only, but many requests.
         .spill_shares = std::vector<double>(
             scenario_.files ? static_cast<size_t>(scenario_.spill_directories) : 0, 1.0),
         .make_io = [this](const IoBackendOptions& io) { return MakeDrive(io); },
         .policy = scenario_.policy,
         .static_fractions = scenario_.fractions,
         .look_ahead = scenario_.look_ahead,
         .chunk_elements = scenario_.chunk_elements,
         .gradient_dtype = scenario_.gradient_dtype,
         .optimizer = scenario_.hyper.kind,
         .state_format = scenario_.state_format,
         .update_order = scenario_.update_order});
  }

  const EventLoop& loop() const { return loop_; }
  Nanoseconds Now() const { return clock_.Now(); }
  std::string LeftBehind() const {
    return folders_.WhatIsLeft(faults_->struck() == 0 ? SpillFolders::Run::kHealthy
                                                      : SpillFolders::Run::kFaulty);
  }

 private:
  absl::StatusOr<std::unique_ptr<IoBackend>> MakeDrive(const IoBackendOptions& io) {
    return SimulatedIo::Create({.clock = &clock_,
                                .loop = &loop_,
                                .faults = faults_,
                                .sink = io.sink,
                                .latency = scenario_.drive_latency,
                                .bandwidth_bytes_per_second = scenario_.drive_bandwidth,
                                .queue_depth = scenario_.queue_depth});
  }

  const Scenario& scenario_;
  VirtualClock clock_;
  EventLoop loop_;
  FaultPlan* faults_;
  MemoryLogger logger_;
  SpillFolders folders_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
};

absl::Status SaveInMemory(ParameterStore& store, const ToyModel& model, int64_t steps,
                          SavedState& saved) {
  SavedState state;
  state.steps = steps;
  for (const TensorId tensor : model.tensors()) {
    const TensorSpec& spec = store.layout().tensor(tensor);
    for (const StateKind kind : kKinds) {
      if (!store.layout().HasState(kind, tensor)) continue;
      const int64_t size = kind == StateKind::kParameter ? SizeOf(spec.dtype) : 4;
      std::vector<std::byte>& bytes = state.values[{static_cast<int>(kind), tensor.value()}];
      bytes.resize(static_cast<size_t>(store.layout().StateElements(kind, tensor) * size));
      GANTRY_RETURN_IF_ERROR(store.ReadState(kind, tensor, 0, bytes));
    }
  }
  saved = std::move(state);
  return absl::OkStatus();
}

absl::Status SaveOnDisk(ParameterStore& store, FileCalls* files, const std::string& directory,
                        int64_t steps, SavedState& saved) {
  GANTRY_ASSIGN_OR_RETURN(const auto checkpoints,
                          CheckpointDirectory::Open({.files = files, .path = directory}));
  GANTRY_RETURN_IF_ERROR(checkpoints->Save(store, {.step = steps}, {}).status());
  saved.directory = directory;
  saved.steps = steps;
  return absl::OkStatus();
}

absl::Status RestoreFromMemory(ParameterStore& store, const SavedState& saved) {
  for (const auto& [key, bytes] : saved.values) {
    const auto kind = static_cast<StateKind>(key.first);
    const TensorId tensor(key.second);
    // That of a trainable tensor follows from its master.
    const bool trainable = store.layout().tensor(tensor).trainability == Trainability::kTrainable;
    if (kind == StateKind::kParameter && trainable) continue;
    GANTRY_RETURN_IF_ERROR(store.WriteState(kind, tensor, 0, bytes));
  }
  return absl::OkStatus();
}

// The steps after which the store is now.
absl::StatusOr<int64_t> Restore(ParameterStore& store, FileCalls* files, const SavedState& saved) {
  if (saved.directory.empty()) {
    GANTRY_RETURN_IF_ERROR(RestoreFromMemory(store, saved));
    return saved.steps;
  }
  GANTRY_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(files, saved.directory));
  GANTRY_RETURN_IF_ERROR(checkpoint.Restore(store));
  return checkpoint.manifest().position.step;
}

absl::StatusOr<Fingerprint> FingerprintOf(ToyModel& model) {
  Fingerprint fingerprint;
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    GANTRY_ASSIGN_OR_RETURN(fingerprint.hashes[i], model.Hash(kKinds[i]));
  }
  return fingerprint;
}

OptimizerStep HyperOf(const Scenario& scenario, int64_t step) {
  OptimizerStep hyper = scenario.hyper;
  hyper.step = step;
  return hyper;
}

absl::Status Begin(ParameterStore& store, ToyModel& model, const Scenario& scenario) {
  GANTRY_RETURN_IF_ERROR(model.Register());
  for (int64_t i = 0; i < model.dry_steps(); ++i) {
    GANTRY_RETURN_IF_ERROR(model.TrainStep(HyperOf(scenario, 1)).status());
  }
  return store.Seal();
}

// From where `options.resume` ends to the last step; the checkpoint goes to `saved`.
absl::StatusOr<Fingerprint> Train(ParameterStore& store, const RunOptions& options,
                                  SavedState& saved) {
  const Scenario& scenario = *options.scenario;
  ToyModel model(&store, scenario.model);
  GANTRY_RETURN_IF_ERROR(Begin(store, model, scenario));
  int64_t done = 0;
  if (options.resume == nullptr || options.resume->steps == 0) {
    GANTRY_RETURN_IF_ERROR(model.Initialize());
  } else {
    GANTRY_ASSIGN_OR_RETURN(done, Restore(store, options.faults->files(), *options.resume));
    model.ResumeAfter(done);
  }
  for (int64_t step = done + 1; step <= scenario.steps; ++step) {
    if (scenario.varies_from > 0 && step >= scenario.varies_from) model.Vary(scenario.variation);
    GANTRY_RETURN_IF_ERROR(model.TrainStep(HyperOf(scenario, step)).status());
    if (scenario.evaluates) GANTRY_RETURN_IF_ERROR(model.Evaluate());
    if (step != scenario.checkpoint_after) continue;
    GANTRY_RETURN_IF_ERROR(
        scenario.checkpoint_on_disk && !options.checkpoint_directory.empty()
            ? SaveOnDisk(store, options.faults->files(), options.checkpoint_directory, step, saved)
            : SaveInMemory(store, model, step, saved));
  }
  return FingerprintOf(model);
}

}  // namespace

RunResult RunSimulated(const RunOptions& options) {
  RunResult result;
  SimulatedMachine machine(*options.scenario, options.order_seed, options.faults);
  {
    auto engine = machine.MakeEngine();
    result.status = engine.status();
    if (engine.ok()) {
      auto trained = Train(**engine, options, result.checkpoint);
      result.status = trained.status();
      if (trained.ok()) result.fingerprint = *trained;
      if (result.status.ok()) result.status = (*engine)->Drain();
      const EngineStatistics statistics = (*engine)->statistics();
      result.updates_speculated = statistics.updates_speculated;
      result.updates_taken_back = statistics.updates_taken_back;
      result.planned = (*engine)->movement_report("train").planned;
    }
  }
  result.events = machine.loop().events_run();
  result.end = machine.Now();
  result.left_behind = machine.LeftBehind();
  return result;
}

absl::StatusOr<Fingerprint> RunOracle(const Scenario& scenario) {
  GANTRY_ASSIGN_OR_RETURN(const auto team, ThreadTeam::Create({.threads = 1}));
  GANTRY_ASSIGN_OR_RETURN(const auto store,
                          MemoryStore::Create({.gradient_dtype = scenario.gradient_dtype,
                                               .activation_slots = 32,
                                               .team = team.get(),
                                               .optimizer = scenario.hyper.kind,
                                               .state_format = scenario.state_format}));
  FaultPlan healthy({});
  SavedState unused;
  return Train(*store, {.scenario = &scenario, .faults = &healthy, .checkpoint_directory = {}},
               unused);
}

absl::Status TrySeal(const Scenario& scenario) {
  FaultPlan healthy({});
  SimulatedMachine machine(scenario, 0, &healthy);
  GANTRY_ASSIGN_OR_RETURN(const auto engine, machine.MakeEngine());
  ToyModel model(engine.get(), scenario.model);
  return Begin(*engine, model, scenario);
}

}  // namespace gantry
