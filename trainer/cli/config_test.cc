#include "trainer/cli/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "device/device.h"
#include "nvme/create_io_backend.h"
#include "trainer/booster/learning_rate.h"
#include "trainer/booster/parameter_groups.h"
#include "trainer/booster/run_config.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/cli/config_fields.h"
#include "trainer/models/decoder_config.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string YamlError(std::string_view text) {
  RunConfig config;
  return std::string(FromAbsl(ApplyYaml(text, "c.yaml", config).message()));
}
std::string OverrideError(std::string_view key, const std::optional<std::string>& value) {
  RunConfig config;
  return std::string(FromAbsl(ApplyOverride(key, value, config).message()));
}

TEST(Config, ReadsEveryKindOfValue) {
  RunConfig config;
  ASSERT_THAT(ApplyYaml(R"(
model:
  layers: 14
  tie_embeddings: yes
  rope_theta: 5e5
data:
  files: [a.txt, "b c.txt"]
  seed: 9223372036854775807
schedule: {shape: linear, peak: .001}
memory:
  device: emulated
  device_memory: 128MiB
  host_memory: 1.5 GiB
  spill_dirs: [/tmp/x, "/tmp/y,z"]
  spill_shares: [2, 0.5]
  io: threads
  policy: lru
train: {dtype: f32, recompute: layer, resume: never}
)",
                        "c.yaml", config),
              IsOk());
  EXPECT_EQ(config.model.layers, 14);
  EXPECT_TRUE(config.model.tie_embeddings);
  EXPECT_EQ(config.model.rope_theta, 5e5);
  EXPECT_THAT(config.data.files, ElementsAre("a.txt", "b c.txt"));
  EXPECT_EQ(config.data.seed, 9223372036854775807u);
  EXPECT_EQ(config.schedule.shape, ScheduleShape::kLinear);
  EXPECT_EQ(config.schedule.peak, 0.001);
  EXPECT_EQ(config.memory.device, DeviceTopology::kDiscrete);
  EXPECT_EQ(config.memory.device_memory, 128_MiB);
  EXPECT_EQ(config.memory.host_memory, 1536_MiB);
  EXPECT_THAT(config.memory.spill_dirs, ElementsAre("/tmp/x", "/tmp/y,z"));
  EXPECT_THAT(config.memory.spill_shares, ElementsAre(2.0, 0.5));
  EXPECT_EQ(config.memory.io, IoPreference::kThreads);
  EXPECT_EQ(config.memory.policy, "lru");
  EXPECT_EQ(config.model.parameter_dtype, DType::kF32);
  EXPECT_EQ(config.model.recompute, Recompute::kLayer);
  EXPECT_EQ(config.train.resume, "never");
  EXPECT_EQ(config.model.width, RunConfig().model.width);
}

TEST(Config, YamlErrorsNameLineKeyAndExpectation) {
  struct Case {
    const char* text;
    const char* message;
  };
  const Case cases[] = {
      {"model:\n  layers: many\n",
       "c.yaml:2: model.layers: expected a whole number from 1 to 100000, not 'many'"},
      {"model: {layers: 0}",
       "c.yaml:1: model.layers: expected a whole number from 1 to 100000, not '0'"},
      {"model: {layers: 1.5}",
       "c.yaml:1: model.layers: expected a whole number from 1 to 100000, not '1.5'"},
      {"model: {layers: 9223372036854775808}",
       "c.yaml:1: model.layers: expected a whole number from 1 to 100000, not "
       "'9223372036854775808'"},
      {"model: {layers: [1, 2]}",
       "c.yaml:1: model.layers: expected a whole number from 1 to 100000, not a list of 2"},
      {"model: {layers: \"\"}",
       "c.yaml:1: model.layers: expected a whole number from 1 to 100000, not ''"},
      {"model: {rope_theta: .nan}",
       "c.yaml:1: model.rope_theta: expected a number of at least 1, not '.nan'"},
      {"model: {rope_theta: inf}",
       "c.yaml:1: model.rope_theta: expected a number of at least 1, not 'inf'"},
      {"optimizer: {epsilon: 0}",
       "c.yaml:1: optimizer.epsilon: expected a number above 0 and at most 1, not '0'"},
      {"generate: {top_p: 1.01}",
       "c.yaml:1: generate.top_p: expected a number above 0 and at most 1, not '1.01'"},
      {"model: {tie_embeddings: maybe}",
       "c.yaml:1: model.tie_embeddings: expected true or false, not 'maybe'"},
      {"data: {seed: -1}", "c.yaml:1: data.seed: expected a whole number of at least 0, not '-1'"},
      {"memory:\n\n  device_memory: 0\n",
       "c.yaml:3: memory.device_memory: expected a size like 128MiB that is more than 0, not '0'"},
      {"memory: {device_memory: 12 parsecs}",
       "c.yaml:1: memory.device_memory: expected a size like 128MiB that is more than 0, not "
       "'12 parsecs'"},
      {"memory: {host_memory: -1MiB}",
       "c.yaml:1: memory.host_memory: expected a size like 128MiB, not '-1MiB'"},
      {"memory: {spill_shares: [1, 0]}",
       "c.yaml:1: memory.spill_shares: expected a list, each a number above 0 and at most 1e+09, "
       "not '0'"},
      {"memory: {spill_shares: [1, .inf]}",
       "c.yaml:1: memory.spill_shares: expected a list, each a number above 0 and at most 1e+09, "
       "not '.inf'"},
      {"memory: {spill_shares: [fast]}",
       "c.yaml:1: memory.spill_shares: expected a list, each a number above 0 and at most 1e+09, "
       "not 'fast'"},
      {"memory: {device: gpu}",
       "c.yaml:1: memory.device: expected one of unified, emulated, not 'gpu'"},
      {"optimizer: {groups: [{match: a, rate: 2}]}",
       "c.yaml:1: optimizer.groups: unknown key 'rate': a group has match, learning_rate_factor "
       "and "
       "weight_decay"},
      {"optimizer: {groups: [{weight_decay: 2}]}", "c.yaml:1: optimizer.groups: match is missing"},
      {"schedule: {shape: steps}",
       "c.yaml:1: schedule.shape: expected one of constant, linear, cosine, wsd, not 'steps'"},
      {"train: {dtype: f8}", "c.yaml:1: train.dtype: expected one of f32, bf16, f16, not 'f8'"},
      {"memory: {policy: best}",
       "c.yaml:1: memory.policy: expected one of planned, device, cpu, static, auto, lru, not "
       "'best'"},
      {"model: {layer: 3}", "c.yaml:1: unknown key 'model.layer', did you mean 'model.layers'?"},
      {"modle: {layers: 3}", "c.yaml:1: unknown key 'modle.layers', did you mean 'model.layers'?"},
      {"layers: 3", "c.yaml:1: unknown key 'layers', did you mean 'model.layers'?"},
      {"completely.different: 3",
       "c.yaml:1: unknown key 'completely.different'; `gantry help config` lists all"},
      {"train: {steps: 5, steps: 6}", "c.yaml:1: train.steps is set twice"},
      {"train: {log_file: \"a\\0b\"}", "c.yaml:1: train.log_file: expected text, not 'a"},
      {"train:\n  - steps\n",
       "c.yaml:1: 'train' is a section, which holds keys like 'train.steps'"},
  };
  for (const Case& item : cases) {
    SCOPED_TRACE(item.text);
    // Up to a zero byte, where there is one.
    EXPECT_EQ(std::string(YamlError(item.text).c_str()), item.message);
  }
}

TEST(Config, AfterAnErrorNothingHasChanged) {
  RunConfig config;
  EXPECT_THAT(ApplyYaml("train: {steps: 5, keep: many}", "c", config),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(DumpYaml(config), DumpYaml(RunConfig()));
}

TEST(Config, OverridesTakeShortAndLongNames) {
  RunConfig config;
  ASSERT_THAT(ApplyOverride("train.steps", "7", config), IsOk());
  ASSERT_THAT(ApplyOverride("spill_dirs", "/x=y,/z", config), IsOk());
  ASSERT_THAT(ApplyOverride("spill_shares", "1,3.5", config), IsOk());
  ASSERT_THAT(ApplyOverride("tie_embeddings", std::nullopt, config), IsOk());
  ASSERT_THAT(ApplyOverride("files", "a,b c,,d", config), IsOk());
  ASSERT_THAT(ApplyOverride("prompt", "", config), IsOk());
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_THAT(config.memory.spill_dirs, ElementsAre("/x=y", "/z"));
  EXPECT_THAT(config.memory.spill_shares, ElementsAre(1.0, 3.5));
  EXPECT_TRUE(config.model.tie_embeddings);
  EXPECT_THAT(config.data.files, ElementsAre("a", "b c", "d"));
  EXPECT_EQ(config.generate.prompt, "");
  ASSERT_THAT(ApplyOverride("train.steps", "8", config), IsOk());
  EXPECT_EQ(config.train.steps, 8);
}

TEST(Config, OverrideErrorsRepeatWhatWasTyped) {
  EXPECT_EQ(OverrideError("train.steps", "x"),
            "--train.steps=x: expected a whole number from 1 to 1000000000, not 'x'");
  EXPECT_EQ(OverrideError("steps", std::nullopt),
            "--steps: needs a value, a whole number from 1 to 1000000000");
  EXPECT_EQ(OverrideError("seed", "1"),
            "--seed=1: 'seed' may be data.seed, train.seed or generate.seed: name the section");
  EXPECT_EQ(OverrideError("stepps", "1"),
            "--stepps=1: unknown key 'stepps', did you mean 'steps'?");
  EXPECT_EQ(OverrideError("train.stepps", "1"),
            "--train.stepps=1: unknown key 'train.stepps', did you mean 'train.steps'?");
  EXPECT_EQ(OverrideError("zzzzzzzz", "1"),
            "--zzzzzzzz=1: unknown key 'zzzzzzzz'; `gantry help config` lists all");
  EXPECT_EQ(OverrideError("log_file", "\xff"),
            "--log_file=\xff: expected text, not bytes that are no UTF-8");
}

TEST(Config, RefusesWhatIsNoUtf8) {
  for (const char* text :
       {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3", "\xe2\x82", "a\xff"}) {
    RunConfig config;
    EXPECT_THAT(ApplyOverride("prompt", text, config),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  for (const char* text : {"\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "gr\xc3\xbc\xc3\x9f"}) {
    RunConfig config;
    EXPECT_THAT(ApplyOverride("prompt", text, config), IsOk());
    EXPECT_EQ(config.generate.prompt, text);
  }
}

// A config in which every value differs from its default.
RunConfig Unusual() {
  RunConfig config;
  for (const ConfigField& field : FieldsOf(config)) {
    std::vector<std::string> values = ValuesOf(field);
    if (std::holds_alternative<IntegerField>(field.target)) {
      *std::get<IntegerField>(field.target).value += 1;
    } else if (std::holds_alternative<SeedField>(field.target)) {
      *std::get<SeedField>(field.target).value += 77;
    } else if (std::holds_alternative<RealField>(field.target)) {
      const auto& real = std::get<RealField>(field.target);
      *real.value = *real.value == real.most ? real.most / 3 : *real.value / 3 + 1e-7;
    } else if (std::holds_alternative<DefaultedRealField>(field.target)) {
      *std::get<DefaultedRealField>(field.target).value = 0.625;
    } else if (std::holds_alternative<SizeField>(field.target)) {
      *std::get<SizeField>(field.target).value += 3_KiB + 1_B;
    } else if (std::holds_alternative<FlagField>(field.target)) {
      *std::get<FlagField>(field.target).value ^= true;
    } else if (std::holds_alternative<TextField>(field.target)) {
      *std::get<TextField>(field.target).value = "a: \"b\" #\n\t\x7f'\xc3\xbc\\ ";
    } else if (std::holds_alternative<NameField>(field.target)) {
      const auto& name = std::get<NameField>(field.target);
      *name.value = *name.value == name.names[0] ? name.names[1] : name.names[0];
    } else if (std::holds_alternative<ListField>(field.target)) {
      *std::get<ListField>(field.target).value = {"x, y", "[z]", "", "- q"};
    } else if (std::holds_alternative<RealListField>(field.target)) {
      *std::get<RealListField>(field.target).value = {0.1, 1e9, 3.0};
    } else if (std::holds_alternative<GroupListField>(field.target)) {
      *std::get<GroupListField>(field.target).value = {
          {.match = "*.bias", .weight_decay = 0.0},
          {.match = "a\"b", .learning_rate_factor = 1.0 / 3.0}};
    } else {
      const auto& choice = std::get<ChoiceField>(field.target);
      choice.set(choice.get() == 0 ? 1 : 0);
    }
    EXPECT_NE(ValuesOf(field), values) << field.key;
  }
  return config;
}

TEST(Config, TheDumpReadsBackAsTheSame) {
  for (const RunConfig& config : {RunConfig(), Unusual()}) {
    const std::string text = DumpYaml(config);
    RunConfig back = Unusual();
    back.train.steps = 12345;
    ASSERT_THAT(ApplyYaml(text, "dump", back), IsOk()) << text;
    EXPECT_EQ(DumpYaml(back), text);
    EXPECT_EQ(back.data.files, config.data.files);
    EXPECT_EQ(back.schedule.peak, config.schedule.peak);
  }
}

TEST(Config, TheFileIsBelowTheCommandLine) {
  PosixFileCalls files;
  const std::string path = ::testing::TempDir() + "precedence.yaml";
  const std::string text = "train: {steps: 5, keep: 9}\n";
  GANTRY_CHECK_OK(WriteFileAtomically(files, path, std::as_bytes(std::span(text))));
  RunConfig config;
  ASSERT_THAT(ApplyConfigFile(files, path, config), IsOk());
  ASSERT_THAT(ApplyOverride("steps", "6", config), IsOk());
  EXPECT_EQ(config.train.steps, 6);
  EXPECT_EQ(config.train.keep, 9);
  EXPECT_EQ(config.train.log_every, RunConfig().train.log_every);
}

TEST(Config, FilesThatCannotBeReadAreErrors) {
  PosixFileCalls files;
  RunConfig config;
  EXPECT_THAT(ApplyConfigFile(files, "/none.yaml", config),
              StatusIs(absl::StatusCode::kInvalidArgument, "cannot read config file '/none.yaml'"));
  EXPECT_THAT(ApplyConfigFile(files, "/", config),
              StatusIs(absl::StatusCode::kInvalidArgument, "a directory"));
  EXPECT_THAT(ApplyConfigFile(files, "/dev/zero", config),
              StatusIs(absl::StatusCode::kInvalidArgument, "a device"));
}

// Every file of configs/ is a valid run once it has text.
TEST(Config, TheExamplesAreValid) {
  PosixFileCalls files;
  const std::filesystem::path folder = std::filesystem::path("configs");
  int64_t examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path());
    RunConfig config;
    EXPECT_THAT(ApplyConfigFile(files, entry.path(), config), IsOk());
    if (config.data.files.empty()) config.data.files = {"text"};
    EXPECT_THAT(ValidateTraining(config), IsOk());
    ++examples;
  }
  EXPECT_GE(examples, 3);
}

TEST(Config, SettingsHoldWhatDecidesTheNumbers) {
  RunConfig config;
  config.model.layers = 3;
  config.model.parameter_dtype = DType::kF32;
  config.memory.device_memory = 1_MiB;
  const RunSettings settings = SettingsOf(config);
  EXPECT_EQ(settings.at("model.layers"), "3");
  EXPECT_EQ(settings.at("train.dtype"), "f32");
  EXPECT_FALSE(settings.contains("memory.device_memory"));
  EXPECT_FALSE(settings.contains("train.steps"));
  EXPECT_EQ(settings.at("schedule.total_steps"), "200");  // train.steps stands for it
  config.schedule.shape = ScheduleShape::kConstant;
  EXPECT_EQ(SettingsOf(config).at("schedule.total_steps"), "0");

  RunConfig other;
  other.data.seed = 5;
  ASSERT_THAT(ApplyModelSettings(settings, other), IsOk());
  EXPECT_EQ(other.model.layers, 3);
  EXPECT_EQ(other.model.parameter_dtype, DType::kF32);
  EXPECT_EQ(other.data.seed, 5u);
  EXPECT_EQ(other.memory.device_memory, RunConfig().memory.device_memory);

  RunSettings bad = settings;
  bad.erase("model.width");
  EXPECT_THAT(ApplyModelSettings(bad, other),
              StatusIs(absl::StatusCode::kInvalidArgument, "does not say its model.width"));
  bad["model.width"] = "wide";
  EXPECT_THAT(ApplyModelSettings(bad, other), StatusIs(absl::StatusCode::kInvalidArgument,
                                                       "the checkpoint's model.width: expected"));
}

TEST(Config, GroupsOfParametersHaveTwoForms) {
  RunConfig file;
  ASSERT_THAT(ApplyYaml(R"(
optimizer:
  groups:
    - {match: "*.bias", weight_decay: 0}
    - match: lm_head.*
      learning_rate_factor: 0.1
)",
                        "c.yaml", file),
              IsOk());
  const std::vector<ParameterGroup> expected = {
      {.match = "*.bias", .weight_decay = 0.0},
      {.match = "lm_head.*", .learning_rate_factor = 0.1}};
  EXPECT_EQ(file.optimizer.groups, expected);
  RunConfig line;
  ASSERT_THAT(
      ApplyOverride("groups",
                    "match=*.bias;weight_decay=0,match=lm_head.*;learning_rate_factor=0.1", line),
      IsOk());
  EXPECT_EQ(line.optimizer.groups, expected);
  EXPECT_EQ(SettingsOf(line).at("optimizer.groups"),
            "match=*.bias;weight_decay=0, match=lm_head.*;learning_rate_factor=0.1");
  EXPECT_FALSE(SettingsOf(RunConfig()).contains("optimizer.groups"));
  EXPECT_EQ(OverrideError("optimizer.groups", "match=;weight_decay=0"),
            "--optimizer.groups=match=;weight_decay=0: match is empty");
}

TEST(Config, SettingsLeaveOutWhatHasNoEffect) {
  RunConfig config;
  EXPECT_FALSE(SettingsOf(config).contains("optimizer.initial_loss_scale"));
  EXPECT_FALSE(SettingsOf(config).contains("schedule.decay_fraction"));
  config.model.parameter_dtype = DType::kF16;
  config.schedule.shape = ScheduleShape::kWarmupStableDecay;
  EXPECT_EQ(SettingsOf(config).at("optimizer.initial_loss_scale"), "65536");
  EXPECT_EQ(SettingsOf(config).at("schedule.decay_shape"), "linear");
}

TEST(Config, OptimizersHaveTheirOwnBetas) {
  struct Case {
    const char* kind;
    const char* beta1;
    const char* beta2;
  };
  for (const Case& c :
       {Case{"adamw", "0.9", "0.95"}, Case{"adam", "0.9", "0.95"}, Case{"sgd", "0.9", "0"},
        Case{"lion", "0.9", "0.99"}, Case{"adafactor", "0.9", "0"}}) {
    RunConfig config;
    ASSERT_THAT(ApplyOverride("optimizer.kind", c.kind, config), IsOk());
    EXPECT_EQ(SettingsOf(config).at("optimizer.kind"), c.kind);
    EXPECT_EQ(SettingsOf(config).at("optimizer.beta1"), c.beta1) << c.kind;
    EXPECT_EQ(SettingsOf(config).at("optimizer.beta2"), c.beta2) << c.kind;
    EXPECT_THAT(DumpYaml(config), HasSubstr(StrCat("  beta2: ", c.beta2, "\n")));
  }
  // What is set stays, whatever comes first.
  RunConfig config;
  ASSERT_THAT(ApplyYaml("optimizer: {beta2: 0.5, kind: lion, beta1: 0.25}", "c.yaml", config),
              IsOk());
  EXPECT_EQ(Beta1Of(config.optimizer), 0.25);
  EXPECT_EQ(Beta2Of(config.optimizer), 0.5);
  EXPECT_THAT(YamlError("optimizer: {beta2: 1}"),
              HasSubstr("optimizer.beta2: expected a number of at least 0 and at most 0.999999"));
  EXPECT_THAT(YamlError("optimizer: {kind: adagrad}"),
              HasSubstr("expected one of adamw, adam, sgd, lion, adafactor, not 'adagrad'"));
}

TEST(Config, OfTheStateFormatOnlyWhatChangesNumbersIsASetting) {
  for (const auto& [format, setting] : {std::pair("f32", "f32"), std::pair("split_master", "f32"),
                                        std::pair("eight_bit", "eight_bit")}) {
    RunConfig config;
    ASSERT_THAT(ApplyOverride("state_format", format, config), IsOk());
    EXPECT_EQ(SettingsOf(config).at("optimizer.state_format"), setting);
  }
}

TEST(Config, TheTableIsConsistent) {
  RunConfig config;
  std::set<std::string_view> keys;
  for (const ConfigField& field : FieldsOf(config)) {
    EXPECT_TRUE(keys.insert(field.key).second) << field.key;
    EXPECT_FALSE(field.help.empty()) << field.key;
    EXPECT_THAT(ConfigHelp(), HasSubstr(std::string(field.help)));
    // Every default is a value that the table itself accepts.
    EXPECT_THAT(SetField(field, ValuesOf(field)), IsOk()) << field.key;
  }
}

}  // namespace
}  // namespace gantry
