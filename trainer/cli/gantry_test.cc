// The program from the outside: every command, every kind of wrong input, one clear line and the
// right exit code each, and nothing half-written.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "trainer/cli/testing/program.h"
#include "trainer/cli/testing/program_folder.h"
#include "trainer/logging/testing/event_reader.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

// Every file of a folder with its size.
std::map<std::string, uintmax_t> Contents(const std::string& folder) {
  std::map<std::string, uintmax_t> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    files[entry.path()] = entry.is_regular_file() ? entry.file_size() : 0;
  }
  return files;
}

// The one line of an error.
std::string ErrorLine(const ProgramResult& result) {
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  return result.err;
}

TEST(Gantry, TrainsGeneratesAndInspects) {
  const ProgramFolder folder("whole");
  const ProgramResult train = RunProgram(
      folder.Train({"--checkpoint_dir=runs/a", "--eval_every=6", "--trace_file=t/trace.json"}));
  ASSERT_EQ(train.exit_code, 0) << train.err;
  EXPECT_THAT(train.out, MatchesRegex("steps 1 to 12: loss .* tokens/s, parameters [0-9a-f]+\n"
                                      "validation loss .*, perplexity .*; best loss .*\n"
                                      "step: .* under the plan; simulated .*\n(waited: .*\n)?"
                                      "busy: .*\n +first +last +lowest +highest +mean\n"
                                      "loss .*\nvalidation loss .*\nperplexity .*\n"));
  EXPECT_THAT(train.err, HasSubstr("step 12/12  loss "));
  EXPECT_THAT(train.err, HasSubstr("step 6  validation loss "));
  EXPECT_THAT(train.err, HasSubstr("saved runs/a/step-00000012 in "));
  EXPECT_THAT(folder.Read("t/trace.json"), StartsWith("{"));

  const ProgramResult again = RunProgram(folder.Train({"--checkpoint_dir=runs/a"}));
  EXPECT_EQ(again.out, "nothing to do: 12 steps are done; a larger train.steps goes on\n");

  const std::vector<std::string> generate = {"generate",   "--checkpoint=runs/a",
                                             "--tokens=7", "--prompt=line",
                                             "--json",     "--device_memory=16MiB"};
  const ProgramResult text = folder.Run(generate);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(JsonValue(text.out, "tokens"), "7");
  EXPECT_EQ(JsonValue(text.out, "step"), "12");
  EXPECT_EQ(JsonValue(folder.Run(generate).out, "text"), JsonValue(text.out, "text"));
  const ProgramResult plain = folder.Run({"generate", "--checkpoint=runs/a/step-00000012",
                                          "--tokens=7", "--prompt=line", "--device_memory=16MiB"});
  EXPECT_THAT(plain.out, AllOf(StartsWith("line"), EndsWith("\n")));
  EXPECT_EQ(plain.out.size(), 4 + 7 + 1u);

  std::ofstream(folder.path() + "/prompts.txt") << "line\nof the\n";
  const ProgramResult several =
      folder.Run({"generate", "--checkpoint=runs/a", "--tokens=7", "--prompts_file=prompts.txt",
                  "--json", "--device_memory=16MiB", "--repetition_penalty=1.1"});
  ASSERT_EQ(several.exit_code, 0) << several.err;
  EXPECT_EQ(JsonValue(several.out, "tokens"), "14");
  EXPECT_THAT(several.out, HasSubstr("{\"prompt\":\"of the\",\"text\":\""));
  EXPECT_THAT(folder.Run({"generate", "--checkpoint=runs/a", "--prompts_file=none"}).err,
              HasSubstr("generate.prompts_file: "));

  const ProgramResult inspect = folder.Run({"inspect", "runs/a", "--verify", "--json"});
  ASSERT_EQ(inspect.exit_code, 0) << inspect.err;
  EXPECT_EQ(JsonValue(inspect.out, "step"), "12");
  EXPECT_EQ(JsonValue(inspect.out, "sequences"), "48");
  EXPECT_EQ(JsonValue(inspect.out, "verified"), "true");
  EXPECT_THAT(folder.Run({"inspect", "runs/a"}).out,
              AllOf(HasSubstr("model.layers: 2"), HasSubstr("model.embed_tokens.weight")));
}

// A run that is resumed tells TensorBoard of each step once.
TEST(Gantry, WritesEventFiles) {
  const ProgramFolder folder("events");
  for (const char* steps : {"--steps=3", "--steps=5"}) {
    const ProgramResult train = RunProgram(
        folder.Train({steps, "--checkpoint_dir=runs/a", "--tensorboard_dir=runs/a/events"}));
    ASSERT_EQ(train.exit_code, 0) << train.err;
  }
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() + "/runs/a/events")) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  ASSERT_EQ(paths.size(), 2u);
  PosixFileCalls files;
  std::vector<int64_t> steps;
  for (const std::string& path : paths) {
    const absl::StatusOr<std::string> bytes = ReadFileToString(files, path, 1_MiB);
    ASSERT_THAT(bytes, IsOk());
    const absl::StatusOr<std::vector<ReadEvent>> events = ReadEvents(*bytes);
    ASSERT_THAT(events, IsOk());
    EXPECT_TRUE((*events)[1].restart);
    EXPECT_THAT((*events)[2].texts.at("settings"), HasSubstr("tensorboard_dir: \"runs/a/events\""));
    for (const ReadEvent& event : *events) {
      if (event.scalars.contains("train/loss")) steps.push_back(event.step);
    }
  }
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4, 5));
}

// Its own lock of the checkpoints must not make a run wait for itself.
TEST(Gantry, SpillsWhereItSaves) {
  const ProgramFolder folder("same");
  std::filesystem::create_directory(folder.path() + "/both");
  const ProgramResult train =
      RunProgram(folder.Train({"--steps=2", "--checkpoint_dir=both", "--spill_dirs=both"}));
  EXPECT_EQ(train.exit_code, 0) << train.err;
}

TEST(Gantry, LitterInASpillFolderStopsNoRun) {
  const ProgramFolder folder("litter");
  const std::string litter = folder.path() + "/spill/gantry-1-0123456789abcdef";
  std::filesystem::create_directories(litter);
  std::filesystem::create_symlink("nowhere", litter + "/lock");
  const ProgramResult train = RunProgram(folder.Train({"--steps=2", "--spill_dirs=spill"}));
  EXPECT_EQ(train.exit_code, 0) << train.err;
}

TEST(Gantry, TrainsWithEveryOptimizerAndShowsIt) {
  const ProgramFolder folder("optimizers");
  for (const std::string kind : {"adamw", "adam", "sgd", "lion", "adafactor"}) {
    SCOPED_TRACE(kind);
    const std::vector<std::string> more = {StrCat("--kind=", kind), "--steps=6", "--json",
                                           StrCat("--checkpoint_dir=", kind)};
    const ProgramResult train = RunProgram(folder.Train(more));
    ASSERT_EQ(train.exit_code, 0) << train.err;
    EXPECT_EQ(JsonValue(train.out, "steps"), "6");
    EXPECT_EQ(JsonValue(train.out, "state_outside_slots_bytes") == "0", kind != "adafactor");
    const ProgramResult inspect = folder.Run({"inspect", kind, "--verify", "--json"});
    EXPECT_EQ(JsonValue(inspect.out, "optimizer"), StrCat("\"", kind, "\""));
    EXPECT_THAT(folder.Run({"inspect", kind}).out,
                AllOf(HasSubstr(StrCat("with the states of ", kind)),
                      HasSubstr(StrCat("optimizer.kind: ", kind)),
                      HasSubstr("optimizer.state_format: f32")));
  }
  const ProgramResult other =
      RunProgram(folder.Train({"--kind=sgd", "--steps=9", "--checkpoint_dir=lion"}));
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_EQ(ErrorLine(other),
            "gantry: error: checkpoint 'lion/step-00000006' holds the states of lion, not of sgd: "
            "go on with the same optimizer, or start a new run\n");
}

// Split masters change no number: a run may be resumed with or without. Eight-bit moments do.
TEST(Gantry, ResumesWithSplitMastersAsWithout) {
  const ProgramFolder folder("formats");
  const auto train = [&](const char* format, const char* steps, const char* checkpoints) {
    return RunProgram(folder.Train({StrCat("--state_format=", format), StrCat("--steps=", steps),
                                    StrCat("--checkpoint_dir=", checkpoints), "--json"}));
  };
  const ProgramResult whole = train("f32", "9", "whole");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  ASSERT_EQ(train("split_master", "3", "parts").exit_code, 0);
  ASSERT_EQ(train("f32", "6", "parts").exit_code, 0);
  const ProgramResult last = train("split_master", "9", "parts");
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_EQ(JsonValue(last.out, "first_step"), "6");
  EXPECT_EQ(JsonValue(last.out, "parameter_hash"), JsonValue(whole.out, "parameter_hash"));
  EXPECT_THAT(last.err, Not(HasSubstr("other settings")));
  EXPECT_EQ(folder.Read("parts/step-00000009/state.bin"),
            folder.Read("whole/step-00000009/state.bin"));
  const ProgramResult eight = train("eight_bit", "12", "parts");
  ASSERT_EQ(eight.exit_code, 0) << eight.err;
  EXPECT_THAT(eight.err, HasSubstr("other settings (optimizer.state_format)"));
  EXPECT_NE(JsonValue(eight.out, "state_outside_slots_bytes"), "0");
}

TEST(Gantry, TheBudgetDoesNotChangeTheGeneratedText) {
  const ProgramFolder folder("generate_budget");
  ASSERT_EQ(RunProgram(folder.Train({"--checkpoint_dir=a"})).exit_code, 0);
  std::vector<std::string> generate = {"generate", "--checkpoint=a", "--json", "--tokens=20"};
  generate.push_back("--device_memory=16MiB");
  const ProgramResult roomy = folder.Run(generate);
  generate.back() = "--device_memory=1MiB";
  for (const char* more : {"--device=emulated", "--host_memory=1MiB", "--spill_dirs=."}) {
    generate.emplace_back(more);
  }
  const ProgramResult tight = folder.Run(generate);
  ASSERT_EQ(tight.exit_code, 0) << tight.err;
  EXPECT_EQ(JsonValue(tight.out, "text"), JsonValue(roomy.out, "text"));
  EXPECT_EQ(JsonValue(tight.out, "left_behind"), "[]") << tight.err;
}

TEST(Gantry, JsonIsOneObjectOnStandardOutput) {
  const ProgramFolder folder("json");
  const ProgramResult result = RunProgram(folder.Train({"--json", "--steps=2"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
  for (const char* key : {"steps", "loss_first", "loss_last", "tokens_per_second", "stall_seconds",
                          "parameter_hash", "checkpoint", "device_budget_bytes",
                          "device_peak_bytes", "nvme_read_bytes", "io_backend"}) {
    EXPECT_THAT(JsonValue(result.out, key), Not(IsEmpty()));
  }
  EXPECT_EQ(JsonValue(result.out, "left_behind"), "[]");
  EXPECT_EQ(folder.Run({"version", "--json"}).out, "{\"version\":\"0.1.0\"}\n");
}

TEST(Gantry, ATerminalGetsABar) {
  const ProgramFolder folder("terminal");
  ProgramOptions options = folder.Train({"--steps=4"});
  options.error_output = ErrorOutput::kTerminal;
  const ProgramResult result = RunProgram(options);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("\r[####............] step 1/4  loss "));
  EXPECT_THAT(result.err, HasSubstr("left 0s\x1b[K"));
  EXPECT_THAT(result.err, EndsWith("\r\x1b[K")) << "the bar stays";
}

TEST(Gantry, LinesComeEveryNSteps) {
  const ProgramFolder folder("lines");
  const ProgramResult result = RunProgram(folder.Train({"--log_every=5"}));
  for (const int step : {1, 5, 10, 12}) {
    EXPECT_THAT(result.err, HasSubstr(StrCat("step ", step, "/12  loss")));
  }
  EXPECT_THAT(result.err, Not(HasSubstr("step 2/12")));
}

TEST(Gantry, HelpIsThere) {
  const ProgramFolder folder("help");
  EXPECT_THAT(folder.Run({"help"}).out, HasSubstr("usage: gantry COMMAND"));
  EXPECT_EQ(folder.Run({"--help"}).out, folder.Run({"help"}).out);
  EXPECT_THAT(folder.Run({"train", "--help"}).out, HasSubstr("device_memory = 1GiB"));
  EXPECT_EQ(folder.Run({"help", "train"}).out, folder.Run({"train", "-h"}).out);
  for (const char* command : {"generate", "demo", "inspect", "clean", "version", "config"}) {
    EXPECT_EQ(folder.Run({"help", command}).exit_code, 0) << command;
  }
}

TEST(Gantry, UsageErrorsAreOneLineAndTwo) {
  const ProgramFolder folder("usage");
  folder.Write("type.yaml", "model:\n  layers: many\n");
  folder.Write("key.yaml", "train:\n  stepps: 3\n");
  struct Case {
    std::vector<std::string> arguments;
    const char* line;
  };
  const Case cases[] = {
      {{}, "no command given; `gantry help` lists all"},
      {{"trian"}, "unknown command 'trian', did you mean 'train'?"},
      {{"xyzzy"}, "unknown command 'xyzzy'; `gantry help` lists all"},
      {{"config"}, "'config' is no command; `gantry help config` explains it"},
      {{"help", "tarin"}, "unknown command 'tarin', did you mean 'train'?"},
      {{"train", "-x"}, "unknown option '-x': options begin with two dashes"},
      {{"train", "type.yaml"},
       "type.yaml:2: model.layers: expected a whole number from 1 to 100000, not 'many'"},
      {{"train", "key.yaml"},
       "key.yaml:2: unknown key 'train.stepps', did you mean 'train.steps'?"},
      {{"train", "tiny.yaml", "--stepps=3"},
       "--stepps=3: unknown key 'stepps', did you mean 'steps'?"},
      {{"train", "tiny.yaml", "--seed=3"},
       "--seed=3: 'seed' may be data.seed, train.seed or generate.seed: name the section"},
      {{"train", "tiny.yaml", "--json=1"}, "--json takes no value"},
      {{"train", "a.yaml", "b.yaml"}, "'b.yaml' is one word too many: give one config file"},
      {{"train", "none.yaml"},
       "cannot read config file 'none.yaml': open none.yaml: ENOENT (No such file or directory)"},
      {{"train"}, "data.files: name the text to train on, as in --data.files=book.txt"},
      {{"train", "tiny.yaml", "--device_memory=0"},
       "--device_memory=0: expected a size like 128MiB that is more than 0, not '0'"},
      {{"train", "tiny.yaml", "--device=emulated", "--host_memory=0"},
       "memory.host_memory: an emulated device needs host memory beside it; give at least a few "
       "MiB, like 512MiB, or set memory.device=unified"},
      {{"train", "tiny.yaml", "--spill_dirs=.", "--spill_shares=1,2"},
       "memory.spill_shares: there must be as many as memory.spill_dirs, 1, not 2"},
      {{"train", "tiny.yaml", "--heads=3", "--kv_heads=2"}, "model: "},
      {{"train", "tiny.yaml", "--kind=lion", "--state_format=split_master"},
       "optimizer: states in the format split_master need a variance, which the optimizer lion "
       "does not have"},
      {{"train", "tiny.yaml", "--chunk_elements=5"}, "memory.chunk_elements: must be 0 or a "},
      {{"train", "tiny.yaml", "--warmup_steps=13", "--shape=linear", "--total_steps=12"},
       "schedule: the learning rate's decay ends at step 12, before its warm-up of 13 steps does"},
      {{"generate"},
       "generate.checkpoint: name a checkpoint or a folder of them, as in --checkpoint=runs/a"},
      {{"generate", "--checkpoint=a", "--prompt="}, "generate.prompt: must have at least one byte"},
      {{"inspect"}, "name a checkpoint or a model: gantry inspect PATH"},
      {{"inspect", "a", "b"}, "'b' is one word too many"},
      {{"inspect", "a", "--verfy"}, "unknown option '--verfy'"},
      {{"clean"}, "name the folders that runs spilled to, or a config with memory.spill_dirs"},
      {{"clean", "--config=tiny.yaml"}, "name the folders that runs spilled to"},
      {{"clean", "--config=none.yaml"}, "cannot read config file 'none.yaml'"},
      {{"clean", ".", "--dry"}, "unknown option '--dry'"},
      {{"version", "x"}, "'x' is one word too many"},
      {{"demo", "--out="}, "--out needs a value, as in --out=..."},
      {{"demo", "--checkpoint_dir=x"}, "--checkpoint_dir: the demonstration keeps no checkpoints"},
  };
  const auto before = Contents(folder.path());
  for (const Case& item : cases) {
    SCOPED_TRACE(item.line);
    const ProgramResult result = folder.Run(item.arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(ErrorLine(result), StartsWith(StrCat("gantry: error: ", item.line)));
  }
  EXPECT_EQ(Contents(folder.path()), before);
}

TEST(Gantry, FailuresAreOneLineAndOne) {
  const ProgramFolder folder("failures");
  folder.Write("empty.txt", "");
  folder.Write("short.txt", "0123456789");
  ASSERT_EQ(RunProgram(folder.Train({"--checkpoint_dir=good"})).exit_code, 0);
  struct Case {
    std::vector<std::string> more;
    const char* line;
  };
  const Case cases[] = {
      {{"--files=empty.txt"}, "text file 'empty.txt' is empty"},
      {{"--files=none.txt"},
       "cannot read text file 'none.txt': open none.txt: ENOENT (No such file"},
      {{"--files=."}, "cannot read text file '.': . is a directory, not a regular file"},
      {{"--files=short.txt"}, "the training text has 9 bytes, but one sequence of 16 tokens"},
      {{"--spill_dirs=none"},
       "spill directory 'none' does not exist: create it or name another one"},
      {{"--spill_dirs=text.txt"}, "spill directory 'text.txt' is not a directory"},
      {{"--spill_dirs=/proc"}, "spill directory '/proc'"},
      {{"--checkpoint_dir=text.txt"}, "create directory text.txt"},
      {{"--log_file=/proc/none/x"}, "create directory /proc/none"},
      {{"--resume=none"}, "no checkpoint at 'none': there is no such directory"},
      {{"--checkpoint_dir=good", "--resume=never"}, "'good' holds checkpoints of an earlier run"},
      {{"--checkpoint_dir=good", "--width=96", "--steps=99"},
       "checkpoint 'good/step-00000012' is from another model: tensor "
       "'model.embed_tokens.weight' is [256, 64] there and [256, 96] in the model"},
  };
  const auto before = Contents(folder.path());
  for (const Case& item : cases) {
    SCOPED_TRACE(item.line);
    const ProgramResult result = RunProgram(folder.Train(item.more));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(ErrorLine(result), StartsWith(StrCat("gantry: error: ", item.line)));
  }
  EXPECT_EQ(Contents(folder.path()), before);
}

TEST(Gantry, ABudgetThatIsTooSmallIsToldInBytes) {
  const ProgramFolder folder("budget");
  const auto before = Contents(folder.path());
  const ProgramResult result = RunProgram(folder.Train({"--device_memory=200KiB"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(ErrorLine(result), MatchesRegex("gantry: error: .*device.* [0-9]+ bytes.*\n"));
  EXPECT_EQ(Contents(folder.path()), before);
}

TEST(Gantry, DamagedCheckpointsAreRefused) {
  const ProgramFolder folder("damaged");
  ASSERT_EQ(RunProgram(folder.Train({"--checkpoint_dir=c"})).exit_code, 0);
  const std::string state = folder.path() + "/c/step-00000012/state.bin";
  const auto size = static_cast<off_t>(std::filesystem::file_size(state));
  const std::vector<std::vector<std::string>> commands = {
      {"train", "tiny.yaml", "--checkpoint_dir=c", "--steps=20"},
      {"generate", "--checkpoint=c", "--device_memory=16MiB"},
      {"inspect", "c", "--verify"}};
  const auto expect_refused = [&](std::string_view message) {
    const auto before = Contents(folder.path());
    for (const std::vector<std::string>& command : commands) {
      const ProgramResult result = folder.Run(command);
      EXPECT_EQ(result.exit_code, 1) << command[0];
      EXPECT_THAT(ErrorLine(result),
                  AllOf(StartsWith("gantry: error: checkpoint"), HasSubstr(std::string(message))));
    }
    EXPECT_EQ(Contents(folder.path()), before);
  };
  const int file = open(state.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(file, 0);
  char byte = 0;
  ASSERT_EQ(pread(file, &byte, 1, size / 2), 1);
  byte = static_cast<char>(byte ^ 1);
  ASSERT_EQ(pwrite(file, &byte, 1, size / 2), 1);
  close(file);
  expect_refused("is damaged: the checksum of the");
  ASSERT_EQ(truncate(state.c_str(), size - 1), 0);
  expect_refused("it was cut short; name an older checkpoint");
  // The older one still works.
  const ProgramResult older =
      RunProgram(folder.Train({"--checkpoint_dir=c", "--resume=c/step-00000009", "--json"}));
  EXPECT_EQ(older.exit_code, 0) << older.err;
  EXPECT_EQ(JsonValue(older.out, "first_step"), "9");
}

// A file-size limit stands in for full disks: of spill files, of checkpoints, of logs.
TEST(Gantry, FullDisksAreToldAndLeaveNothing) {
#ifdef GANTRY_TSAN
  GTEST_SKIP() << "ThreadSanitizer itself needs large files";
#endif
  const ProgramFolder folder("full");
  ASSERT_EQ(RunProgram(folder.Train({"--checkpoint_dir=c", "--steps=3"})).exit_code, 0);
  const auto before = Contents(folder.path());
  ProgramOptions options = folder.Train({"--checkpoint_dir=c"});
  options.file_bytes_max = 100'000;
  const ProgramResult checkpoint = RunProgram(options);
  EXPECT_EQ(checkpoint.exit_code, 1);
  EXPECT_THAT(checkpoint.err, HasSubstr("gantry: error: "));
  EXPECT_THAT(checkpoint.err, HasSubstr("state.bin"));

  options = folder.Train({"--device=emulated", "--device_memory=3MiB", "--host_memory=3MiB",
                          "--io=threads", "--spill_dirs=."});
  options.file_bytes_max = 100'000;
  const ProgramResult spill = RunProgram(options);
  EXPECT_EQ(spill.exit_code, 1);
  EXPECT_THAT(ErrorLine(spill), StartsWith("gantry: error: "));
  EXPECT_EQ(Contents(folder.path()), before);
}

TEST(Gantry, PermissionsAreTold) {
  if (!CanDropFilePrivileges()) GTEST_SKIP() << "root here reads and writes everything";
  const ProgramFolder folder("permissions");
  folder.Write("secret.txt", "some text that is long enough for a sequence or two");
  const std::string secret = folder.path() + "/secret.txt";
  ASSERT_EQ(chmod(secret.c_str(), 0), 0);
  const std::string locked = folder.path() + "/locked";
  ASSERT_EQ(mkdir(locked.c_str(), 0500), 0);
  const auto before = Contents(folder.path());
  for (const char* more : {"--files=secret.txt", "--spill_dirs=locked", "--checkpoint_dir=locked/c",
                           "--log_file=locked/log", "--resume=locked"}) {
    SCOPED_TRACE(more);
    ProgramOptions options = folder.Train({more});
    options.privileges = FilePrivileges::kDropped;
    const ProgramResult result = RunProgram(options);
    EXPECT_EQ(result.exit_code, 1);
    const bool is_secret = std::string_view(more).find("secret") != std::string_view::npos;
    EXPECT_THAT(ErrorLine(result), HasSubstr(is_secret ? "secret.txt" : "locked"));
  }
  EXPECT_EQ(Contents(folder.path()), before);
}

}  // namespace
}  // namespace gantry
