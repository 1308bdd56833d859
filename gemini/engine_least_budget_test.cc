// Under every policy, topology and tier mix the least budgets that the engine itself reports are
// enough: for initial values, training, evaluation and reading everything back, with the same bits.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "gemini/testing/toy_model.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;
constexpr int64_t kSlot = 2 * kChunk;
constexpr int64_t kAmple = 400 * kSlot;

struct Mix {
  std::string name;
  std::string policy;
  DeviceTopology topology = DeviceTopology::kDiscrete;
  bool files = true;
  StaticFractions fractions = {};
  DType dtype = DType::kBF16;
  int64_t micro_batches = 1;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  StateFormat format = StateFormat::kF32;
  int64_t rows = 0;
};

std::ostream& operator<<(std::ostream& out, const Mix& mix) { return out << mix.name; }

class EngineLeastBudgetTest : public ::testing::TestWithParam<Mix> {
 protected:
  void SetUp() override {
    auto team = ThreadTeam::Create({.threads = 2});
    ASSERT_THAT(team, IsOk());
    team_ = *std::move(team);
    auto device = CreateHostDevice({.topology = GetParam().topology, .clock = &clock_});
    ASSERT_THAT(device, IsOk());
    device_ = *std::move(device);
  }

  struct Result {
    uint64_t hash;
    BudgetReport report;
    EngineStatistics statistics;
  };
  absl::StatusOr<Result> Train(Bytes device_memory, Bytes host_memory) {
    const Mix& mix = GetParam();
    const DType gradient = mix.micro_batches > 1 ? DType::kF32 : DType::kBF16;
    GANTRY_ASSIGN_OR_RETURN(
        auto engine, Engine::Create({.device = device_.get(),
                                     .team = team_.get(),
                                     .clock = &clock_,
                                     .logger = &logger_,
                                     .files = &files_,
                                     .device_memory = device_memory,
                                     .host_memory = host_memory,
                                     .spill_directories =
                                         mix.files ? std::vector<std::string>{::testing::TempDir()}
                                                   : std::vector<std::string>(),
                                     .policy = mix.policy,
                                     .static_fractions = mix.fractions,
                                     .chunk_elements = kChunk,
                                     .gradient_dtype = gradient,
                                     .optimizer = mix.optimizer,
                                     .state_format = mix.format}));
    ToyModel model(
        engine.get(),
        {.layers = 4, .dtype = mix.dtype, .micro_batches = mix.micro_batches, .rows = mix.rows});
    GANTRY_RETURN_IF_ERROR(model.Register());
    GANTRY_RETURN_IF_ERROR(model.TrainStep(Hyper(1)).status());
    GANTRY_RETURN_IF_ERROR(engine->Seal());
    GANTRY_RETURN_IF_ERROR(model.Initialize());
    for (int64_t step = 1; step <= 3; ++step) {
      GANTRY_RETURN_IF_ERROR(model.TrainStep(Hyper(step)).status());
      GANTRY_RETURN_IF_ERROR(model.Evaluate());
    }
    // Tensors without a kind of state are passed over.
    for (const StateKind kind : {StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance}) {
      GANTRY_RETURN_IF_ERROR(model.Hash(kind).status());
    }
    GANTRY_ASSIGN_OR_RETURN(const uint64_t hash, model.Hash(StateKind::kParameter));
    return Result{hash, engine->budget_report(), engine->statistics()};
  }

  static OptimizerStep Hyper(int64_t step) {
    return {.kind = GetParam().optimizer,
            .learning_rate = 1e-2,
            .step = step,
            .max_gradient_norm = 1.0};
  }

  MonotonicClock clock_;
  MemoryLogger logger_;
  PosixFileCalls files_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
};

TEST_P(EngineLeastBudgetTest, IsEnough) {
  const auto ample = Train(Bytes(kAmple), Bytes(kAmple));
  ASSERT_THAT(ample, IsOk());
  // Policies that pin refuse a smaller device themselves. A policy may place differently on a
  // smaller machine, with other needs: grow until it settles.
  const bool pins = GetParam().policy == "device" || GetParam().policy == "static";
  Bytes device = pins ? Bytes(kAmple) : ample->report.least_device;
  Bytes host = ample->report.least_host;
  for (int attempt = 0; attempt < 8; ++attempt) {
    const auto least = Train(device, host);
    const std::string error = least.status().ToString();
    if (error.find("budget that works") != std::string::npos ||
        error.find("policy '") != std::string::npos) {
      // Refused before training, as it should be.
      device = device + Bytes(kSlot);
      host = host + Bytes(kSlot);
      continue;
    }
    ASSERT_THAT(least, IsOk());
    EXPECT_EQ(least->hash, ample->hash);
    EXPECT_LE(least->statistics.device.slots_peak * kSlot, device.count());
    return;
  }
  FAIL() << "refused with " << device << " and " << host;
}

std::vector<Mix> Mixes() {
  using enum DeviceTopology;
  const StaticFractions half{.offload_parameters = 0.5, .offload_optimizer = 0.5};
  const StaticFractions half_spilled{
      .offload_parameters = 0.5, .offload_optimizer = 0.5, .spill_optimizer = 0.5};
  return {
      {.name = "auto_files", .policy = "auto"},
      {.name = "auto", .policy = "auto", .files = false},
      {.name = "auto_unified_files", .policy = "auto", .topology = kUnified},
      {.name = "auto_unified", .policy = "auto", .topology = kUnified, .files = false},
      {.name = "lru_files", .policy = "lru"},
      {.name = "cpu", .policy = "cpu", .files = false},
      {.name = "cpu_files", .policy = "cpu"},
      {.name = "device", .policy = "device", .files = false},
      {.name = "device_files", .policy = "device"},
      {.name = "static_half", .policy = "static", .files = false, .fractions = half},
      {.name = "static_half_files", .policy = "static", .fractions = half_spilled},
      {.name = "static_device_updates",
       .policy = "static",
       .fractions = {.offload_parameters = 1.0, .offload_optimizer = 0.0}},
      {.name = "f32_files", .policy = "auto", .dtype = DType::kF32},
      {.name = "f32_device", .policy = "device", .files = false, .dtype = DType::kF32},
      {.name = "accumulation_files", .policy = "auto", .micro_batches = 2},
      {.name = "accumulation_static",
       .policy = "static",
       .files = false,
       .fractions = half,
       .micro_batches = 2},
  };
}

// All but the f32 states of AdamW.
std::vector<Mix> FormatMixes() {
  using enum DeviceTopology;
  struct Make {
    OptimizerKind optimizer;
    StateFormat format;
  };
  std::vector<Mix> mixes;
  for (const Make& make : {Make{OptimizerKind::kAdamW, StateFormat::kSplitMaster},
                           Make{OptimizerKind::kAdamW, StateFormat::kEightBit},
                           Make{OptimizerKind::kLion, StateFormat::kF32},
                           Make{OptimizerKind::kSgd, StateFormat::kEightBit},
                           Make{OptimizerKind::kAdafactor, StateFormat::kF32}}) {
    const std::string name = StrCat(Name(make.optimizer), "_", Name(make.format));
    const auto add = [&](std::string_view what, Mix mix) {
      mix.name = StrCat(name, "_", what);
      mix.optimizer = make.optimizer;
      mix.format = make.format;
      if (make.optimizer == OptimizerKind::kAdafactor) mix.rows = 3;
      mixes.push_back(std::move(mix));
    };
    add("host_files", {.name = "", .policy = "auto"});
    add("host", {.name = "", .policy = "cpu", .files = false});
    add("unified", {.name = "", .policy = "auto", .topology = kUnified});
    add("device", {.name = "", .policy = "device"});
    add("static", {.name = "",
                   .policy = "static",
                   .fractions = {.offload_parameters = 1.0, .offload_optimizer = 0.0}});
    add("f32", {.name = "", .policy = "auto", .dtype = DType::kF32});
  }
  return mixes;
}

INSTANTIATE_TEST_SUITE_P(Mixes, EngineLeastBudgetTest, ::testing::ValuesIn(Mixes()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Formats, EngineLeastBudgetTest, ::testing::ValuesIn(FormatMixes()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gantry
