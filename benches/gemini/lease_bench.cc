// What one lease of a resident parameter costs: Acquire and release, nothing to move. The aim is
// under 200 ns (design: engine overhead per operator stays invisible beside any kernel).
#include <benchmark/benchmark.h>

#include <cstdint>
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

struct ResidentEngine {
  MonotonicClock clock;
  StderrLogger logger{LogLevel::kWarning};
  PosixFileCalls files;
  std::unique_ptr<ThreadTeam> team;
  std::unique_ptr<Device> device;
  std::unique_ptr<Engine> engine;
  std::vector<TensorId> tensors;

  void Step() {
    GANTRY_CHECK_OK(engine->BeginStep({.trace_key = "bench"}));
    GANTRY_CHECK_OK(engine->BeginMicroBatch());
  }
};

// An engine whose parameters are all on the device and whose step is planned.
std::unique_ptr<ResidentEngine> MakeResident() {
  auto r = std::make_unique<ResidentEngine>();
  auto team = ThreadTeam::Create({.threads = 1});
  GANTRY_CHECK_OK(team.status());
  r->team = *std::move(team);
  auto device = CreateHostDevice({.topology = DeviceTopology::kUnified, .clock = &r->clock});
  GANTRY_CHECK_OK(device.status());
  r->device = *std::move(device);
  auto engine = Engine::Create({.device = r->device.get(),
                                .team = r->team.get(),
                                .clock = &r->clock,
                                .logger = &r->logger,
                                .files = &r->files,
                                .device_memory = 512_MiB,
                                .policy = "device",
                                .chunk_elements = 1 << 20});
  GANTRY_CHECK_OK(engine.status());
  r->engine = *std::move(engine);
  for (int64_t i = 0; i < kTensors; ++i) {
    auto tensor = r->engine->Register(
        {.name = StrCat("t", i), .shape = {kElements}, .dtype = DType::kBF16}, {});
    GANTRY_CHECK_OK(tensor.status());
    r->tensors.push_back(*tensor);
  }
  GANTRY_CHECK_OK(r->engine->Seal());
  for (int round = 0; round < 3; ++round) {
    r->Step();
    for (const TensorId tensor : r->tensors) {
      const ParameterUse use{tensor, ParameterAccess::kRead};
      GANTRY_CHECK_OK(r->engine->Acquire({&use, 1}, "warm-up", Phase::kForward).status());
    }
    GANTRY_CHECK_OK(r->engine->EndStep().status());
  }
  return r;
}

void BM_LeaseResident(benchmark::State& state) {
  const auto tensors = static_cast<size_t>(state.range(0));
  auto r = MakeResident();
  r->Step();
  std::vector<ParameterUse> uses;
  size_t next = 0;
  for (auto _ : state) {
    uses.clear();
    for (size_t i = 0; i < tensors; ++i) {
      uses.push_back({r->tensors[(next + i) % kTensors], ParameterAccess::kRead});
    }
    next = (next + 1) % kTensors;
    auto lease = r->engine->Acquire(uses, "bench", Phase::kForward);
    benchmark::DoNotOptimize(lease);
  }
  GANTRY_CHECK_OK(r->engine->EndStep().status());
}
BENCHMARK(BM_LeaseResident)->Arg(1)->Arg(3);

}  // namespace
}  // namespace gantry

BENCHMARK_MAIN();
