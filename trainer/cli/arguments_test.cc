#include "trainer/cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/testing/status_matchers.h"
#include "trainer/booster/run_config.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Arguments Parse(std::vector<const char*> words) { return *ParseArguments(words); }

TEST(Arguments, CommandWordsAndOptions) {
  const Arguments arguments =
      Parse({"train", "a.yaml", "--x=1", "--flag", "b", "--y=", "--z=p=q", "--", "--w", "-"});
  EXPECT_EQ(arguments.command, "train");
  EXPECT_THAT(arguments.words, ElementsAre("a.yaml", "b", "--w", "-"));
  ASSERT_EQ(arguments.options.size(), 4u);
  EXPECT_EQ(arguments.options[0].name, "x");
  EXPECT_EQ(arguments.options[0].value, "1");
  EXPECT_EQ(arguments.options[1].value, std::nullopt);
  EXPECT_EQ(arguments.options[2].value, "");
  EXPECT_EQ(arguments.options[3].value, "p=q");
  EXPECT_THAT(Parse({}).command, IsEmpty());
  EXPECT_EQ(Parse({"--a", "train"}).command, "train");
}

TEST(Arguments, HelpAndOtherSingleDashes) {
  EXPECT_EQ(Parse({"train", "-h"}).options[0].name, "help");
  EXPECT_THAT(ParseArguments(std::vector<const char*>{"train", "-q"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "'-q': options begin with two dashes"));
}

TEST(Arguments, TakesFlags) {
  Arguments arguments = Parse({"c", "--json", "--other", "--json"});
  EXPECT_THAT(TakeFlag(arguments, "json"), IsOkAndHolds(true));
  EXPECT_THAT(TakeFlag(arguments, "json"), IsOkAndHolds(false));
  EXPECT_EQ(arguments.options.size(), 1u);
  arguments = Parse({"c", "--json=yes"});
  EXPECT_THAT(TakeFlag(arguments, "json"),
              StatusIs(absl::StatusCode::kInvalidArgument, "--json takes no value"));
}

TEST(Arguments, TakesTheLastValue) {
  Arguments arguments = Parse({"c", "--out=a", "--out=b"});
  EXPECT_THAT(TakeValue(arguments, "out"), IsOkAndHolds(std::optional<std::string>("b")));
  EXPECT_THAT(TakeValue(arguments, "out"), IsOkAndHolds(std::optional<std::string>()));
  for (const char* bad : {"--out", "--out="}) {
    arguments = Parse({"c", bad});
    EXPECT_THAT(TakeValue(arguments, "out"),
                StatusIs(absl::StatusCode::kInvalidArgument, "--out needs a value"));
  }
}

TEST(Arguments, TheRestOverridesTheConfig) {
  RunConfig config;
  EXPECT_THAT(ApplyOverrides(Parse({"c", "--steps=3", "--train.keep=4", "--steps=5"}), config),
              IsOk());
  EXPECT_EQ(config.train.steps, 5);
  EXPECT_EQ(config.train.keep, 4);
  EXPECT_THAT(ApplyOverrides(Parse({"c", "--nosuch=1"}), config),
              StatusIs(absl::StatusCode::kInvalidArgument, "unknown key 'nosuch'"));
}

TEST(Arguments, NothingElse) {
  EXPECT_THAT(ExpectNothingElse(Parse({"c"})), IsOk());
  EXPECT_THAT(ExpectNothingElse(Parse({"c", "w"})),
              StatusIs(absl::StatusCode::kInvalidArgument, "'w' is one word too many"));
  EXPECT_THAT(ExpectNothingElse(Parse({"c", "--o=1"})),
              StatusIs(absl::StatusCode::kInvalidArgument, "unknown option '--o'"));
}

}  // namespace
}  // namespace gantry
