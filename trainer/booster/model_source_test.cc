// Hugging Face folders as the beginning of a run: a small model of trainer/hugging_face/testdata
// with a tokenizer of letters.
#include "trainer/booster/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/status_macros.h"
#include "base/testing/status_matchers.h"
#include "gemini/parameter_store.h"
#include "trainer/booster/metrics.h"
#include "trainer/booster/run_config.h"
#include "trainer/booster/run_data.h"
#include "trainer/booster/testing/tiny_run.h"
#include "trainer/booster/text_codec.h"
#include "trainer/booster/tokenizer_codec.h"
#include "trainer/booster/trainer.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/hugging_face/decoder_config_json.h"
#include "trainer/models/decoder_config.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelSourceTest : public ::testing::Test {
 protected:
  ModelSourceTest() : directory_(::testing::TempDir() + "model_source_test") {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(folder());
    for (const char* from :
         {"trainer/hugging_face/testdata/llama_tied", "trainer/booster/testdata/letters"}) {
      for (const auto& entry : std::filesystem::directory_iterator(from)) {
        std::filesystem::copy(entry.path(), folder());
      }
    }
    std::ofstream text(directory_ + "/text.txt");
    for (int i = 0; i < 60; ++i) text << "the cat sat in the hat\n";
    text.close();
    config_ = TinyConfig(directory_);
    config_.model = DefaultModel();
    config_.model.recompute = Recompute::kNone;
    config_.model.parameter_dtype = DType::kF32;
    config_.model_path = folder();
    config_.data.files = {directory_ + "/text.txt"};
    config_.data.sequence_length = 8;
  }
  std::string folder() const { return directory_ + "/model"; }

  // A run of its own machine. What it says of itself stands in settings_.
  absl::StatusOr<TrainingSummary> Run(RunConfig config) {
    GANTRY_ASSIGN_OR_RETURN(const ModelSource source,
                            OpenModelSource(files_, ModelPurpose::kTraining, config));
    GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<RunData> data,
                            RunData::Open(files_, config, source.tokenizer.get()));
    TinyMachine machine(config);
    settings_.clear();
    AddModelSettings(source, settings_);
    GANTRY_ASSIGN_OR_RETURN(auto trainer, Trainer::Create({.config = &config,
                                                           .training = &data->training(),
                                                           .validation = data->validation(),
                                                           .codec = &source.codec(),
                                                           .context = machine.context(),
                                                           .clock = &machine.clock(),
                                                           .logger = &machine.logger(),
                                                           .files = &files_,
                                                           .observer = &observer_,
                                                           .initialize =
                                                               [&](ParameterStore& store) {
                                                                 return LoadModelSource(
                                                                     &files_, source, config, store,
                                                                     machine.logger());
                                                               },
                                                           .settings = settings_}));
    GANTRY_ASSIGN_OR_RETURN(TrainingSummary summary, trainer->Run());
    GANTRY_ASSIGN_OR_RETURN(sample_, trainer->Sample("the", 6));
    if (!config.train.save_model.empty()) {
      GANTRY_RETURN_IF_ERROR(SaveModel(&files_, source, config, machine.store()));
    }
    return summary;
  }

  PosixFileCalls files_;
  std::string directory_;
  RunConfig config_;
  RunSettings settings_;
  RecordingObserver observer_;
  std::string sample_;
};

TEST_F(ModelSourceTest, WithoutAPathItIsBytes) {
  RunConfig config;
  const auto source = OpenModelSource(files_, ModelPurpose::kTraining, config);
  ASSERT_THAT(source, IsOk());
  EXPECT_EQ(source->codec().vocabulary_size(), 256);
  EXPECT_EQ(config.model, DefaultModel());
  RunSettings settings;
  AddModelSettings(*source, settings);
  EXPECT_TRUE(settings.empty());
}

TEST_F(ModelSourceTest, TakesShapeTokenizerAndEndTokens) {
  config_.model.max_sequence = 20;
  const auto source = OpenModelSource(files_, ModelPurpose::kTraining, config_);
  ASSERT_THAT(source, IsOk());
  EXPECT_EQ(config_.model.layers, 2);
  EXPECT_EQ(config_.model.vocabulary, 40);
  EXPECT_TRUE(config_.model.tie_embeddings);
  EXPECT_EQ(config_.model.max_sequence, 20);
  EXPECT_EQ(config_.model.parameter_dtype, DType::kF32);
  EXPECT_THAT(source->end_tokens, ElementsAre(2));
  // As the tokenizers library gives them.
  EXPECT_THAT(source->codec().Encode("the cat in the"),
              IsOkAndHolds(ElementsAre(32, 3, 7, 5, 24, 3, 33, 34)));
  const std::unique_ptr<TextDecoder> decoder = source->codec().NewDecoder();
  std::string text;
  for (const int32_t token : {32, 3, 7, 5, 24, 34}) text += decoder->Next(token);
  EXPECT_EQ(text + decoder->Finish(), "the cat the");
}

TEST_F(ModelSourceTest, ChatsAreRenderedByTheModelsTemplate) {
  const auto source = OpenModelSource(files_, ModelPurpose::kInference, config_);
  ASSERT_THAT(source, IsOk());
  const auto chat = source->tokenizer->EncodeChat("the", {});
  ASSERT_THAT(chat, IsOk());
  const Tokenizer& tokenizer = source->tokenizer->tokenizer();
  EXPECT_EQ(tokenizer.Decode(*chat, {.skip_special_tokens = false}),
            "<s>user says the</s>assistant says ");
  std::ofstream(folder() + "/tokenizer_config.json") << "{}";
  const auto plain = TokenizerCodec::Load(files_, folder());
  ASSERT_THAT(plain, IsOk());
  EXPECT_THAT((*plain)->EncodeChat("the", {}), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(ModelSourceTest, SaysWhatIsWrongWithAFolder) {
  RunConfig shaped = config_;
  shaped.model.layers = 3;
  EXPECT_THAT(OpenModelSource(files_, ModelPurpose::kTraining, shaped),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("leave out")));
  std::filesystem::remove(folder() + "/tokenizer.json");
  RunConfig config = config_;
  EXPECT_THAT(OpenModelSource(files_, ModelPurpose::kTraining, config),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("tokenizer.json")));
  std::ofstream(folder() + "/tokenizer.json") << "{";
  config = config_;
  EXPECT_THAT(OpenModelSource(files_, ModelPurpose::kTraining, config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokenizer.json")));
  config = config_;
  config.model_path = directory_;
  EXPECT_THAT(OpenModelSource(files_, ModelPurpose::kTraining, config),
              StatusIs(absl::StatusCode::kNotFound));
}

// Training begins with the folder's weights, learns, and what it saves is a folder to begin with.
TEST_F(ModelSourceTest, TrainsFromAFolderIntoAFolder) {
  config_.train.steps = 20;
  config_.train.eval_every = 10;
  config_.train.save_model = directory_ + "/tuned";
  const auto summary = Run(config_);
  ASSERT_THAT(summary, IsOk());
  EXPECT_LT(*summary->loss_last, 0.8 * *summary->loss_first);
  EXPECT_TRUE(summary->validation_last.has_value());
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/tuned/tokenizer.json"));

  // Its parameters, to the bit: a run of no rate begins and ends with them.
  RunConfig again = config_;
  again.model_path = directory_ + "/tuned";
  again.train.save_model = "";
  again.train.steps = 1;
  again.optimizer.groups = {{.match = "*", .learning_rate_factor = 0.0}};
  const auto loaded = Run(again);
  ASSERT_THAT(loaded, IsOk());
  EXPECT_EQ(loaded->parameter_hash, summary->parameter_hash);
}

TEST_F(ModelSourceTest, CheckpointsKnowTheirModelAndTokenizer) {
  config_.train.steps = 3;
  config_.train.checkpoint_dir = directory_ + "/runs";
  const auto summary = Run(config_);
  ASSERT_THAT(summary, IsOk());
  const auto checkpoint = Checkpoint::Open(&files_, config_.train.checkpoint_dir);
  ASSERT_THAT(checkpoint, IsOk());
  RunConfig config;
  config.model.parameter_dtype = DType::kF32;
  const RunSettings& settings = checkpoint->manifest().settings;
  const auto source = OpenSavedModelSource(files_, settings, config);
  ASSERT_THAT(source, IsOk());
  EXPECT_EQ(config.model.vocabulary, 40);
  EXPECT_EQ(config.model.max_sequence, 32);
  EXPECT_EQ(source->path, folder());

  RunSettings other = settings;
  other[kTokenizerSetting] = "another";
  EXPECT_THAT(OpenSavedModelSource(files_, other, config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("another tokenizer")));
  other = settings;
  other[kModelConfigSetting] = "{}";
  EXPECT_THAT(OpenSavedModelSource(files_, other, config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model.config")));
  // A resumed run goes on where the folder may be another by now.
  config_.train.steps = 4;
  const auto resumed = Run(config_);
  ASSERT_THAT(resumed, IsOk());
  EXPECT_EQ(resumed->first_step, 3);
}

// Conversations in the model's template, of which only what the assistant says is learned, packed.
TEST_F(ModelSourceTest, TrainsOnConversations) {
  std::ofstream lines(directory_ + "/chat.jsonl");
  for (int i = 0; i < 40; ++i) {
    lines << R"({"messages": [{"role": "user", "content": "cat"}, )"
          << R"({"role": "assistant", "content": "the cat"}]})" << "\n";
  }
  lines.close();
  config_.data.files = {directory_ + "/chat.jsonl"};
  config_.data.sequence_length = 32;
  config_.train.steps = 20;
  config_.train.eval_every = 10;
  const auto summary = Run(config_);
  ASSERT_THAT(summary, IsOk());
  EXPECT_LT(*summary->loss_last, 0.5 * *summary->loss_first);
  EXPECT_TRUE(summary->validation_last.has_value());

  config_.data.files.push_back(directory_ + "/text.txt");
  EXPECT_THAT(Run(config_), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mixed")));
  EXPECT_THAT(RunData::Open(files_, config_, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument));
  config_.data.files.pop_back();
  EXPECT_THAT(
      RunData::Open(files_, config_, nullptr),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("need a model with a tokenizer")));
  config_.data.date = "yesterday";
  EXPECT_THAT(ValidateTraining(config_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("data.date")));
}

TEST_F(ModelSourceTest, BytesHaveNoSettings) {
  RunConfig config;
  const auto source = OpenSavedModelSource(files_, {{"model.layers", "4"}}, config);
  ASSERT_THAT(source, IsOk());
  EXPECT_EQ(source->tokenizer, nullptr);
  EXPECT_TRUE(source->path.empty());
}

}  // namespace
}  // namespace gantry
