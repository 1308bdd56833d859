// Design D4 for the order in which micro-batches go through the layers: losses, gradient norms,
// parameters and checkpoints are the same bytes in both orders, for random models, budgets,
// policies and tiers; a run may change its order when it resumes; and the order that needs fewer
// moves is chosen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"
#include "device/device.h"
#include "gemini/engine.h"
#include "offload/transfer_engine.h"
#include "trainer/booster/gemini_plugin.h"
#include "trainer/booster/metrics.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/run_data.h"
#include "trainer/booster/testing/tiny_run.h"
#include "trainer/booster/trainer.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_({.seed = seed, .stream = 0}) {}
  int64_t Below(int64_t bound) { return random_.Below(bound, next_++); }
  bool OneIn(int64_t n) { return Below(n) == 0; }

 private:
  Random random_;
  uint64_t next_ = 0;
};

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::string hash;
  std::string checkpoint;  // all bytes of the last one

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// What a run shows beside its numbers.
struct Report {
  AccumulationOrder order;
  EngineStatistics statistics;
  BudgetReport budgets;
  std::vector<std::string> messages;
};

class AccumulationOrderTest : public ::testing::Test {
 protected:
  AccumulationOrderTest() : directory_(::testing::TempDir() + "accumulation_order_test") {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }

  std::string NewFolder() { return StrCat(directory_, "/run", folders_++); }

  std::string Read(const std::string& path) {
    auto text = ReadFileToString(files_, path, Bytes(64 << 20));
    GANTRY_CHECK_OK(text.status());
    return *std::move(text);
  }

  std::unique_ptr<RunData> Data(const RunConfig& config) {
    auto data = RunData::Open(files_, config, nullptr);
    GANTRY_CHECK_OK(data.status());
    return *std::move(data);
  }

  absl::StatusOr<Outcome> RunOver(Trainer::Options options, Report* report) {
    RecordingObserver observer;
    options.observer = &observer;
    Engine* const engine = options.engine;
    GANTRY_ASSIGN_OR_RETURN(auto trainer, Trainer::Create(std::move(options)));
    GANTRY_ASSIGN_OR_RETURN(const TrainingSummary summary, trainer->Run());
    Outcome outcome;
    outcome.losses = observer.losses();
    outcome.hash = summary.parameter_hash;
    for (const StepMetrics& step : observer.steps) outcome.norms.push_back(step.gradient_norm);
    if (!summary.checkpoint.empty()) {
      outcome.checkpoint =
          Read(summary.checkpoint + "/manifest.json") + Read(summary.checkpoint + "/state.bin");
    }
    if (report != nullptr) {
      report->order = trainer->accumulation_order();
      if (engine != nullptr) {
        report->statistics = engine->statistics();
        report->budgets = engine->budget_report();
      }
    }
    return outcome;
  }

  // On the in-memory store.
  absl::StatusOr<Outcome> Plain(const RunConfig& config, Report* report = nullptr) {
    TinyMachine machine(config);
    const std::unique_ptr<RunData> data = Data(config);
    return RunOver({.config = &config,
                    .training = &data->training(),
                    .validation = data->validation(),
                    .context = machine.context(),
                    .clock = &machine.clock(),
                    .logger = &machine.logger(),
                    .files = &files_,
                    .settings = {}},
                   report);
  }

  // On the engine, within config.memory.
  absl::StatusOr<Outcome> OnEngine(const RunConfig& config, Report* report = nullptr) {
    MonotonicClock clock;
    MemoryLogger logger;
    GANTRY_ASSIGN_OR_RETURN(const auto plugin,
                            GeminiPlugin::Create({.memory = &config.memory,
                                                  .threads = 1,
                                                  .compute_dtype = config.model.parameter_dtype,
                                                  .gradient_dtype = GradientDTypeOf(config),
                                                  .optimizer = config.optimizer.kind,
                                                  .state_format = config.optimizer.state_format,
                                                  .clock = &clock,
                                                  .logger = &logger,
                                                  .files = &files_}));
    const std::unique_ptr<RunData> data = Data(config);
    auto outcome = RunOver({.config = &config,
                            .training = &data->training(),
                            .validation = data->validation(),
                            .context = plugin->context(),
                            .engine = &plugin->engine(),
                            .clock = &clock,
                            .logger = &logger,
                            .files = &files_,
                            .settings = {}},
                           report);
    if (report != nullptr) report->messages = logger.messages();
    return outcome;
  }

  RunConfig RandomConfig(Dice& dice);
  void GiveRandomMemory(Dice& dice, RunConfig& config);
  void ExpectSameInBothOrders(uint64_t seed);

  PosixFileCalls files_;
  std::string directory_;
  int64_t folders_ = 0;
};

RunConfig AccumulationOrderTest::RandomConfig(Dice& dice) {
  RunConfig config = TinyConfig(directory_);
  config.model.layers = 1 + dice.Below(4);
  config.model.width = 32 * (1 + dice.Below(3));
  config.model.heads = 4;
  config.model.kv_heads = 1 << dice.Below(3);
  config.model.head_dim = 8;
  config.model.ffn_width = 16 * (2 + dice.Below(12));
  config.model.recompute = static_cast<Recompute>(dice.Below(4));
  config.model.parameter_dtype = dice.OneIn(3) ? DType::kF32 : DType::kBF16;
  config.data.sequence_length = 3 + dice.Below(30);
  config.data.batch_size = 1 + dice.Below(3);
  config.optimizer.kind = static_cast<OptimizerKind>(dice.Below(5));
  config.optimizer.state_format = static_cast<StateFormat>(dice.Below(3));
  if (!CheckSupported(config.optimizer.kind, config.optimizer.state_format).ok()) {
    config.optimizer.state_format = StateFormat::kF32;
  }
  config.optimizer.max_gradient_norm = dice.OneIn(3) ? 0.0 : 0.5;
  config.train.steps = 5;
  config.train.eval_every = dice.OneIn(2) ? 2 : 0;
  config.train.eval_batches = 2;
  return config;
}

// Between the least that the order needs and a little more; now and then plenty.
void AccumulationOrderTest::GiveRandomMemory(Dice& dice, RunConfig& config) {
  constexpr std::array<const char*, 4> kPolicies = {"planned", "planned", "auto", "lru"};
  MemoryConfig& memory = config.memory;
  memory = {.device = dice.OneIn(3) ? DeviceTopology::kUnified : DeviceTopology::kDiscrete,
            .device_memory = 256_MiB,
            .host_memory = 256_MiB,
            .spill_dirs = {directory_},
            .spill_shares = {1.0},
            .policy = kPolicies[static_cast<size_t>(dice.Below(4))],
            .look_ahead = dice.Below(6),
            .chunk_elements = kChunkGranularityElements * (1 + dice.Below(2))};
  RunConfig ample = config;
  ample.train.steps = 1;
  ample.train.checkpoint_dir.clear();
  Report report;
  ASSERT_THAT(OnEngine(ample, &report), IsOk());
  if (dice.OneIn(6)) return;
  const Bytes slot = Bytes(2 * memory.chunk_elements);
  memory.device_memory = report.budgets.least_device + slot * dice.Below(24);
  memory.host_memory = report.budgets.least_host + slot * dice.Below(48);
}

void AccumulationOrderTest::ExpectSameInBothOrders(uint64_t seed) {
  Dice dice(seed);
  RunConfig config = RandomConfig(dice);
  for (int64_t micro_batches = 1; micro_batches <= 5; ++micro_batches) {
    SCOPED_TRACE(StrCat(micro_batches, " micro-batches"));
    config.data.accumulation = micro_batches;
    config.train.accumulation_order = AccumulationOrder::kMicroBatch;
    config.train.checkpoint_dir = NewFolder();
    const auto expected = Plain(config);
    ASSERT_THAT(expected, IsOk());
    config.train.accumulation_order = AccumulationOrder::kLayer;
    config.train.checkpoint_dir = NewFolder();
    const auto plain = Plain(config);
    ASSERT_THAT(plain, IsOk());
    EXPECT_EQ(*plain, *expected);
    for (const AccumulationOrder order :
         {AccumulationOrder::kMicroBatch, AccumulationOrder::kLayer, AccumulationOrder::kAuto}) {
      config.train.accumulation_order = order;
      config.train.checkpoint_dir.clear();
      GiveRandomMemory(dice, config);
      config.train.checkpoint_dir = NewFolder();
      Report report;
      const auto actual = OnEngine(config, &report);
      ASSERT_THAT(actual, IsOk());
      EXPECT_EQ(*actual, *expected)
          << static_cast<int>(order) << " " << config.memory.policy << " "
          << config.memory.device_memory.ToString() << " " << config.memory.host_memory.ToString();
      EXPECT_EQ(report.statistics.leases_off_plan, 0);
      EXPECT_LE(report.statistics.device.slot_bytes * report.statistics.device.slots_peak,
                config.memory.device_memory);
      if (micro_batches == 1) {
        EXPECT_EQ(report.order, AccumulationOrder::kMicroBatch);
      } else if (order != AccumulationOrder::kAuto) {
        EXPECT_EQ(report.order, order);
      }
      std::filesystem::remove_all(config.train.checkpoint_dir);
    }
  }
}

TEST_F(AccumulationOrderTest, RandomRunsGiveTheSameBits) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    ExpectSameInBothOrders(seed);
  }
}

// Six layers, of which the device holds about two, four micro-batches.
RunConfig TightConfig(const std::string& directory) {
  RunConfig config = TinyConfig(directory);
  config.model.layers = 6;
  config.model.width = 128;
  config.model.heads = 4;
  config.model.head_dim = 32;
  config.model.ffn_width = 256;
  config.model.recompute = Recompute::kLayer;
  config.data.batch_size = 2;
  config.data.accumulation = 4;
  config.memory = {.device = DeviceTopology::kDiscrete,
                   .device_memory = 1600_KiB,
                   .host_memory = 64_MiB,
                   .chunk_elements = kChunkGranularityElements};
  config.train.steps = 8;
  return config;
}

TEST_F(AccumulationOrderTest, LayerByLayerMovesLessWithinTheSameBudget) {
  RunConfig config = TightConfig(directory_);
  std::vector<Report> reports;
  for (const AccumulationOrder order :
       {AccumulationOrder::kMicroBatch, AccumulationOrder::kLayer, AccumulationOrder::kAuto}) {
    config.train.accumulation_order = order;
    ASSERT_THAT(OnEngine(config, &reports.emplace_back()), IsOk());
  }
  const auto fetched = [&](size_t i) {
    return reports[i].statistics.lanes[static_cast<size_t>(TransferLane::kHostToDevice)].bytes;
  };
  EXPECT_GT(fetched(0), 2 * fetched(1));
  EXPECT_EQ(reports[0].order, AccumulationOrder::kMicroBatch);
  EXPECT_EQ(reports[1].order, AccumulationOrder::kLayer);
  EXPECT_EQ(reports[2].order, AccumulationOrder::kLayer);
  // What is saved of all micro-batches is there at once.
  EXPECT_GT(reports[1].budgets.activations_max, reports[0].budgets.activations_max);
}

TEST_F(AccumulationOrderTest, WhereNothingMovesOneByOneIsChosen) {
  RunConfig config = TightConfig(directory_);
  config.memory.device_memory = 64_MiB;
  config.memory.device = DeviceTopology::kUnified;
  config.train.steps = 1;
  Report report;
  ASSERT_THAT(OnEngine(config, &report), IsOk());
  EXPECT_EQ(report.order, AccumulationOrder::kMicroBatch);
}

// Sixteen micro-batches' saved inputs are more than the device has; one by one fits.
TEST_F(AccumulationOrderTest, WhatDoesNotFitIsNotChosen) {
  RunConfig config = TightConfig(directory_);
  config.data.accumulation = 16;
  config.data.batch_size = 4;
  config.train.steps = 1;
  config.train.accumulation_order = AccumulationOrder::kLayer;
  EXPECT_THAT(OnEngine(config), StatusIs(absl::StatusCode::kResourceExhausted));
  config.train.accumulation_order = AccumulationOrder::kAuto;
  Report report;
  ASSERT_THAT(OnEngine(config, &report), IsOk());
  EXPECT_EQ(report.order, AccumulationOrder::kMicroBatch);
}

// The head's parts of a tied gradient would be summed before the embedding's.
TEST_F(AccumulationOrderTest, TiedHeadsGoOneByOne) {
  RunConfig config = TightConfig(directory_);
  config.model.tie_embeddings = true;
  config.train.steps = 1;
  Report report;
  ASSERT_THAT(OnEngine(config, &report), IsOk());
  EXPECT_EQ(report.order, AccumulationOrder::kMicroBatch);
  config.train.accumulation_order = AccumulationOrder::kLayer;
  EXPECT_THAT(OnEngine(config), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("train.accumulation_order is layer")));
}

TEST_F(AccumulationOrderTest, ARunMayChangeItsOrderWhenItResumes) {
  RunConfig config = TightConfig(directory_);
  config.train.checkpoint_dir = NewFolder();
  const auto whole = Plain(config);
  ASSERT_THAT(whole, IsOk());
  config.train.checkpoint_dir = NewFolder();
  Outcome pieces;
  for (const auto& [steps, order] :
       {std::pair(3, AccumulationOrder::kLayer), std::pair(5, AccumulationOrder::kMicroBatch),
        std::pair(8, AccumulationOrder::kAuto)}) {
    config.train.steps = steps;
    config.train.accumulation_order = order;
    Report report;
    const auto piece = OnEngine(config, &report);
    ASSERT_THAT(piece, IsOk());
    EXPECT_THAT(report.messages, IsEmpty());
    pieces.losses.insert(pieces.losses.end(), piece->losses.begin(), piece->losses.end());
    pieces.norms.insert(pieces.norms.end(), piece->norms.begin(), piece->norms.end());
    pieces.hash = piece->hash;
    pieces.checkpoint = piece->checkpoint;
  }
  EXPECT_EQ(pieces, *whole);
}

}  // namespace
}  // namespace gantry
