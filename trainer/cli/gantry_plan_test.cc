// `gantry plan` from the outside: what it says must be consistent with itself and with what changes
// when a machine or a step changes; and wrong inputs are one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/strings.h"
#include "trainer/cli/testing/program.h"
#include "trainer/cli/testing/program_folder.h"

namespace gantry {
namespace {

using Json = nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kModel[] = R"({"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8,
  "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 2816,
  "vocab_size": 8192})";

Json Plan(const ProgramFolder& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"plan", "--json"});
  const ProgramResult result = folder.Run(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
  Json json = Json::parse(result.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << result.out;
  return json;
}

double StepOf(const Json& plan) { return plan["step"]["seconds"]; }

TEST(GantryPlan, AddsUp) {
  const ProgramFolder folder("plan_adds_up");
  folder.Write("config.json", kModel);
  const Json plan =
      Plan(folder, {"--model=.", "--machine=rtx4090+2xgen4", "--seq=512", "--batch=2",
                    "--micro-batches=3", "--device-memory=600MiB", "--host-memory=1GiB"});
  EXPECT_EQ(plan["model"]["family"], "llama");
  EXPECT_EQ(plan["step"]["tokens"], 3072);
  EXPECT_NEAR(plan["step"]["tokens_per_second"].get<double>() * StepOf(plan), 3072, 1e-6);
  for (const char* tier : {"device", "host", "files"}) {
    int64_t sum = 0;
    for (const char* kind : {"parameters", "gradients", "states", "activations", "buffers"}) {
      sum += plan["memory"][tier][kind].get<int64_t>();
    }
    EXPECT_EQ(plan["memory"][tier]["total"], sum) << tier;
  }
  EXPECT_LE(plan["memory"]["device"]["total"].get<int64_t>(), 600 << 20);
  EXPECT_LE(plan["memory"]["host"]["total"].get<int64_t>(), 1 << 30);
  EXPECT_GT(plan["memory"]["files"]["states"].get<int64_t>(), 0);
  EXPECT_GE(plan["bound"]["ratio"].get<double>(), 0.999);
  EXPECT_LE(plan["step"]["seconds_low"].get<double>(), StepOf(plan) * 1.001);
  EXPECT_GE(plan["step"]["seconds_high"].get<double>(), StepOf(plan) * 0.999);
  double stalls = 0.0;
  for (const auto& [name, seconds] : plan["step"]["stalls"].items()) {
    stalls += seconds.get<double>();
  }
  EXPECT_NEAR(plan["step"]["compute_seconds"].get<double>() + stalls, StepOf(plan),
              0.01 * StepOf(plan));
  // What the drives are written in a day, at 600 TB a drive.
  const double day = plan["wear"]["bytes_written_per_day"];
  EXPECT_GT(day, 0.0);
  EXPECT_EQ(plan["wear"]["drives"], 2);
  EXPECT_NEAR(plan["wear"]["days"].get<double>(), 1200e12 / day, 1e-3);
  // The best first.
  const Json& upgrades = plan["upgrades"];
  ASSERT_EQ(upgrades.size(), 4);
  for (size_t i = 1; i < upgrades.size(); ++i) {
    if (upgrades[i]["seconds"].is_null()) continue;
    EXPECT_LE(upgrades[i - 1]["seconds"].get<double>(), upgrades[i]["seconds"].get<double>());
  }
  EXPECT_THAT(plan["assumptions"].dump(), HasSubstr("FLOP/s"));
}

TEST(GantryPlan, TheLeastBudgetsRunAndLessDoesNot) {
  const ProgramFolder folder("plan_least");
  folder.Write("config.json", kModel);
  const std::vector<std::string> common = {"--model=config.json", "--machine=rtx4090+gen4",
                                           "--recompute=full"};
  const Json plan = Plan(folder, common);
  const auto with = [&](int64_t device, int64_t host) {
    std::vector<std::string> arguments = common;
    arguments.push_back(StrCat("--device-memory=", device));
    arguments.push_back(StrCat("--host-memory=", host));
    return arguments;
  };
  const int64_t device = plan["least"]["device"];
  const int64_t host = plan["least"]["host_with_files"];
  Plan(folder, with(device, host));
  for (const std::vector<std::string>& less : {with(device - 1, host), with(device, host - 1)}) {
    std::vector<std::string> arguments = {"plan"};
    arguments.insert(arguments.end(), less.begin(), less.end());
    const ProgramResult result = folder.Run(arguments);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("'config.json' does not fit 'rtx4090+gen4': "));
    EXPECT_THAT(result.err, HasSubstr("The least that does: "));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST(GantryPlan, MoreOfAnythingIsNoSlower) {
  const ProgramFolder folder("plan_more");
  folder.Write("config.json", kModel);
  const std::vector<std::string> common = {"--model=config.json", "--device-memory=500MiB",
                                           "--host-memory=600MiB"};
  const auto step = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = common;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return StepOf(Plan(folder, arguments));
  };
  const double base = step({"--machine=rtx4090+gen4"});
  EXPECT_LE(step({"--machine=rtx4090+gen4", "--device-memory=4GiB"}), base * 1.001);
  EXPECT_LE(step({"--machine=rtx4090+gen4", "--host-memory=4GiB"}), base * 1.001);
  EXPECT_LE(step({"--machine=rtx4090+4xgen4"}), base * 1.001);
  EXPECT_GE(step({"--machine=rtx4090+gen4", "--clip=exact"}), base * 0.999);
  // Ranks that divide the states update less each.
  EXPECT_LE(step({"--machine=rtx4090+gen4", "--zero=3", "--ranks=4"}), base * 1.001);
}

TEST(GantryPlan, RanksDivideWhatZeroSays) {
  const ProgramFolder folder("plan_ranks");
  folder.Write("config.json", kModel);
  const auto plan = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--model=config.json", "--machine=rtx4090", "--device-memory=300MiB",
                               "--recompute=full"});
    return Plan(folder, more);
  };
  const Json one = plan({});
  const int64_t states = one["memory"]["host"]["states"];
  const Json states_divided = plan({"--ranks=4", "--zero=1", "--host-memory=1GiB"});
  EXPECT_EQ(states_divided["step"]["tokens"], 4 * one["step"]["tokens"].get<int64_t>());
  EXPECT_LT(states_divided["memory"]["host"]["states"].get<int64_t>(), states / 3);
  EXPECT_EQ(states_divided["memory"]["host"]["parameters"], one["memory"]["host"]["parameters"]);
  EXPECT_LE(states_divided["memory"]["host"]["total"].get<int64_t>(), 1 << 30);
  const Json all_divided = plan({"--ranks=4", "--zero=3", "--host-memory=1GiB"});
  EXPECT_LE(all_divided["memory"]["host"]["parameters"].get<int64_t>(),
            one["memory"]["host"]["parameters"].get<int64_t>() / 4 + 1);
}

TEST(GantryPlan, AdaptersNeedNoStatesOfTheModel) {
  const ProgramFolder folder("plan_lora");
  folder.Write("config.json", kModel);
  const std::vector<std::string> common = {"--model=config.json", "--machine=rtx4090"};
  const Json all = Plan(folder, common);
  std::vector<std::string> arguments = common;
  arguments.emplace_back("--lora=8");
  const Json adapters = Plan(folder, arguments);
  EXPECT_LT(adapters["least"]["host_without_files"].get<int64_t>(),
            all["least"]["host_without_files"].get<int64_t>() / 2);
  EXPECT_LT(StepOf(adapters), StepOf(all));
}

TEST(GantryPlan, TakesAMachineFileAndMakesADrive) {
  const ProgramFolder folder("plan_file");
  folder.Write("mine.json", R"({"format": "gantry-machine", "version": 1, "name": "my own",
    "device": {"name": "d", "memory_bytes": 2000000000, "memory_bytes_per_second": 100000000000,
               "flops_per_second": 10000000000000},
    "host": {"memory_bytes": 8000000000, "update_bytes_per_second": 20000000000},
    "copies": {"duplex": "independent",
               "host_to_device": {"bytes_per_second": 10000000000, "latency_ns": 1000},
               "device_to_host": {"bytes_per_second": 10000000000, "latency_ns": 1000}},
    "sources": {"device.flops_per_second": "measured yesterday"}})");
  const Json plan = Plan(folder, {"--model=gpt2", "--machine=mine.json"});
  EXPECT_EQ(plan["machine"], "my own");
  EXPECT_FALSE(plan["memory"].contains("files"));
  EXPECT_TRUE(plan["wear"]["days"].is_null());
  EXPECT_THAT(plan["upgrades"].dump(), HasSubstr("a drive (PCI Express 4.0 SSD)"));
  EXPECT_THAT(plan["assumptions"].dump(), HasSubstr("measured yesterday"));
}

// Several micro-batches within a small budget: layer by layer is the fastest, and what else was
// compared is said.
TEST(GantryPlan, ComparesOrdersAndChunkSizes) {
  const ProgramFolder folder("plan_ways");
  folder.Write("config.json", kModel);
  const std::vector<std::string> common = {"--model=config.json", "--machine=rtx4090",
                                           "--micro-batches=6", "--seq=256",
                                           "--device-memory=150MiB"};
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = common;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Plan(folder, arguments);
  };
  const Json best = plan({});
  EXPECT_EQ(best["step"]["order"], "layer-major");
  int64_t chosen = 0;
  std::vector<std::string> orders;
  for (const Json& way : best["ways"]) {
    orders.push_back(
        StrCat(way["order"].get<std::string>(), " ", way["recompute"].get<std::string>()));
    if (!way["chosen"].get<bool>()) continue;
    ++chosen;
    EXPECT_EQ(way["seconds"], best["step"]["seconds"]);
    EXPECT_EQ(way["bound_seconds"], best["bound"]["seconds"]);
    EXPECT_EQ(way["chunk_bytes"], best["settings"]["chunk_slot_bytes"]);
    EXPECT_EQ(way["note"], "");
  }
  EXPECT_EQ(chosen, 1);
  for (const char* way : {"micro-batch-major none", "micro-batch-major full", "layer-major none",
                          "layer-major full"}) {
    EXPECT_THAT(orders, Contains(way));
  }
  EXPECT_GT(StepOf(plan({"--order=micro-batch-major"})), 1.2 * StepOf(best));
  const Json fixed = plan({"--order=layer-major", "--chunk-size=1MiB", "--recompute=full"});
  EXPECT_EQ(fixed["settings"]["chunk_slot_bytes"], 1 << 20);
  EXPECT_EQ(fixed["ways"].size(), 1);
  // Training sums the gradient of a tied head in one order only.
  const Json tied = Plan(folder, {"--model=gpt2", "--machine=rtx4090", "--micro-batches=2",
                                  "--recompute=full", "--chunk-size=4MiB"});
  EXPECT_EQ(tied["ways"].size(), 1);
  EXPECT_EQ(tied["step"]["order"], "micro-batch-major");
}

TEST(GantryPlan, TextIsForPeople) {
  const ProgramFolder folder("plan_text");
  const ProgramResult result = folder.Run({"plan", "--model=gpt2", "--machine=rtx3060"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* part :
       {"gpt2: gpt2, 124.4 million parameters", "tokens/s", "least", "bound", "limit",
        "ways compared", "largest", "GPT-2 1.5B", "what the next upgrade would buy",
        "24.0 GiB of device memory instead of 12", "simulated, assuming", "NVIDIA"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST(GantryPlan, WrongInputsAreOneLine) {
  const ProgramFolder folder("plan_wrong");
  folder.Write("config.json", R"({"model_type": "llama", "hidden_size": 64})");
  folder.Write("machine.json", R"({"format": "gantry-machine", "version": 2})");
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    const char* line;
  };
  const auto usual = [](const char* more) {
    return std::vector<std::string>{"--model=gpt2", "--machine=rtx4090", more};
  };
  const Case cases[] = {
      {{}, 2, "name a model: --model=FOLDER, --model=config.json or a built-in one"},
      {{"--model=gpt2"}, 2, "name a machine: --machine=rtx4090+pcie4+2xgen4 or a file"},
      {{"--model=gpt22", "--machine=rtx4090"},
       2,
       "no file, folder or built-in model 'gpt22', did you mean 'gpt2'?"},
      {{"--model=config.json", "--machine=rtx4090"}, 2, "config.json: "},
      {{"--model=none/config.json", "--machine=rtx4090"}, 2, "open none/config.json: ENOENT"},
      {{"--model=gpt2", "--machine=rtx4090+pcie9"},
       2,
       "machine 'rtx4090+pcie9': 'pcie9' is not known"},
      {{"--model=gpt2", "--machine=machine.json"}, 2, "machine.json: "},
      {usual("--seq=0"), 2, "--seq=0: expected a whole number from 1 to 16777216"},
      {usual("--seq=4096"), 2, "sequence_length"},
      {usual("--batch=1.5"), 2, "--batch=1.5: expected a whole number"},
      {usual("--lora=-1"), 2, "--lora=-1: expected a whole number from 0 to 65536"},
      {usual("--zero=4"), 2, "--zero=4: expected a whole number from 0 to 3"},
      {usual("--ranks=0"), 2, "--ranks=0: expected a whole number from 1 to 4096"},
      {usual("--recompute=some"), 2, "--recompute=some: expected one of none, full, auto"},
      {usual("--clip=yes"), 2, "--clip=yes: expected one of none, speculative, exact"},
      {usual("--drive-tbw=0"), 2, "--drive-tbw=0: expected terabytes, more than 0"},
      {usual("--device-memory=24"), 1, "'gpt2' does not fit 'rtx4090': "},
      {usual("--device-memory=25GiB"), 2, "the budget device_memory of 25.0 GiB is more than"},
      {usual("--device-memory=x"), 2, "--device-memory=x: expected a size like 8GiB"},
      {usual("--order=some"), 2,
       "--order=some: expected one of micro-batch-major, layer-major, auto"},
      {usual("--chunk-size=100"), 2, "--chunk-size=100: expected auto, or a multiple of 64.0 KiB"},
      {usual("--sequence=4"), 2, "unknown option '--sequence'"},
      {usual("word"), 2, "'word' is one word too many"},
  };
  for (const Case& item : cases) {
    SCOPED_TRACE(item.line);
    std::vector<std::string> arguments = {"plan"};
    arguments.insert(arguments.end(), item.arguments.begin(), item.arguments.end());
    const ProgramResult result = folder.Run(arguments);
    EXPECT_EQ(result.exit_code, item.exit_code);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr("gantry: error: "));
    EXPECT_THAT(result.err, HasSubstr(item.line));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

}  // namespace
}  // namespace gantry
