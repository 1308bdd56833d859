#include "trainer/booster/parameter_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/testing/status_matchers.h"
#include "gemini/parameter_store.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

TEST(ParameterGroups, TextComesBackAsItWas) {
  for (const ParameterGroup& group : std::vector<ParameterGroup>{
           {.match = "*"},
           {.match = "*.bias", .weight_decay = 0.0},
           {.match = "lm_head.*", .learning_rate_factor = 0.1, .weight_decay = 1.0 / 3.0},
           {.match = "a=b", .learning_rate_factor = 0.0}}) {
    EXPECT_THAT(ParseParameterGroup(FormatParameterGroup(group)), IsOkAndHolds(group));
  }
  EXPECT_EQ(FormatParameterGroup({.match = "*.bias", .weight_decay = 0.0}),
            "match=*.bias;weight_decay=0");
}

TEST(ParameterGroups, SayWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "expected key=value, not ''"},
      {"*.bias", "expected key=value, not '*.bias'"},
      {"match=", "match is empty"},
      {"weight_decay=0", "match is missing"},
      {"match=a;", "expected key=value, not ''"},
      {"match=a;match=b", "match is set twice"},
      {"match=a;lr=1", "unknown key 'lr'"},
      {"match=a;weight_decay=-0.1", "weight_decay must be a number from 0 to 100, not '-0.1'"},
      {"match=a;weight_decay=101", "weight_decay must be a number from 0 to 100"},
      {"match=a;weight_decay=nan", "weight_decay must be a number"},
      {"match=a;weight_decay=", "weight_decay must be a number"},
      {"match=a;learning_rate_factor=1e9", "learning_rate_factor must be a number from 0 to 1000"},
      {"match=a;learning_rate_factor=1x", "learning_rate_factor must be a number"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseParameterGroup(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << text;
  }
}

TEST(ParameterGroups, StarsStandForAnyCharacters) {
  for (const auto& [pattern, name] : std::vector<std::pair<std::string, std::string>>{
           {"*", ""},
           {"*", "a.b"},
           {"a", "a"},
           {"a*", "a"},
           {"*a", "ba"},
           {"*.bias", "h.0.bias"},
           {"model.layers.*.mlp.*.weight", "model.layers.11.mlp.up_proj.weight"},
           {"**", "x"},
           {"*ab*ab", "ababab"},
           {"", ""}}) {
    EXPECT_TRUE(MatchesPattern(pattern, name)) << pattern << " " << name;
  }
  for (const auto& [pattern, name] :
       std::vector<std::pair<std::string, std::string>>{{"", "a"},
                                                        {"a", ""},
                                                        {"a", "ab"},
                                                        {"*b", "ba"},
                                                        {"*.bias", "bias"},
                                                        {"a*b", "abc"},
                                                        {"a.b", "axb"},
                                                        {"*ab*ab", "ab"}}) {
    EXPECT_FALSE(MatchesPattern(pattern, name)) << pattern << " " << name;
  }
}

// The worst pattern: time is quadratic, not exponential.
TEST(ParameterGroups, ManyStarsTakeNoTime) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(MatchesPattern(pattern + "b", std::string(2000, 'a')));
}

TEST(ParameterGroups, FirstMatchCounts) {
  const std::vector<ParameterGroup> groups = {
      {.match = "head.*", .learning_rate_factor = 0.5},
      {.match = "*", .learning_rate_factor = 2.0, .weight_decay = 0.3}};
  const GroupedRegistration registration(groups, 0.1);
  EXPECT_EQ(registration.weight_decay(), 0.1);
  const RegistrationOptions head = registration.For("head.w", {});
  EXPECT_EQ(head.learning_rate_factor, 0.5);
  EXPECT_EQ(head.weight_decay_factor, 1.0);
  const RegistrationOptions norm = registration.For("norm", {.weight_decay_factor = 0.0});
  EXPECT_EQ(norm.learning_rate_factor, 2.0);
  EXPECT_DOUBLE_EQ(norm.weight_decay_factor * registration.weight_decay(), 0.3);
}

TEST(ParameterGroups, WithoutGroupsNothingChanges) {
  const GroupedRegistration registration({}, 0.1);
  EXPECT_EQ(registration.weight_decay(), 0.1);
  EXPECT_EQ(registration.For("w", {}).weight_decay_factor, 1.0);
  EXPECT_EQ(registration.For("n", {.weight_decay_factor = 0.0}).weight_decay_factor, 0.0);
  EXPECT_EQ(GroupedRegistration({}, 0.0).weight_decay(), 0.0);
}

TEST(ParameterGroups, AGroupMayBeTheOnlyOneThatDecays) {
  const std::vector<ParameterGroup> groups = {{.match = "w", .weight_decay = 0.25}};
  const GroupedRegistration registration(groups, 0.0);
  EXPECT_EQ(registration.For("w", {}).weight_decay_factor * registration.weight_decay(), 0.25);
  EXPECT_EQ(registration.For("x", {}).weight_decay_factor, 0.0);
  const std::vector<ParameterGroup> none = {{.match = "w", .weight_decay = 0.0}};
  EXPECT_EQ(GroupedRegistration(none, 0.0).For("w", {}).weight_decay_factor, 0.0);
}

TEST(ParameterGroups, AGroupThatMatchesNothingIsAnError) {
  const std::vector<std::string> names = {"model.norm.weight", "lm_head.weight"};
  const std::vector<ParameterGroup> used = {{.match = "lm_head.*"}, {.match = "*"}};
  EXPECT_THAT(CheckGroupsAreUsed(used, names), IsOk());
  const std::vector<ParameterGroup> hidden = {{.match = "*"}, {.match = "lm_head.*"}};
  EXPECT_THAT(CheckGroupsAreUsed(hidden, names),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'lm_head.*' matches no")));
  const std::vector<ParameterGroup> wrong = {{.match = "head"}};
  EXPECT_THAT(CheckGroupsAreUsed(wrong, names),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'lm_head.weight'")));
  EXPECT_THAT(CheckGroupsAreUsed({}, names), IsOk());
}

}  // namespace
}  // namespace gantry
