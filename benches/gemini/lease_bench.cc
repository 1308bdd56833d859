// What one lease costs under the policy `planned`, Acquire and release; items are leases. Resident:
// nothing moves; the aim is under 1 microsecond (design: engine overhead per operator stays
// invisible beside any kernel). OfPlan: a plan is followed while parameters come up.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/strings.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"

namespace gantry {
namespace {

constexpr int64_t kTensors = 64;
constexpr int64_t kElements = 100'000;

// An engine under the policy `planned` whose budget holds all that a training step uses. On a
// unified device nothing moves then; on a discrete one gradients still go down to the updates and
// new parameters come up, between the leases that are timed here.
class ResidentEngine {
 public:
  explicit ResidentEngine(DeviceTopology topology) {
    auto team = ThreadTeam::Create({.threads = 1});
    GANTRY_CHECK_OK(team.status());
    team_ = *std::move(team);
    auto device = CreateHostDevice({.topology = topology, .clock = &clock_});
    GANTRY_CHECK_OK(device.status());
    device_ = *std::move(device);
    auto engine = Engine::Create({.device = device_.get(),
                                  .team = team_.get(),
                                  .clock = &clock_,
                                  .logger = &logger_,
                                  .files = &files_,
                                  .device_memory = 512_MiB,
                                  .host_memory = 512_MiB,
                                  .static_fractions = {},
                                  .chunk_elements = 1 << 17});
    GANTRY_CHECK_OK(engine.status());
    engine_ = *std::move(engine);
    for (int64_t i = 0; i < kTensors; ++i) {
      auto tensor = engine_->Register(
          {.name = StrCat("t", i), .shape = {kElements}, .dtype = DType::kBF16}, {});
      GANTRY_CHECK_OK(tensor.status());
      tensors_.push_back(*tensor);
    }
    Step();  // dry
    GANTRY_CHECK_OK(engine_->Seal());
    while (!engine_->movement_report("train").planned) Step();
    Step();
    Step();
  }

  // The forward pass of a step: calls `lease` for each operator.
  template <typename LeaseTensor>
  void Forward(const LeaseTensor& lease) {
    for (const TensorId tensor : tensors_) lease(ParameterUse{tensor, ParameterAccess::kRead});
  }
  void Begin() {
    GANTRY_CHECK_OK(engine_->Drain());
    GANTRY_CHECK_OK(engine_->BeginStep({.optimizer = OptimizerStep{.learning_rate = 0.01}}));
    GANTRY_CHECK_OK(engine_->BeginMicroBatch());
  }
  void Finish() {
    for (size_t i = tensors_.size(); i-- > 0;) {
      const ParameterUse use{tensors_[i], ParameterAccess::kReadAndGradient};
      {
        auto lease = engine_->Acquire({&use, 1}, "backward", Phase::kBackward);
        GANTRY_CHECK_OK(lease.status());
        if (!engine_->dry_run()) std::memset((*lease)[0].gradient, 0, 2 * kElements);
      }
      engine_->GradientReady(tensors_[i]);
    }
    GANTRY_CHECK_OK(engine_->EndStep().status());
  }
  Engine& engine() { return *engine_; }

 private:
  void Step() {
    if (engine_->dry_run()) {
      GANTRY_CHECK_OK(engine_->BeginStep({.optimizer = OptimizerStep{.learning_rate = 0.01}}));
      GANTRY_CHECK_OK(engine_->BeginMicroBatch());
    } else {
      Begin();
    }
    Forward([this](const ParameterUse& use) {
      GANTRY_CHECK_OK(engine_->Acquire({&use, 1}, "forward", Phase::kForward).status());
    });
    Finish();
  }

  MonotonicClock clock_;
  StderrLogger logger_{LogLevel::kWarning};
  PosixFileCalls files_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::vector<TensorId> tensors_;
};

void LeaseForward(benchmark::State& state, DeviceTopology topology) {
  ResidentEngine resident(topology);
  for (auto _ : state) {
    state.PauseTiming();
    resident.Begin();
    state.ResumeTiming();
    resident.Forward([&](const ParameterUse& use) {
      auto lease = resident.engine().Acquire({&use, 1}, "forward", Phase::kForward);
      benchmark::DoNotOptimize(lease);
    });
    state.PauseTiming();
    resident.Finish();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * kTensors);
}
void BM_LeaseResident(benchmark::State& state) { LeaseForward(state, DeviceTopology::kUnified); }
void BM_LeaseOfPlan(benchmark::State& state) { LeaseForward(state, DeviceTopology::kDiscrete); }
BENCHMARK(BM_LeaseResident)->Iterations(200);
BENCHMARK(BM_LeaseOfPlan)->Iterations(200);

}  // namespace
}  // namespace gantry

BENCHMARK_MAIN();
