// The program as a user meets it who has models in Hugging Face folders, or wants them there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "trainer/cli/testing/program.h"
#include "trainer/cli/testing/program_folder.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string SmallModel(std::string_view name) {
  return StrCat(std::filesystem::current_path().string(), "/trainer/hugging_face/testdata/", name);
}

TEST(GantryConvert, ACheckpointBecomesAModelFolder) {
  const ProgramFolder folder("checkpoint");
  const ProgramResult train =
      RunProgram(folder.Train({"--checkpoint_dir=runs/a", "--steps=2", "--json"}));
  ASSERT_EQ(train.exit_code, 0) << train.err;

  const ProgramResult convert = folder.Run({"convert", "runs/a", "models/a", "--json"});
  ASSERT_EQ(convert.exit_code, 0) << convert.err;
  const ProgramResult inspect = folder.Run({"inspect", "models/a", "--json"});
  ASSERT_EQ(inspect.exit_code, 0) << inspect.err;
  EXPECT_EQ(JsonValue(inspect.out, "kind"), "\"model\"");
  EXPECT_EQ(JsonValue(inspect.out, "runs"), "true");
  EXPECT_EQ(JsonValue(inspect.out, "family"), "\"llama\"");
  EXPECT_EQ(JsonValue(inspect.out, "bytes"), JsonValue(convert.out, "bytes"));
  const ProgramResult checkpoint = folder.Run({"inspect", "runs/a", "--json"});
  EXPECT_EQ(JsonValue(inspect.out, "parameters"), JsonValue(checkpoint.out, "parameters"));
  EXPECT_THAT(folder.Read("models/a/config.json"), HasSubstr("\"torch_dtype\": \"bfloat16\""));

  // Masters, too.
  ASSERT_EQ(folder.Run({"convert", "runs/a", "models/exact", "--dtype=f32"}).exit_code, 0);
  EXPECT_THAT(folder.Run({"inspect", "models/exact"}).out, HasSubstr("  F32: "));
  // Which, rounded, are the parameters.
  ASSERT_EQ(folder.Run({"convert", "models/exact", "models/rounded", "--dtype=bf16"}).exit_code, 0);
  EXPECT_EQ(folder.Read("models/rounded/model.safetensors"),
            folder.Read("models/a/model.safetensors"));

  const ProgramResult again = folder.Run({"convert", "runs/a", "models/a"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("'models/a' is there already: name another folder"));
}

TEST(GantryConvert, ACheckpointOfAFoldersModelGivesWhatTheRunSaves) {
  const ProgramFolder folder("from_folder");
  const std::string model = folder.path() + "/model";
  std::filesystem::create_directories(model);
  for (const std::string& from :
       {SmallModel("llama_tied"), std::string("trainer/booster/testdata/letters")}) {
    for (const auto& file : std::filesystem::directory_iterator(from)) {
      std::filesystem::copy(file.path(), model);
    }
  }
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the cat sat in the hat\n";
  folder.Write("letters.txt", text);
  const ProgramResult train = folder.Run(
      {"train", "--model=model", "--files=letters.txt", "--steps=2", "--sequence_length=8",
       "--batch_size=2", "--validation_fraction=0", "--eval_every=0", "--device_memory=64MiB",
       "--checkpoint_dir=run", "--save_model=saved"});
  ASSERT_EQ(train.exit_code, 0) << train.err;
  const ProgramResult convert = folder.Run({"convert", "run", "converted"});
  ASSERT_EQ(convert.exit_code, 0) << convert.err;
  EXPECT_THAT(convert.err, IsEmpty());
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    EXPECT_EQ(folder.Read(StrCat("converted/", name)), folder.Read(StrCat("saved/", name))) << name;
    EXPECT_THAT(folder.Read(StrCat("saved/", name)), Not(IsEmpty())) << name;
  }

  const ProgramResult other =
      folder.Run({"convert", "run", "other", StrCat("--base=", SmallModel("llama"))});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("its config.json describes another one"));
  // Without the folder, the shape is still known; the tokenizer is not.
  std::filesystem::rename(model, folder.path() + "/moved");
  const ProgramResult alone = folder.Run({"convert", "run", "alone"});
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("there is no tokenizer; name the folder with --base"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/alone/tokenizer.json"));
  ASSERT_EQ(folder.Run({"convert", "run", "again", "--base=moved"}).exit_code, 0);
  EXPECT_EQ(folder.Read("again/tokenizer.json"), folder.Read("saved/tokenizer.json"));
}

TEST(GantryConvert, AModelTakesAnAdapterIn) {
  const ProgramFolder folder("adapter");
  const ProgramResult convert =
      folder.Run({"convert", SmallModel("gpt2"), "merged", "--max-shard-size=16KB",
                  StrCat("--merge=", SmallModel("gpt2_adapter"))});
  ASSERT_EQ(convert.exit_code, 0) << convert.err;
  EXPECT_THAT(convert.out,
              AllOf(HasSubstr("merged: 28 tensors"), EndsWith("an adapter of 4 maps merged\n")));
  const ProgramResult inspect = folder.Run({"inspect", "merged"});
  EXPECT_THAT(inspect.out,
              AllOf(HasSubstr("gpt2: 2 layers of width 16, 4 heads over 4, vocabulary 40"),
                    HasSubstr("model-00001-of-0000"), HasSubstr("transformer.wte.weight  F32")));
  const ProgramResult adapter = folder.Run({"inspect", SmallModel("gpt2_adapter"), "--json"});
  EXPECT_EQ(JsonValue(adapter.out, "kind"), "\"adapter\"");
  const ProgramResult file = folder.Run({"inspect", "merged/model-00001-of-00003.safetensors"});
  EXPECT_EQ(file.exit_code, 0) << file.err;
}

TEST(GantryConvert, WhatCannotRunIsShownAllTheSame) {
  const ProgramFolder folder("other");
  ASSERT_EQ(folder.Run({"convert", SmallModel("llama"), "other"}).exit_code, 0);
  folder.Write("other/config.json", R"({"model_type": "falcon"})");
  const ProgramResult inspect = folder.Run({"inspect", "other"});
  EXPECT_EQ(inspect.exit_code, 0) << inspect.err;
  EXPECT_THAT(inspect.out, HasSubstr("gantry cannot run it: other: config.json: model_type is "
                                     "\"falcon\""));
  EXPECT_EQ(JsonValue(folder.Run({"inspect", "other", "--json"}).out, "runs"), "false");
}

TEST(GantryConvert, WrongInputIsToldInOneLine) {
  const ProgramFolder folder("wrong");
  const std::string model = SmallModel("llama");
  struct Row {
    std::vector<std::string> arguments;
    int exit_code;
    std::string message;
  };
  const std::vector<Row> rows = {
      {{"convert"}, 2, "name a source and a new folder: gantry convert SOURCE FOLDER"},
      {{"convert", "a"}, 2, "name a source and a new folder"},
      {{"convert", "a", "b", "c"}, 2, "'c' is one word too many"},
      {{"convert", "a", "b", "--dtype=int4"}, 2, "int4"},
      {{"convert", "a", "b", "--max-shard-size=big"}, 2, "big"},
      {{"convert", "a", "b", "--merg=x"}, 2, "unknown option '--merg'"},
      {{"convert", "a", "b"}, 1, "no checkpoint at 'a': there is no such directory"},
      {{"convert", model, "b", "--merge=a"}, 1, "'a' is no adapter: it has no adapter_config.json"},
      {{"convert", model, "b", "--base=a"}, 1, "--base is for checkpoints"},
      {{"convert", model, "b", StrCat("--merge=", SmallModel("gpt2_adapter"))},
       1,
       "which the model does not have: it is another model's"},
      {{"inspect", model, "--verify"}, 2, "--verify is for checkpoints"},
  };
  for (const Row& row : rows) {
    const ProgramResult result = folder.Run(row.arguments);
    EXPECT_EQ(result.exit_code, row.exit_code) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, AllOf(HasSubstr("gantry: error: "), HasSubstr(row.message)));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/b"));
}

}  // namespace
}  // namespace gantry
