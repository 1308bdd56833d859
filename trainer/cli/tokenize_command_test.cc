#include "trainer/cli/tokenize_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/testing/status_matchers.h"
#include "trainer/booster/stop_source.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"
#include "trainer/cli/console.h"

namespace gantry {
namespace {

constexpr char kModel[] = "--model=trainer/tokenizer/testdata/llama3.json";

struct Outcome {
  int exit_code;
  absl::Status status;
  std::string out;
};

Outcome RunTokenize(std::vector<const char*> words) {
  words.insert(words.begin(), "tokenize");
  const absl::StatusOr<Arguments> arguments = ParseArguments(words);
  GANTRY_CHECK_OK(arguments.status());
  FILE* const out = std::tmpfile();
  GANTRY_CHECK(out != nullptr);
  Outcome outcome;
  {
    Console console({.out = out, .err = stderr, .progress = Console::Progress::kLines});
    PosixFileCalls files;
    const StopSource stop;
    const CommandResult result =
        TokenizeCommand(*arguments, {.console = &console, .files = &files, .stop = &stop});
    outcome.exit_code = result.exit_code;
    outcome.status = result.status;
  }
  std::rewind(out);
  for (int c = std::fgetc(out); c != EOF; c = std::fgetc(out)) {
    outcome.out += static_cast<char>(c);
  }
  std::fclose(out);
  return outcome;
}

TEST(TokenizeCommandTest, ShowsIdsTokensAndOffsets) {
  const Outcome outcome = RunTokenize({kModel, "--text=a the\n\xFF"});
  EXPECT_THAT(outcome.status, IsOk());
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, ::testing::HasSubstr("\"<|begin_of_text|>\"\t0-0\n"));
  EXPECT_THAT(outcome.out, ::testing::HasSubstr("\t\"Ġthe\"\t2-5\n"));
  EXPECT_THAT(outcome.out, ::testing::HasSubstr("\"Ċ\"\t5-6\n"));
  EXPECT_THAT(outcome.out, ::testing::EndsWith(" tokens\n"));
}

TEST(TokenizeCommandTest, WritesJson) {
  const Outcome outcome = RunTokenize({kModel, "--text=!", "--json", "--no-special-tokens"});
  EXPECT_THAT(outcome.status, IsOk());
  EXPECT_EQ(outcome.out,
            "{\"command\":\"tokenize\",\"ids\":[0],\"tokens\":[\"!\"],\"offsets\":[[0,1]],"
            "\"vocabulary_size\":2007}\n");
}

TEST(TokenizeCommandTest, ReadsFiles) {
  PosixFileCalls files;
  const std::string path = ::testing::TempDir() + "tokenize_text";
  const std::string text = "!!";
  GANTRY_CHECK_OK(WriteFileAtomically(files, path, std::as_bytes(std::span(text))));
  const std::string option = "--file=" + path;
  EXPECT_THAT(RunTokenize({kModel, option.c_str()}).out, ::testing::EndsWith(" tokens\n"));
  const Outcome missing = RunTokenize({kModel, "--file=/nowhere/text"});
  EXPECT_EQ(missing.exit_code, kExitFailure);
  EXPECT_THAT(missing.status, StatusIs(absl::StatusCode::kNotFound, "/nowhere/text"));
}

TEST(TokenizeCommandTest, WrongUsageIsTold) {
  const std::vector<std::vector<const char*>> cases = {
      {"--text=a"}, {kModel}, {kModel, "--text=a", "--file=b"}, {kModel, "--text=a", "--more"}};
  for (const std::vector<const char*>& words : cases) {
    const Outcome outcome = RunTokenize(words);
    EXPECT_EQ(outcome.exit_code, kExitUsage);
    EXPECT_THAT(outcome.status, StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(RunTokenize({"--model=/nowhere", "--text=a"}).exit_code, kExitFailure);
}

}  // namespace
}  // namespace gantry
