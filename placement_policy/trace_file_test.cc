// Round trips of random traces, each field's errors by name, and changed text of all kinds: parsing
// ends with an error or with a trace that validates.
#include "placement_policy/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/testing/random_trace.h"
#include "placement_policy/trace.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Equal field by field. The fields that a struct gains must be added here: hence the sizes.
static_assert(sizeof(Moment) == 48 && sizeof(BlockUse) == 8 && sizeof(TraceChunk) == 20 &&
              sizeof(SavedActivation) == 24);
void ExpectEqual(const Trace& a, const Trace& b) {
  ASSERT_EQ(a.block_slots, b.block_slots);
  ASSERT_EQ(a.names, b.names);
  ASSERT_EQ(a.slot_bytes, b.slot_bytes);
  ASSERT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.uses.size(), b.uses.size());
  for (size_t i = 0; i < a.uses.size(); ++i) {
    ASSERT_EQ(a.uses[i].block, b.uses[i].block) << i;
    ASSERT_EQ(a.uses[i].access, b.uses[i].access) << i;
  }
  ASSERT_EQ(a.moments.size(), b.moments.size());
  for (size_t i = 0; i < a.moments.size(); ++i) {
    const auto fields = [](const Moment& m) {
      return std::tuple(m.phase, m.name, m.first_use, m.use_count, m.compute, m.activation_slots,
                        m.micro_batch, m.layer);
    };
    ASSERT_EQ(fields(a.moments[i]), fields(b.moments[i])) << i;
  }
  ASSERT_EQ(a.chunks.size(), b.chunks.size());
  for (size_t i = 0; i < a.chunks.size(); ++i) {
    ASSERT_EQ(a.chunks[i].parameter, b.chunks[i].parameter) << i;
    ASSERT_EQ(a.chunks[i].gradient, b.chunks[i].gradient) << i;
    ASSERT_EQ(a.chunks[i].states, b.chunks[i].states) << i;
  }
  ASSERT_EQ(a.activations.size(), b.activations.size());
  for (size_t i = 0; i < a.activations.size(); ++i) {
    const auto fields = [](const SavedActivation& s) {
      return std::tuple(s.created, s.used, s.slots, s.recompute);
    };
    ASSERT_EQ(fields(a.activations[i]), fields(b.activations[i])) << i;
  }
}

TEST(TraceFileTest, RandomTracesSurviveTheRoundTrip) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    Trace trace = RandomTrace(dice);
    for (std::string& name : trace.names) name += "\"\\\n\xc3\xa9{[";
    const std::string text = FormatTrace(trace, {});
    const absl::StatusOr<Trace> parsed = ParseTrace(text);
    ASSERT_THAT(parsed, IsOk());
    ExpectEqual(trace, *parsed);
    ASSERT_EQ(FormatTrace(*parsed, {}), text);
  }
}

TEST(TraceFileTest, EmptyTrace) {
  const absl::StatusOr<Trace> parsed = ParseTrace(FormatTrace(Trace{}, {}));
  ASSERT_THAT(parsed, IsOk());
  ExpectEqual(Trace{}, *parsed);
}

Trace SmallTrace() {
  Trace trace;
  trace.block_slots = {1, 1, 2, 0};
  trace.names = {"secret layer", "update"};
  trace.uses = {{.block = 0, .access = BlockAccess::kRead},
                {.block = 1, .access = BlockAccess::kCreate},
                {.block = 1, .access = BlockAccess::kConsume},
                {.block = 2, .access = BlockAccess::kWrite}};
  trace.moments = {{.phase = Phase::kForward,
                    .name = 0,
                    .first_use = 0,
                    .use_count = 1,
                    .compute = 1500,
                    .activation_slots = 3,
                    .layer = 0},
                   {.phase = Phase::kBackward,
                    .name = 0,
                    .first_use = 1,
                    .use_count = 1,
                    .compute = 3000,
                    .activation_slots = 3,
                    .layer = 0},
                   {.phase = Phase::kOptimizer,
                    .name = 1,
                    .first_use = 2,
                    .use_count = 2,
                    .compute = 70,
                    .activation_slots = 0}};
  trace.chunks = {{.parameter = 0, .gradient = 1, .states = {2, -1, -1}}};
  trace.activations = {{.created = 0, .used = 1, .slots = 2, .recompute = 1400}};
  trace.slot_bytes = 2_MiB;
  trace.tokens = 512;
  return trace;
}

// The text that docs/formats/trace.md shows.
constexpr std::string_view kSmallText = R"({"format": "gantry-trace", "version": 1,
"slot_bytes": 2097152, "tokens": 512,
"names": [
 "secret layer",
 "update"
],
"block_slots": [
 1,1,2,0
],
"chunks": [
 [0,1,2,-1,-1]
],
"activations": [
 [0,1,2,1400]
],
"moments": [
 ["f",0,1500,3,0,0,[0,"r"]],
 ["b",0,3000,3,0,0,[1,"c"]],
 ["o",1,70,0,0,-1,[1,"x",2,"w"]]
]}
)";

TEST(TraceFileTest, TheTextIsTheDocumentedOne) {
  EXPECT_EQ(FormatTrace(SmallTrace(), {}), kSmallText);
}

TEST(TraceFileTest, NamesCanBeDropped) {
  const std::string text = FormatTrace(SmallTrace(), {.names = TraceNames::kDrop});
  EXPECT_THAT(text, Not(HasSubstr("secret")));
  const absl::StatusOr<Trace> parsed = ParseTrace(text);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_THAT(parsed->names, ElementsAre("operator 0", "operator 1"));
  EXPECT_EQ(FormatTrace(*parsed, {}), text);
}

// Uses in any order, and those of no moment: the file has them in the order of the moments.
TEST(TraceFileTest, UsesAreWrittenByMoment) {
  Trace trace = SmallTrace();
  std::swap(trace.moments[0].first_use, trace.moments[1].first_use);
  trace.moments[2].use_count = 1;
  trace.moments[0].phase = Phase::kBackward;
  const absl::StatusOr<Trace> parsed = ParseTrace(FormatTrace(trace, {}));
  ASSERT_THAT(parsed, IsOk());
  ASSERT_EQ(parsed->uses.size(), 3u);
  for (size_t i = 0; i < trace.moments.size(); ++i) {
    EXPECT_EQ(parsed->uses_of(parsed->moments[i])[0].block,
              trace.uses_of(trace.moments[i])[0].block);
  }
}

TEST(TraceFileTest, ErrorsNameTheField) {
  const std::pair<std::pair<std::string_view, std::string_view>, const char*> cases[] = {
      {{"\"version\": 1", "\"version\": 2"}, "version is 2, but this program reads version 1"},
      {{"gantry-trace", "gantry-plan"}, "format is \"gantry-plan\""},
      {{"\"tokens\": 512,", ""}, "trace file: tokens is missing"},
      {{"\"tokens\"", "\"token\""}, "token is not known; did you mean 'tokens'?"},
      {{"\"tokens\": 512", "\"tokens\": 512, \"tokens\": 5"}, "'tokens' is there twice"},
      {{"512", "-1"}, "tokens is -1, outside [0, 9007199254740992]"},
      {{"512", "9007199254740993"}, "tokens is 9007199254740993, outside"},
      {{"512", "1.5"}, "tokens is 1.5, not an integer"},
      {{"512", "\"512\""}, "tokens is \"512\", not an integer"},
      {{"2097152", "null"}, "slot_bytes is null, not an integer"},
      {{"\"update\"", "7"}, "names[1] is 7, not a text"},
      {{"1,1,2,0", "1,3,2,0"}, "block_slots[1] is 3, outside [0, 2]"},
      {{"[0,1,2,-1,-1]", "[0,1,2,-1]"}, "chunks[0] is a list of 4, not a list of 5"},
      {{"[0,1,2,-1,-1]", "[0,1,1,-1,-1]"}, "chunks[0].states[0] is 1, which another field has"},
      {{"[0,1,2,-1,-1]", "[0,-2,2,-1,-1]"}, "chunks[0].gradient is -2, outside [-1, 2147483647]"},
      {{"[0,1,2,-1,-1]", "[3,1,2,-1,-1]"}, "chunks[0].parameter is 3, which is no block"},
      {{"[0,1,2,1400]", "[1,0,2,1400]"}, "activations[0].used is 0; it must be a moment after 1"},
      {{"[0,1,2,1400]", "[1,1,2,1400]"}, "activations[0].used is 1; it must be a moment after 1"},
      {{"[0,1,2,1400]", "[0,3,2,1400]"}, "activations[0].used is 3"},
      {{"[0,1,2,1400]", "[0,1,4,1400]"}, "moments[0].activation_slots is 3, fewer than the saved"},
      {{"[0,1,2,1400]", "[0,1,2,-3]"}, "activations[0].recompute is -3, outside"},
      {{"[\"f\"", "[\"g\""}, "moments[0].phase is \"g\", none of f, b, o"},
      {{"1500", "-1500"}, "moments[0].compute is -1500, outside"},
      {{"1500", "1e3"}, "moments[0].compute is 1000.0, not an integer"},
      {{"1500", "9007199254740992"}, "compute and recompute sum up to"},
      {{"[\"o\",1,", "[\"o\",2,"}, "moments[2].name is 2 of 2 names"},
      {{"[0,\"r\"]", "[4,\"r\"]"}, "uses[0].block is 4 of 4 blocks"},
      {{"[0,\"r\"]", "[3,\"r\"]"}, "uses[0].block is 3, which does not exist"},
      {{"[0,\"r\"]", "[0,\"q\"]"}, "moments[0].uses[1] is \"q\", none of r, w, c, x"},
      {{"[0,\"r\"]", "[0]"}, "moments[0].uses is a list of 1, but blocks and accesses"},
      {{"[0,\"r\"]", "[2147483648,\"r\"]"}, "moments[0].uses[0] is 2147483648, outside"},
      {{"[0,\"r\"]]", "[0,\"r\"],1]"}, "moments[0] is a list of 8, not a list of 7"},
      {{"[0,\"r\"]", "[[[[[[[[0]]]]]]]]"}, "nested deeper than 8"},
      {{"\n]}\n", "\n]}}"}, "no JSON from byte"}};
  for (const auto& [change, message] : cases) {
    std::string text(kSmallText);
    const size_t at = text.find(change.first);
    ASSERT_NE(at, std::string::npos) << change.first;
    text.replace(at, change.first.size(), change.second);
    EXPECT_THAT(ParseTrace(text), StatusIs(kInvalid, message)) << change.second;
  }
}

TEST(TraceFileTest, EveryTruncationIsAnError) {
  for (size_t size = 0; size + 1 < kSmallText.size(); ++size) {
    ASSERT_THAT(ParseTrace(kSmallText.substr(0, size)), StatusIs(kInvalid, "trace file: no JSON"))
        << size;
  }
}

// The limit itself: JsonDocumentTest.
TEST(TraceFileTest, TextIsBounded) {
  std::string text(kTraceFileBytesMax + 1, ' ');
  text.replace(0, kSmallText.size(), kSmallText);
  EXPECT_THAT(ParseTrace(text), StatusIs(kInvalid, "it has 268435457 bytes"));
}

// Parses, and checks what came out of it. Returns whether it was accepted.
bool AcceptsOrRefuses(const std::string& text) {
  const absl::StatusOr<Trace> parsed = ParseTrace(text);
  if (!parsed.ok()) {
    EXPECT_THAT(parsed.status(), StatusIs(kInvalid, "trace"));
    return false;
  }
  EXPECT_THAT(parsed->Validate(), IsOk());
  const std::string formatted = FormatTrace(*parsed, {});
  const absl::StatusOr<Trace> again = ParseTrace(formatted);
  EXPECT_THAT(again, IsOk());
  EXPECT_EQ(FormatTrace(*again, {}), formatted);
  return true;
}

TEST(TraceFileFuzzTest, ChangedBytes) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    std::string text = FormatTrace(RandomTrace(dice), {});
    const int64_t changes = 1 + dice.Below(3);
    for (int64_t i = 0; i < changes; ++i) {
      char& byte = dice.Pick(text);
      switch (dice.Below(3)) {
        case 0:
          byte = static_cast<char>(dice.Below(256));
          break;
        case 1:
          byte = static_cast<char>(byte ^ (1 << dice.Below(8)));
          break;
        default:
          byte = "0123456789-.,[]{}\"e "[dice.Below(20)];
      }
    }
    if (AcceptsOrRefuses(text)) ++accepted;
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 3900);
}

// Any value of a random kind.
Json RandomValue(Dice& dice) {
  switch (dice.Below(9)) {
    case 0:
      return nullptr;
    case 1:
      return dice.Below(2) == 0;
    case 2:
      return dice.Below(5) - 2;
    case 3:
      return static_cast<int64_t>(dice.Bits()) >> dice.Below(64);
    case 4:
      return dice.Bits();
    case 5:
      return 0.5 * static_cast<double>(dice.Below(100));
    case 6:
      return std::vector<std::string>{"f", "r", "x", "other"}[static_cast<size_t>(dice.Below(4))];
    case 7:
      return Json::array();
    default:
      return Json::object();
  }
}

// Replaces, removes, doubles or exchanges something somewhere in `json`.
void Edit(Json& json, Dice& dice) {
  if (json.is_structured() && !json.empty() && dice.Below(6) != 0) {
    auto child = json.begin();
    std::advance(child, dice.Below(static_cast<int64_t>(json.size())));
    Edit(*child, dice);
    return;
  }
  if (json.is_array() && !json.empty()) {
    const auto at = static_cast<size_t>(dice.Below(static_cast<int64_t>(json.size())));
    switch (dice.Below(3)) {
      case 0:
        json.erase(at);
        return;
      case 1:
        json.push_back(Json(json[at]));
        return;
      default:
        std::swap(json[at], json[0]);
        return;
    }
  }
  json = RandomValue(dice);
}

TEST(TraceFileFuzzTest, EditedValues) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    Json json = Json::parse(FormatTrace(RandomTrace(dice), {}));
    const int64_t edits = 1 + dice.Below(2);
    for (int64_t i = 0; i < edits; ++i) Edit(json, dice);
    if (AcceptsOrRefuses(json.dump())) ++accepted;
  }
  EXPECT_GT(accepted, 200);
  EXPECT_LT(accepted, 3800);
}

TEST(TraceFileDeathTest, InvalidTracesAreNotWritten) {
  Trace trace = SmallTrace();
  trace.tokens = -1;
  EXPECT_DEATH(FormatTrace(trace, {}), "tokens is -1");
}

}  // namespace
}  // namespace gantry
