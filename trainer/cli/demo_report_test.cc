#include "trainer/cli/demo_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "gemini/engine.h"
#include "offload/transfer_engine.h"
#include "trainer/booster/run_config.h"
#include "trainer/cli/demo_settings.h"

namespace gantry {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

DemoResult Example() {
  DemoResult result;
  result.parameters = 100;
  result.budgeted.losses = {5.5, 4.25};
  result.budgeted.parameter_hash = "ab";
  result.resident = result.budgeted;
  result.budgeted.tokens_per_second = 300.0;
  result.resident.tokens_per_second = 400.0;
  result.budgeted.stall_seconds = 1.5;
  result.budgeted.budget.model_state = 1600_B;
  EngineStatistics& statistics = result.budgeted.statistics;
  statistics.device = {.slot_bytes = 2_MiB,
                       .slots_total = 64,
                       .slots_used = 1,
                       .slots_peak = 60,
                       .used_by_tag = {},
                       .peak_by_tag = {}};
  statistics.host = statistics.device;
  statistics.host.slots_total = 256;
  statistics.lanes[static_cast<size_t>(TransferLane::kFileRead)].bytes = 7;
  statistics.lanes[static_cast<size_t>(TransferLane::kFileWrite)].bytes = 9;
  statistics.stripes.push_back({.directory = "/spill",
                                .share = 1.0,
                                .direct_io = true,
                                .preallocated = true,
                                .backend = "io_uring",
                                .ring_flags = "none",
                                .fixed_memory = false,
                                .io = {},
                                .file_bytes = 1_GiB});
  result.resident.statistics.device = statistics.device;
  result.resident.statistics.host = statistics.device;
  result.sample = "The \x01 end";
  return result;
}

TEST(DemoReport, TheSummaryHasExactlyItsKeys) {
  const auto json = nlohmann::ordered_json::parse(DemoJson(Example()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(
      keys,
      ElementsAreArray({"model_parameters", "model_state_bytes", "device_budget_bytes",
                        "device_peak_bytes", "host_budget_bytes", "host_peak_bytes",
                        "nvme_read_bytes", "nvme_written_bytes", "steps", "loss_first", "loss_last",
                        "tokens_per_second", "resident_tokens_per_second", "practicality",
                        "bitwise_equal", "stall_seconds", "io_backend", "left_behind"}));
  EXPECT_EQ(json["model_parameters"], 100);
  EXPECT_EQ(json["model_state_bytes"], 1600);
  EXPECT_EQ(json["device_budget_bytes"], 128 << 20);
  EXPECT_EQ(json["device_peak_bytes"], 120 << 20);
  EXPECT_EQ(json["host_budget_bytes"], 512 << 20);
  EXPECT_EQ(json["nvme_read_bytes"], 7);
  EXPECT_EQ(json["nvme_written_bytes"], 9);
  EXPECT_EQ(json["steps"], 2);
  EXPECT_EQ(json["loss_first"], 5.5);
  EXPECT_EQ(json["loss_last"], 4.25);
  EXPECT_EQ(json["practicality"], 0.75);
  EXPECT_EQ(json["bitwise_equal"], true);
  EXPECT_EQ(json["stall_seconds"], 1.5);
  EXPECT_EQ(json["io_backend"], "io_uring");
}

TEST(DemoReport, EqualMeansEveryLossAndTheHash) {
  EXPECT_TRUE(Example().bitwise_equal());
  DemoResult result = Example();
  result.resident.losses[0] = 5.500000000000001;
  EXPECT_FALSE(result.bitwise_equal());
  result = Example();
  result.resident.losses.pop_back();
  EXPECT_FALSE(result.bitwise_equal());
  result = Example();
  result.resident.parameter_hash = "ac";
  EXPECT_FALSE(result.bitwise_equal());
  EXPECT_THAT(DemoTable(result), HasSubstr("DIFFERENT"));
  result = Example();
  result.resident.losses[0] = 0.0;
  result.budgeted.losses[0] = -0.0;
  EXPECT_FALSE(result.bitwise_equal());
}

TEST(DemoReport, TheTableShowsBothRuns) {
  const std::string table = DemoTable(Example());
  for (const char* text :
       {"120.0 MiB of 128.0 MiB", "120.0 MiB of 512.0 MiB", "7 B / 9 B", "5.5000 -> 4.2500",
        "speed under the budget: 75% of all resident", "the same to the bit", "The . end"}) {
    EXPECT_THAT(table, HasSubstr(text));
  }
}

TEST(DemoSettings, AreAValidConfigWithTheBudgetsOfTheIssue) {
  for (const DemoLength length : {DemoLength::kFull, DemoLength::kQuick}) {
    RunConfig config = DemoSettings::Make(length).config;
    config.data.files = {"text"};
    EXPECT_TRUE(ValidateTraining(config).ok()) << ValidateTraining(config);
    EXPECT_EQ(config.memory.device_memory, 128_MiB);
    EXPECT_EQ(config.memory.host_memory, 512_MiB);
    EXPECT_EQ(config.model.layers, 14);
    EXPECT_EQ(config.model.width, 768);
  }
}

}  // namespace
}  // namespace gantry
