#include "trainer/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

constexpr size_t kBodyBegin = 49;  // behind `{"checksum": "` , 32 digits and `",\n`

CheckpointManifest Example() {
  const std::string sum(32, 'a');
  CheckpointManifest manifest;
  manifest.position = {.step = 12, .sequences = 96};
  manifest.settings = {{"data.seed", "7"}, {"model.layers", "2"}};
  manifest.tensors = {
      {.name = "w",
       .shape = {2, 3},
       .dtype = DType::kBF16,
       .trainability = Trainability::kTrainable,
       .states = {{.kind = StateKind::kMaster, .offset = 0, .bytes = 24, .checksum = sum},
                  {.kind = StateKind::kMomentum, .offset = 24, .bytes = 24, .checksum = sum},
                  {.kind = StateKind::kVariance, .offset = 48, .bytes = 24, .checksum = sum}}},
      {.name = "f",
       .shape = {4},
       .dtype = DType::kBF16,
       .trainability = Trainability::kFrozen,
       .states = {{.kind = StateKind::kParameter, .offset = 72, .bytes = 8, .checksum = sum}}}};
  return manifest;
}

std::string Text() { return *SerializeManifest(Example()); }

// Replaces the first `from` and makes the checksum right again, as a liar would.
std::string Forge(std::string_view from, std::string_view to) {
  std::string text = Text();
  const size_t at = text.find(from, kBodyBegin);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  Hasher hasher;
  hasher.Update(std::string_view(text).substr(kBodyBegin));
  return text.replace(14, 32, hasher.HexDigest());
}

TEST(Manifest, SavesWhatCannotBeDerived) {
  using enum OptimizerKind;
  for (const OptimizerKind kind : {kAdamW, kAdam}) {
    EXPECT_THAT(SavedStates(DType::kBF16, Trainability::kTrainable, kind),
                ElementsAre(StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance));
    EXPECT_THAT(SavedStates(DType::kF32, Trainability::kTrainable, kind),
                ElementsAre(StateKind::kParameter, StateKind::kMomentum, StateKind::kVariance));
  }
  for (const OptimizerKind kind : {kSgd, kLion}) {
    EXPECT_THAT(SavedStates(DType::kBF16, Trainability::kTrainable, kind),
                ElementsAre(StateKind::kMaster, StateKind::kMomentum));
    EXPECT_THAT(SavedStates(DType::kBF16, Trainability::kFrozen, kind),
                ElementsAre(StateKind::kParameter));
  }
  EXPECT_THAT(SavedStates(DType::kBF16, Trainability::kTrainable, kAdafactor),
              ElementsAre(StateKind::kMaster, StateKind::kVariance));
  EXPECT_EQ(SavedDType(StateKind::kParameter, DType::kBF16), DType::kBF16);
  EXPECT_EQ(SavedDType(StateKind::kMomentum, DType::kBF16), DType::kF32);
}

TEST(Manifest, ComesBackAsItWas) {
  const auto parsed = ParseManifest(Text());
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(parsed->position.step, 12);
  EXPECT_EQ(parsed->position.sequences, 96);
  EXPECT_EQ(parsed->settings, Example().settings);
  EXPECT_EQ(parsed->state_bytes(), 80);
  ASSERT_EQ(parsed->tensors.size(), 2u);
  EXPECT_EQ(parsed->tensors[0].name, "w");
  EXPECT_THAT(parsed->tensors[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(parsed->tensors[1].trainability, Trainability::kFrozen);
  EXPECT_EQ(parsed->tensors[0].states[2].offset, 48);
  EXPECT_EQ(*SerializeManifest(*parsed), Text());
}

TEST(Manifest, RemembersTheProgressOfARun) {
  CheckpointManifest manifest = Example();
  manifest.position = {.step = 12,
                       .sequences = 96,
                       .updates = 11,
                       .evaluated_step = 10,
                       .loss_scale = LossScale{.scale = 32768.0, .good_steps = 4},
                       .best = BestEvaluation{.step = 5, .loss = 0.1 + 0.2},
                       .loss_to_beat = 1.0 / 3.0,
                       .evaluations_without_improvement = 2};
  const auto parsed = ParseManifest(*SerializeManifest(manifest));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(parsed->position, manifest.position);
}

// Checkpoints of the time before skipped no step.
TEST(Manifest, ProgressFollowsFromTheStepInOldOnes) {
  const auto old = ParseManifest(Forge("progress", "progres"));
  ASSERT_THAT(old, IsOk());
  EXPECT_EQ(old->position,
            (RunPosition{.step = 12, .sequences = 96, .updates = 12, .evaluated_step = 12}));
}

TEST(Manifest, RefusesProgressThatCannotBe) {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"updates\": 0", "\"updates\": 13"},
           {"\"updates\": 0", "\"updates\": -1"},
           {"\"updates\": 0", "\"updates\": \"1\""},
           {"\"updates\"", "\"update\""},
           {"\"evaluated_step\": 0", "\"evaluated_step\": 99"},
           {"\"updates\": 0", "\"updates\": 0, \"best\": 3"},
           {"\"updates\": 0", "\"updates\": 0, \"best\": {\"step\": 3, \"loss\": null}"},
           {"\"updates\": 0", "\"updates\": 0, \"best\": {\"step\": 33, \"loss\": 1}"},
           {"\"updates\": 0", "\"updates\": 0, \"loss_to_beat\": \"low\""},
           {"\"updates\": 0", "\"updates\": 0, \"loss_scale\": {\"scale\": 0, \"good_steps\": 0}"},
           {"\"updates\": 0", "\"updates\": 0, \"loss_scale\": {\"scale\": 1}"}}) {
    EXPECT_THAT(ParseManifest(Forge(from, to)), StatusIs(absl::StatusCode::kDataLoss)) << to;
  }
}

TEST(Manifest, NamesItsOptimizer) {
  CheckpointManifest lion = Example();
  lion.optimizer = OptimizerKind::kLion;
  lion.tensors[0].states.pop_back();
  lion.tensors[1].states[0].offset = 48;
  const auto parsed = ParseManifest(*SerializeManifest(lion));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(parsed->optimizer, OptimizerKind::kLion);
  EXPECT_EQ(parsed->state_bytes(), 56);
  // Manifests of the time before do not, and are of AdamW.
  const auto old = ParseManifest(Forge("\"optimizer\": \"adamw\",\n", ""));
  ASSERT_THAT(old, IsOk());
  EXPECT_EQ(old->optimizer, OptimizerKind::kAdamW);
}

TEST(Manifest, AFactoredVarianceIsAsLongAsItsFactors) {
  CheckpointManifest adafactor = Example();
  adafactor.optimizer = OptimizerKind::kAdafactor;
  std::vector<StateEntry>& states = adafactor.tensors[0].states;  // of [2, 3]
  states.erase(states.begin() + 1);
  states[1].offset = 24;
  for (const int64_t factors : {2 + 3, 2 * 3}) {
    states[1].bytes = factors * 4;
    adafactor.tensors[1].states[0].offset = 24 + states[1].bytes;
    const auto parsed = ParseManifest(*SerializeManifest(adafactor));
    if (factors == 5) {
      ASSERT_THAT(parsed, IsOk());
      EXPECT_EQ(parsed->tensors[0].states[1].bytes, 20);
    } else {
      EXPECT_THAT(parsed, StatusIs(absl::StatusCode::kDataLoss, "not at 24 with 20"));
    }
  }
}

TEST(Manifest, AnEmptyModelIsAModel) { EXPECT_THAT(ParseManifest(*SerializeManifest({})), IsOk()); }

TEST(Manifest, AScalarHasOneElement) {
  CheckpointManifest manifest = Example();
  manifest.tensors = {manifest.tensors[1]};
  manifest.tensors[0].shape = {};
  manifest.tensors[0].states[0].offset = 0;
  manifest.tensors[0].states[0].bytes = 2;
  EXPECT_THAT(ParseManifest(*SerializeManifest(manifest)), IsOk());
}

TEST(Manifest, EveryFlippedBitIsNoticed) {
  const std::string good = Text();
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      ASSERT_THAT(ParseManifest(bad), StatusIs(absl::StatusCode::kDataLoss))
          << "byte " << i << " bit " << bit;
    }
  }
}

TEST(Manifest, EveryCutIsNoticed) {
  const std::string good = Text();
  for (size_t size = 0; size < good.size(); ++size) {
    ASSERT_THAT(ParseManifest(std::string_view(good).substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss))
        << size;
  }
  EXPECT_THAT(ParseManifest(good + " "), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(Manifest, RefusesContradictions) {
  struct Case {
    const char* from;
    const char* to;
    const char* message;
  };
  const Case cases[] = {
      {"\"step\": 12", "\"step\": -1", "'step' is no count"},
      {"\"step\": 12", "\"step\": 1.5", "'step' is no count"},
      {"\"step\": 12", "\"step\": \"12\"", "'step' is no count"},
      {"\"step\": 12", "\"step\": 18446744073709551615", "'step' is no count"},
      {"\"step\": 12", "\"stap\": 12", "'step' is missing"},
      {"\"state_bytes\": 80", "\"state_bytes\": 81", "it counts 81 bytes of state"},
      {"gantry-checkpoint", "other-checkpoint", "its format is 'other-checkpoint'"},
      {"\"data.seed\": \"7\"", "\"data.seed\": 7", "setting 'data.seed' is no text"},
      {"\"optimizer\": \"adamw\"", "\"optimizer\": \"sgd\"", "it has 3 states"},
      {"\"optimizer\": \"adamw\"", "\"optimizer\": \"adamx\"", "'adamx' is no optimizer"},
      {"\"optimizer\": \"adamw\"", "\"optimizer\": 3", "'optimizer' is no text"},
      {"\"name\": \"w\"", "\"name\": \"\"", "is empty or there twice"},
      {"\"name\": \"w\"", "\"name\": \"f\"", "tensor's name, 'f'"},
      {"\"name\": \"w\"", "\"name\": null", "'name' is no text"},
      {"\"dtype\": \"bf16\"", "\"dtype\": \"int8\"", "'int8' is no dtype"},
      {"\"dtype\": \"bf16\"", "\"dtype\": \"bfloat16\"", "'bfloat16' is no dtype"},
      {"\"dtype\": \"bf16\"", "\"dtype\": \"f32\"", "where parameter in f32 belongs"},
      {"\"trainable\": true", "\"trainable\": 1", "neither true nor false"},
      {"\"trainable\": true", "\"trainable\": false", "it has 3 states"},
      {"\"kind\": \"master\"", "\"kind\": \"momentum\"", "where master in f32 belongs"},
      {"\"offset\": 24", "\"offset\": 0", "its momentum lies at 0 with 24 bytes, not at 24"},
      {"\"offset\": 24", "\"offset\": 9223372036854775807", "its momentum lies at 922"},
      {"\"bytes\": 24", "\"bytes\": 0", "its master lies at 0 with 0 bytes"},
      {"aaaa", "aaa", "its checksum is malformed"},
  };
  for (const Case& item : cases) {
    SCOPED_TRACE(StrCat(item.from, " -> ", item.to));
    EXPECT_THAT(ParseManifest(Forge(item.from, item.to)),
                StatusIs(absl::StatusCode::kDataLoss, item.message));
  }
}

TEST(Manifest, RefusesImpossibleShapes) {
  const std::string shape = "\"shape\": [\n    2,\n    3\n   ]";
  for (const char* to : {"[0]", "[-2]", "[2.5]", "[[2]]", "[288230376151711745]",
                         "[4294967296, 4294967296, 4294967296, 4294967296]", "7"}) {
    SCOPED_TRACE(to);
    EXPECT_THAT(ParseManifest(Forge(shape, StrCat("\"shape\": ", to))),
                StatusIs(absl::StatusCode::kDataLoss, "tensor 'w': "));
  }
}

TEST(Manifest, RefusesOtherVersionsAndOtherText) {
  EXPECT_THAT(ParseManifest(Forge("\"version\": 1", "\"version\": 2")),
              StatusIs(absl::StatusCode::kFailedPrecondition, "version 2"));
  EXPECT_THAT(ParseManifest("{}"), StatusIs(absl::StatusCode::kDataLoss, "no checkpoint's"));
  EXPECT_THAT(ParseManifest(Forge("{", "{,")), StatusIs(absl::StatusCode::kDataLoss, "no JSON"));
  EXPECT_THAT(ParseManifest(Forge("\"7\"", std::string("\"7\"\0", 4))),
              StatusIs(absl::StatusCode::kDataLoss, "a zero byte"));
  const std::string open(100000, '[');
  EXPECT_THAT(ParseManifest(Forge("\"7\"", open + std::string(100000, ']'))),
              StatusIs(absl::StatusCode::kDataLoss, "nested too deep"));
  EXPECT_THAT(ParseManifest(Forge("\"7\"", "[[]]")),
              StatusIs(absl::StatusCode::kDataLoss, "setting 'data.seed' is no text"));
  // Brackets in text are no nesting.
  EXPECT_THAT(ParseManifest(Forge("\"7\"", StrCat("\"\\\"", open, "\""))), IsOk());
}

TEST(Manifest, RefusesToSaveWhatItCouldNotRead) {
  CheckpointManifest manifest = Example();
  manifest.settings["key"] = "\xff";
  EXPECT_THAT(SerializeManifest(manifest), StatusIs(absl::StatusCode::kInvalidArgument));
  manifest.settings["key"] = std::string(static_cast<size_t>(kManifestBytesMax.count()), 'x');
  EXPECT_THAT(SerializeManifest(manifest), StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace gantry
