// `gantry bench` from the outside: every benchmark on very little data prints one JSON object with
// its rows, and wrong inputs are one line. How fast anything is is not looked at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/strings.h"
#include "trainer/cli/testing/program.h"
#include "trainer/cli/testing/program_folder.h"

namespace gantry {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// On so little data that it takes a moment.
std::vector<std::string> Small(const std::string& name) {
  return {"bench", name, "--quick", "--json", "--pairs=1", "--seconds=0.01", "--size=8MiB"};
}

struct Expected {
  const char* name;
  std::vector<const char*> rows;
};

const std::vector<Expected> kBenchmarks = {
    {"io",
     {"read", "write", "mixed", "checksum", "checksum_cpu", "use", "checksum_of_used", "cpu_read",
      "cpu_write", "cpu_mixed", "read_latency_p50", "read_latency_p99", "read_latency_p99_9",
      "bytes_written_per_step", "drive_life_steps"}},
    {"transfer", {"h2d", "d2h", "both_directions", "pipeline", "pipeline_balanced"}},
    {"adam",
     {"adam", "adam_1_thread", "optimizer_adam", "optimizer_sgd", "optimizer_lion",
      "optimizer_split_master", "optimizer_eight_bit"}},
    {"sweep",
     {"sweep", "sweep_after_norm", "sweep_speculative", "sweep_emulated",
      "sweep_bytes_per_parameter", "sweep_read_per_parameter", "sweep_written_per_parameter",
      "sweep_bytes_per_parameter_half_resident", "sweep_bytes_per_parameter_auto",
      "host_overhead"}},
    {"lease", {"lease_ns", "lease_3_tensors_ns", "lease_off_plan_ns"}},
    {"accumulation", {"accumulation_4", "accumulation_8"}},
    {"load", {"load_seconds", "load_memory", "load_spilled_memory"}},
    {"plan",
     {"step_resident_8k", "step_5_8k", "practicality_5_8k", "step_10_8k", "practicality_10_8k",
      "step_25_8k", "practicality_25_8k", "step_resident_2k", "step_5_2k", "practicality_5_2k",
      "step_resident_files", "step_files", "practicality_files"}}};

// The report, with what every report has looked at.
Json Report(const ProgramResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
  const Json json = Json::parse(result.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << result.out;
  for (const char* key : {"processors", "memory_bytes", "kernel", "build"}) {
    EXPECT_TRUE(json["machine"].contains(key)) << key;
  }
  std::set<std::string> names;
  for (const Json& row : json["rows"]) {
    EXPECT_TRUE(names.insert(row["name"]).second) << "twice: " << row;
    for (const char* key : {"unit", "value", "bound", "ratio"}) {
      EXPECT_TRUE(row.contains(key)) << row;
    }
    EXPECT_TRUE(row["value"].is_number() || row.contains("note")) << row;
  }
  return json;
}

Json Row(const Json& report, const std::string& name) {
  for (const Json& row : report["rows"]) {
    if (row["name"] == name) return row;
  }
  ADD_FAILURE() << "no row " << name;
  return Json();
}

TEST(GantryBench, EveryBenchmarkPrintsItsRows) {
  const ProgramFolder folder("bench_rows");
  for (const Expected& benchmark : kBenchmarks) {
    SCOPED_TRACE(benchmark.name);
    const Json report = Report(folder.Run(Small(benchmark.name)));
    EXPECT_EQ(report["bench"], benchmark.name);
    for (const char* name : benchmark.rows) {
      EXPECT_TRUE(Row(report, name)["value"].is_number()) << name;
    }
  }
}

TEST(GantryBench, AllIsOneReport) {
  const ProgramFolder folder("bench_all");
  const Json report = Report(folder.Run(Small("all")));
  EXPECT_EQ(report["bench"], "all");
  for (const Expected& benchmark : kBenchmarks) {
    for (const char* name : benchmark.rows) Row(report, name);
  }
}

// The bytes that go through files are counted, not timed: what must be moved is the same on any
// machine. What is read ahead and then read again depends on time, so reads have no upper limit.
TEST(GantryBench, TheSweepCountsItsBytes) {
  const ProgramFolder folder("bench_bytes");
  const Json report = Report(folder.Run(Small("sweep")));
  const double read = Row(report, "sweep_read_per_parameter")["value"];
  const double written = Row(report, "sweep_written_per_parameter")["value"];
  EXPECT_GE(read, 12.0);
  EXPECT_GE(written, 12.0);
  EXPECT_LE(written, 15.0);  // chunks are padded, and there are few
  const double all = Row(report, "sweep_bytes_per_parameter")["value"];
  EXPECT_DOUBLE_EQ(all, read + written);
  EXPECT_DOUBLE_EQ(Row(report, "sweep_bytes_per_parameter")["ratio"].get<double>(), 24.0 / all);
  EXPECT_LT(Row(report, "sweep_bytes_per_parameter_half_resident")["value"].get<double>(), all);
}

// Bytes again: layer by layer copies less to the device, however fast it is.
TEST(GantryBench, LayerByLayerCopiesLess) {
  const ProgramFolder folder("bench_accumulation");
  const Json report = Report(folder.Run(Small("accumulation")));
  for (const char* name : {"accumulation_4", "accumulation_8"}) {
    const Json figures = Row(report, name)["figures"];
    EXPECT_LT(figures["by_layer_MB"].get<double>(), 0.5 * figures["one_by_one_MB"].get<double>());
  }
}

// Of its cases the one that is asked for.
TEST(GantryBench, TrainsOneShape) {
  const ProgramFolder folder("bench_train");
  std::vector<std::string> arguments = Small("train");
  arguments.emplace_back("--only=gpt2_f32_1x512");
  const Json report = Report(folder.Run(arguments));
  ASSERT_EQ(report["rows"].size(), 2u);
  EXPECT_GT(Row(report, "train_gpt2_f32_1x512")["value"].get<double>(), 0.0);
  EXPECT_GT(Row(report, "train_gpt2_f32_1x512_tenth")["ratio"].get<double>(), 0.0);
}

TEST(GantryBench, WithoutFioTheRowsSaySo) {
  const ProgramFolder folder("bench_no_fio");
  std::vector<std::string> arguments = Small("io");
  arguments.emplace_back("--fio=/no/such/fio");
  const ProgramResult result = folder.Run(arguments);
  EXPECT_THAT(result.err, HasSubstr("gantry: warning: no comparison with fio: no program"));
  const Json row = Row(Report(result), "read");
  EXPECT_TRUE(row["value"].is_number());
  EXPECT_TRUE(row["bound"].is_null());
  EXPECT_TRUE(row["ratio"].is_null());
  EXPECT_THAT(row["note"].get<std::string>(), HasSubstr("--fio=PATH"));
}

TEST(GantryBench, WearIsOfTheModelAndTheDrive) {
  const ProgramFolder folder("bench_wear");
  std::vector<std::string> arguments = Small("io");
  for (const char* more : {"--fio=none", "--model-parameters=1e9", "--drive-tbw=12"}) {
    arguments.emplace_back(more);
  }
  const Json report = Report(folder.Run(arguments));
  EXPECT_DOUBLE_EQ(Row(report, "bytes_written_per_step")["value"].get<double>(), 12.0);
  EXPECT_DOUBLE_EQ(Row(report, "drive_life_steps")["value"].get<double>(), 1000.0);
}

TEST(GantryBench, TextIsForPeople) {
  const ProgramFolder folder("bench_text");
  const ProgramResult result = folder.Run({"bench", "lease", "--quick", "--seconds=0.01"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("lease_ns"));
  EXPECT_THAT(result.out, HasSubstr("processors: "));
}

TEST(GantryBench, LeavesNothingBehind) {
  const ProgramFolder folder("bench_clean");
  const std::string drive = folder.path() + "/drive";
  std::filesystem::create_directory(drive);
  for (const char* name : {"io", "transfer", "sweep"}) {
    std::vector<std::string> arguments = Small(name);
    arguments.emplace_back("--dir=drive");
    Report(folder.Run(arguments));
    EXPECT_TRUE(std::filesystem::is_empty(drive)) << name;
  }
}

TEST(GantryBench, WrongInputsAreOneLine) {
  const ProgramFolder folder("bench_wrong");
  folder.Write("file", "x");
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    const char* line;
  };
  const Case cases[] = {
      {{"bench"}, 2, "name a benchmark: gantry bench NAME, one of sweep, io, transfer, adam, "},
      {{"bench", "swep"}, 2, "unknown benchmark 'swep', did you mean 'sweep'?"},
      {{"bench", "polices"}, 2, "unknown benchmark 'polices', did you mean 'policies'?"},
      {{"bench", "xyzzyx"}, 2, "unknown benchmark 'xyzzyx'; `gantry help bench` lists all"},
      {{"bench", "io", "adam"}, 2, "'adam' is one word too many"},
      {{"bench", "io", "--pears=3"}, 2, "unknown option '--pears', did you mean '--pairs'?"},
      {{"bench", "io", "--xyzzyx"}, 2, "unknown option '--xyzzyx'; `gantry help bench` lists all"},
      {{"bench", "io", "--pairs=0"}, 2, "--pairs=0: expected a number that is more than 0"},
      {{"bench", "io", "--pairs=2x"}, 2, "--pairs=2x: expected a number that is more than 0"},
      {{"bench", "io", "--pairs=1001"}, 2, "pairs: must be 1 to 1000, not 1001"},
      {{"bench", "io", "--seconds=nan"}, 2, "--seconds=nan: expected a number that is more than"},
      {{"bench", "io", "--seconds=1e9"}, 2, "--seconds: at most 3600"},
      {{"bench", "io", "--size=-1"}, 2, "--size=-1: expected a size like 256MiB that is more than"},
      {{"bench", "io", "--threads=2000"}, 2, "threads: must be 1 to 1024, not 2000"},
      {{"bench", "io", "--model-parameters=inf"}, 2, "model-parameters: must be more than 0"},
      {{"bench", "io", "--quick=1"}, 2, "--quick takes no value"},
      {{"bench", "io", "--dir="}, 2, "--dir needs a value, as in --dir=..."},
      {{"bench", "io", "--dir=none"}, 1, "spill directory 'none' does not exist"},
      {{"bench", "io", "--dir=file"}, 1, "spill directory 'file' is not a directory"},
      {{"bench", "transfer", "--quick", "--seconds=0.01", "--size=16MiB", "--dir=none"},
       1,
       "spill directory 'none' does not exist"},
      {{"bench", "sweep", "--size=1MiB", "--dir=none"}, 1, "spill directory 'none' does not exist"},
  };
  for (const Case& item : cases) {
    SCOPED_TRACE(item.line);
    const ProgramResult result = folder.Run(item.arguments);
    EXPECT_EQ(result.exit_code, item.exit_code);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr(StrCat("gantry: error: ", item.line)));
    EXPECT_EQ(result.err.find("gantry: error: "), result.err.rfind("gantry: error: "));
  }
}

// A file-size limit stands in for a full drive.
TEST(GantryBench, FullDrivesAreTold) {
#ifdef GANTRY_TSAN
  GTEST_SKIP() << "ThreadSanitizer itself needs large files";
#endif
  const ProgramFolder folder("bench_full");
  for (const char* name : {"io", "transfer", "sweep"}) {
    ProgramOptions options = {.arguments = Small(name), .folder = folder.path()};
    options.file_bytes_max = 100'000;
    const ProgramResult result = RunProgram(options);
    EXPECT_EQ(result.exit_code, 1) << name;
    EXPECT_THAT(result.err, HasSubstr("gantry: error: the file tier in '")) << name;
  }
}

TEST(GantryBench, HelpNamesEveryBenchmark) {
  const ProgramFolder folder("bench_help");
  const std::string text = folder.Run({"help", "bench"}).out;
  EXPECT_THAT(text, StartsWith("usage: gantry bench NAME"));
  for (const Expected& benchmark : kBenchmarks) EXPECT_THAT(text, HasSubstr(benchmark.name));
  EXPECT_EQ(folder.Run({"bench", "--help"}).out, text);
}

}  // namespace
}  // namespace gantry
