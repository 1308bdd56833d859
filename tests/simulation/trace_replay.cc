#include "tests/simulation/trace_replay.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/event_loop.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/fault_plan.h"
#include "device/fake/fake_device.h"
#include "nvme/simulated_io.h"
#include "tests/simulation/spill_folders.h"

namespace gantry {
namespace {

// The smallest chunk that the engine makes, so that a model of any size fits this machine.
constexpr int64_t kElements = kChunkGranularityElements;
constexpr int64_t kSlotBytes = 2 * kElements;

int64_t RateOf(Nanoseconds per_slot) {
  return per_slot == 0 ? 0 : std::max<int64_t>(kSlotBytes * 1'000'000'000 / per_slot, 1);
}

class Replay {
 public:
  explicit Replay(const ReplayOptions& options)
      : options_(options),
        trace_(*options.trace),
        loop_({.clock = &clock_, .seed = options.seed}),
        healthy_({}),
        folders_(1) {}

  absl::StatusOr<ReplayResult> Run() {
    GANTRY_RETURN_IF_ERROR(MakeEngine());
    GANTRY_RETURN_IF_ERROR(RegisterChunks());
    FindGradients();
    if (options_.saving.has_value()) FindLayers();
    GANTRY_RETURN_IF_ERROR(Step(0).status());  // dry
    if (options_.saving == LayerSaving::kPlanned) {
      dry_layers_ = LayerSaving::kRecompute;
      GANTRY_RETURN_IF_ERROR(Step(0).status());
    }
    GANTRY_RETURN_IF_ERROR(engine_->Seal());
    GANTRY_RETURN_IF_ERROR(Initialize());
    ReplayResult result;
    for (int64_t step = 1; step <= options_.steps; ++step) {
      engine_->ResetStatistics();
      const Nanoseconds begin = clock_.Now();
      GANTRY_ASSIGN_OR_RETURN(const Nanoseconds compute, Step(step));
      const EngineStatistics statistics = engine_->statistics();
      ReplayedStep replayed{.elapsed = clock_.Now() - begin,
                            .compute = compute,
                            .stalls = statistics.stalls,
                            .slots = {}};
      for (size_t lane = 0; lane < replayed.slots.size(); ++lane) {
        replayed.slots[lane] = statistics.lanes[lane].bytes / kSlotBytes;
      }
      result.steps.push_back(replayed);
    }
    result.report = engine_->movement_report("train");
    result.messages = logger_.messages();
    return result;
  }

 private:
  absl::Status MakeEngine() {
    GANTRY_ASSIGN_OR_RETURN(team_, ThreadTeam::Create({.threads = 1}));
    GANTRY_ASSIGN_OR_RETURN(
        device_, CreateFakeDevice({.topology = DeviceTopology::kDiscrete,
                                   .bandwidth_bytes_per_second = RateOf(options_.copy_per_slot),
                                   .clock = &clock_,
                                   .loop = &loop_,
                                   .faults = &healthy_}));
    const bool files = options_.file_per_slot > 0;
    GANTRY_ASSIGN_OR_RETURN(
        engine_,
        Engine::Create({.device = device_.get(),
                        .team = team_.get(),
                        .clock = &clock_,
                        .logger = &logger_,
                        .files = healthy_.files(),
                        .event_loop = &loop_,
                        .simulated_update_bytes_per_second = RateOf(options_.update_per_slot),
                        .device_memory = Bytes(kSlotBytes * options_.device_slots),
                        .host_memory = Bytes(kSlotBytes * options_.host_slots),
                        .spill_directories = files ? folders_.paths() : std::vector<std::string>(),
                        .spill_shares = files ? std::vector<double>{1.0} : std::vector<double>(),
                        .make_io = [this](const IoBackendOptions& io) { return MakeDrive(io); },
                        .policy = options_.policy,
                        .look_ahead = options_.look_ahead,
                        .chunk_elements = kElements}));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<IoBackend>> MakeDrive(const IoBackendOptions& io) {
    return SimulatedIo::Create({.clock = &clock_,
                                .loop = &loop_,
                                .faults = &healthy_,
                                .sink = io.sink,
                                .bandwidth_bytes_per_second = RateOf(options_.file_per_slot),
                                .queue_depth = 2});
  }

  // One tensor for each chunk, of its size.
  absl::Status RegisterChunks() {
    chunk_of_.assign(trace_.block_slots.size(), -1);
    gradient_.assign(trace_.block_slots.size(), false);
    for (size_t c = 0; c < trace_.chunks.size(); ++c) {
      const TraceChunk& chunk = trace_.chunks[c];
      GANTRY_ASSIGN_OR_RETURN(
          const TensorId tensor,
          engine_->Register({.name = StrCat("chunk ", c),
                             .shape = {kElements},
                             .dtype = DType::kBF16,
                             .trainability = chunk.gradient < 0 ? Trainability::kFrozen
                                                                : Trainability::kTrainable},
                            {}));
      tensors_.push_back(tensor);
      chunk_of_[static_cast<size_t>(chunk.parameter)] = static_cast<int32_t>(c);
      if (chunk.gradient < 0) continue;
      chunk_of_[static_cast<size_t>(chunk.gradient)] = static_cast<int32_t>(c);
      gradient_[static_cast<size_t>(chunk.gradient)] = true;
    }
    return absl::OkStatus();
  }

  // Where each micro-batch's last contribution to a gradient is.
  void FindGradients() {
    std::map<std::pair<int32_t, int32_t>, int32_t> last;  // (chunk, micro-batch) -> moment
    for (size_t m = 0; m < trace_.moments.size(); ++m) {
      if (trace_.moments[m].phase == Phase::kOptimizer) continue;
      for (const BlockUse& use : trace_.uses_of(trace_.moments[m])) {
        const int32_t c = chunk_of_[static_cast<size_t>(use.block)];
        if (c < 0 || trace_.chunks[static_cast<size_t>(c)].gradient < 0) continue;
        last[{c, trace_.moments[m].micro_batch}] = static_cast<int32_t>(m);
      }
      micro_batches_ = std::max(micro_batches_, int64_t{trace_.moments[m].micro_batch} + 1);
    }
    ready_.resize(trace_.moments.size());
    for (const auto& [key, moment] : last) {
      ready_[static_cast<size_t>(moment)].push_back(key.first);
    }
  }

  // Where the passes of layers begin and end, and the slots that each moment needs beside them.
  void FindLayers() {
    layer_of_.assign(trace_.moments.size(), -1);
    workspace_.resize(trace_.moments.size());
    for (size_t m = 0; m < trace_.moments.size(); ++m) {
      workspace_[m] = trace_.moments[m].activation_slots;
    }
    for (const SavedActivation& activation : trace_.activations) {
      const Moment& created = trace_.moments[static_cast<size_t>(activation.created)];
      const Moment& used = trace_.moments[static_cast<size_t>(activation.used)];
      if (created.layer < 0 || created.layer != used.layer) continue;
      const auto number = static_cast<int32_t>(layers_.size());
      ReplayedLayer layer{.layer = created.layer, .slots = activation.slots};
      for (size_t m = 0; m < trace_.moments.size(); ++m) {
        const Moment& moment = trace_.moments[m];
        if (moment.layer != created.layer || moment.micro_batch != created.micro_batch) continue;
        layer_of_[m] = number;
        const auto at = static_cast<int32_t>(m);
        (moment.phase == Phase::kForward ? layer.forward : layer.backward).push_back(at);
      }
      for (int32_t m = layer.forward.front(); m <= layer.backward.back(); ++m) {
        workspace_[static_cast<size_t>(m)] -= activation.slots;
      }
      layers_.push_back(std::move(layer));
    }
    for (int64_t& slots : workspace_) slots = std::max<int64_t>(slots, 0);
  }

  absl::Status EnterLayer(int32_t m) {
    ReplayedLayer& layer = layers_[static_cast<size_t>(layer_of_[static_cast<size_t>(m)])];
    LayerActivations& activations = engine_->layer_activations();
    if (m == layer.forward.front()) {
      GANTRY_ASSIGN_OR_RETURN(layer.pass, activations.BeginLayer(layer.layer, *options_.saving));
      GANTRY_ASSIGN_OR_RETURN(layer.memory, engine_->arena().Allocate(layer.slots * kSlotBytes));
    }
    if (m != layer.backward.front()) return absl::OkStatus();
    GANTRY_RETURN_IF_ERROR(activations.BeginLayerBackward(layer.pass));
    if (layer.pass.saving != LayerSaving::kRecompute) return absl::OkStatus();
    GANTRY_ASSIGN_OR_RETURN(layer.memory, engine_->arena().Allocate(layer.slots * kSlotBytes));
    for (const int32_t again : layer.forward) {
      Moment moment = trace_.moments[static_cast<size_t>(again)];
      moment.phase = Phase::kBackward;
      const Nanoseconds time = TimeOf(static_cast<size_t>(again), step_);
      GANTRY_RETURN_IF_ERROR(RunMoment(moment, workspace_[static_cast<size_t>(m)], time));
      computed_ += time;
    }
    return absl::OkStatus();
  }

  absl::Status LeaveLayer(int32_t m) {
    ReplayedLayer& layer = layers_[static_cast<size_t>(layer_of_[static_cast<size_t>(m)])];
    LayerActivations& activations = engine_->layer_activations();
    if (m == layer.forward.back()) {
      if (layer.pass.saving == LayerSaving::kRecompute) layer.memory = ArenaBuffer();
      return activations.EndLayer(layer.pass, nullptr);
    }
    if (m != layer.backward.back()) return absl::OkStatus();
    layer.memory = ArenaBuffer();
    return activations.EndLayerBackward(layer.pass);
  }

  absl::Status Initialize() {
    const std::vector<std::byte> zeros(static_cast<size_t>(4 * kElements), std::byte{0});
    for (size_t c = 0; c < tensors_.size(); ++c) {
      GANTRY_RETURN_IF_ERROR(engine_->WriteState(StateKind::kParameter, tensors_[c], 0,
                                                 std::span(zeros).first(kSlotBytes)));
      if (trace_.chunks[c].gradient < 0) continue;
      for (const StateKind kind :
           {StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance}) {
        GANTRY_RETURN_IF_ERROR(engine_->WriteState(kind, tensors_[c], 0, zeros));
      }
    }
    return absl::OkStatus();
  }

  void Compute(Nanoseconds time) {
    bool done = false;
    loop_.Schedule(time, [&done] { done = true; });
    while (!done) GANTRY_CHECK(loop_.RunNext());
  }

  Nanoseconds TimeOf(size_t moment, int64_t step) const {
    const Nanoseconds time = trace_.moments[moment].compute;
    if (options_.noise == 0.0) return time;
    const Random random({.seed = options_.seed, .stream = static_cast<uint64_t>(step)});
    const double factor = 1.0 + options_.noise * (2.0 * random.Uniform(moment) - 1.0);
    return std::llround(static_cast<double>(time) * factor);
  }

  // Returns the time it computed.
  absl::StatusOr<Nanoseconds> Step(int64_t step) {
    const OptimizerStep hyper{.learning_rate = 1e-3,
                              .step = std::max<int64_t>(step, 1),
                              .max_gradient_norm = options_.wait_for_norm ? 1.0 : 0.0,
                              .non_finite = options_.wait_for_norm
                                                ? OptimizerStep::NonFinite::kSkipStep
                                                : OptimizerStep::NonFinite::kUpdateAnyway};
    GANTRY_RETURN_IF_ERROR(engine_->BeginStep(
        {.micro_batches = micro_batches_, .optimizer = hyper, .dry_layers = dry_layers_}));
    step_ = step;
    computed_ = 0;
    int32_t micro_batch = -1;
    for (size_t m = 0; m < trace_.moments.size(); ++m) {
      const Moment& moment = trace_.moments[m];
      if (moment.phase == Phase::kOptimizer) continue;
      if (moment.micro_batch != micro_batch) {
        GANTRY_RETURN_IF_ERROR(engine_->BeginMicroBatch());
        micro_batch = moment.micro_batch;
      }
      const Nanoseconds time = TimeOf(m, step);
      const bool in_layer = !layers_.empty() && layer_of_[m] >= 0;
      if (in_layer) GANTRY_RETURN_IF_ERROR(EnterLayer(static_cast<int32_t>(m)));
      GANTRY_RETURN_IF_ERROR(RunMoment(moment, layers_.empty() ? 0 : workspace_[m], time));
      if (in_layer) GANTRY_RETURN_IF_ERROR(LeaveLayer(static_cast<int32_t>(m)));
      computed_ += time;
      for (const int32_t c : ready_[m]) {
        engine_->GradientReady(tensors_[static_cast<size_t>(c)]);
      }
    }
    GANTRY_RETURN_IF_ERROR(engine_->EndStep().status());
    return computed_;
  }

  absl::Status RunMoment(const Moment& moment, int64_t workspace_slots, Nanoseconds time) {
    GANTRY_ASSIGN_OR_RETURN(const ArenaBuffer workspace,
                            engine_->arena().Allocate(workspace_slots * kSlotBytes));

    std::map<int32_t, ParameterAccess> accesses;  // by chunk
    for (const BlockUse& use : trace_.uses_of(moment)) {
      const int32_t c = chunk_of_[static_cast<size_t>(use.block)];
      if (c < 0) continue;
      const ParameterAccess access = gradient_[static_cast<size_t>(use.block)]
                                         ? ParameterAccess::kGradient
                                         : ParameterAccess::kRead;
      const auto [at, inserted] = accesses.insert({c, access});
      if (!inserted && at->second != access) at->second = ParameterAccess::kReadAndGradient;
    }
    std::vector<ParameterUse> uses;
    for (const auto& [c, access] : accesses) {
      uses.push_back({tensors_[static_cast<size_t>(c)], access});
    }
    if (uses.empty()) {
      if (!engine_->dry_run()) Compute(time);
      return absl::OkStatus();
    }
    GANTRY_ASSIGN_OR_RETURN(Lease lease, engine_->Acquire(uses, "moment", moment.phase));
    if (engine_->dry_run()) return absl::OkStatus();
    for (int i = 0; i < lease.size(); ++i) {
      if (lease[i].gradient == nullptr || lease[i].gradient_content != GradientContent::kEmpty) {
        continue;
      }
      std::memset(lease[i].gradient, 0, static_cast<size_t>(kSlotBytes));
    }
    Compute(time);
    return absl::OkStatus();
  }

  const ReplayOptions& options_;
  const Trace& trace_;
  VirtualClock clock_;
  EventLoop loop_;
  FaultPlan healthy_;
  MemoryLogger logger_;
  SpillFolders folders_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::vector<TensorId> tensors_;            // by chunk
  std::vector<int32_t> chunk_of_;            // by trace block
  std::vector<bool> gradient_;               // by trace block
  std::vector<std::vector<int32_t>> ready_;  // by moment: chunks
  int64_t micro_batches_ = 1;
  LayerSaving dry_layers_ = LayerSaving::kKeep;
  int64_t step_ = 0;
  Nanoseconds computed_ = 0;

  struct ReplayedLayer {
    int32_t layer;
    int64_t slots;
    std::vector<int32_t> forward = {};  // moments
    std::vector<int32_t> backward = {};
    LayerPass pass = {};
    ArenaBuffer memory = {};
  };
  std::vector<ReplayedLayer> layers_;
  std::vector<int32_t> layer_of_;   // by moment: into layers_; -1
  std::vector<int64_t> workspace_;  // by moment: slots of activations beside what layers save
};

}  // namespace

absl::StatusOr<ReplayResult> ReplayTrace(const ReplayOptions& options) {
  return Replay(options).Run();
}

}  // namespace gantry
