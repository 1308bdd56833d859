// Goal: models that Transformers saved give its numbers here, whatever is missing, superfluous or
// of another shape is named, and what is saved has the bits that were loaded.
//
// The models and their log-probabilities: testdata/make_models.py.
#include "trainer/hugging_face/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/faulty_file_calls.h"
#include "base/testing/status_matchers.h"
#include "chunk/chunk_layout.h"
#include "gemini/parameter_store.h"
#include "gemini/testing/memory_store.h"
#include "kernels/cross_entropy_head.h"
#include "trainer/autograd/testing/test_bench.h"
#include "trainer/hugging_face/decoder_config_json.h"
#include "trainer/hugging_face/weight_loader.h"
#include "trainer/hugging_face/weight_map.h"
#include "trainer/hugging_face/weight_writer.h"
#include "trainer/models/decoder.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/decoder_weights.h"
#include "trainer/models/families.h"
#include "trainer/safetensors/header.h"
#include "trainer/safetensors/reader.h"
#include "trainer/safetensors/stored_dtype.h"
#include "trainer/safetensors/writer.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr std::string_view kModels[] = {"gpt2", "llama", "llama_tied", "mistral", "qwen2", "qwen3"};

std::string PathOf(std::string_view model) {
  return StrCat("trainer/hugging_face/testdata/", model);
}

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  GANTRY_CHECK_OK(value.status());
  return *std::move(value);
}

class LogCollector final : public Logger {
 public:
  void Log(LogLevel, std::string_view message) override { text += message; }
  std::string text;
};

// The parameters of a model in plain memory, sealed.
struct Model {
  Model(const DecoderConfig& decoder_config, Trainability trainability)
      : config(decoder_config), bench({}) {
    const auto registered = RegisterDecoder(
        bench.store(), config, {.trainability = [&](std::string_view) { return trainability; }});
    GANTRY_CHECK_OK(registered.status());
    GANTRY_CHECK_OK(bench.store().Seal());
  }
  std::vector<float> Values(const std::string& name, int64_t elements) {
    std::vector<float> values(static_cast<size_t>(elements));
    GANTRY_CHECK_OK(ReadParameter(bench.store(), name, 0, values));
    return values;
  }

  DecoderConfig config;
  TestBench bench;
};

template <typename T>
std::vector<T> Elements(const SafetensorsReader& reader, std::string_view name) {
  const StoredTensor* tensor = reader.Find(name);
  GANTRY_CHECK(tensor != nullptr) << name;
  std::vector<T> elements(static_cast<size_t>(tensor->bytes) / sizeof(T));
  GANTRY_CHECK_OK(reader.ReadInto(*tensor, 0, std::as_writable_bytes(std::span(elements))));
  return elements;
}

// The largest difference of the folder's model from Transformers' log-probabilities. Errors: those
// of making a model.
absl::StatusOr<double> DistanceFromExpected(FileCalls& files, const std::string& folder,
                                            const DecoderConfig& config,
                                            const std::string& expected_folder) {
  TestBench bench({.activation_slots = 2048});
  GANTRY_ASSIGN_OR_RETURN(const auto model, DecoderModel::Create(bench.context(), config, {}));
  MemoryStore& store = bench.store();
  GANTRY_RETURN_IF_ERROR(store.Seal());
  LogCollector log;
  GANTRY_RETURN_IF_ERROR(LoadModelFolder(&files, folder, config, store, log));
  const auto expected =
      ValueOrDie(SafetensorsReader::Open(&files, expected_folder + "/expected.safetensors"));
  const auto tokens = Elements<int32_t>(expected, "tokens");
  const auto scores = Elements<float>(expected, "log_probabilities");
  const int64_t length = std::ssize(tokens) / 2;
  std::vector<int32_t> targets(tokens.size(), kIgnoreTarget);
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (static_cast<int64_t>(i + 1) % length != 0) targets[i] = tokens[i + 1];
  }
  std::vector<float> ours(tokens.size());
  GANTRY_CHECK_OK(store.BeginStep({.trace_key = "evaluate"}));
  GANTRY_CHECK_OK(store.BeginMicroBatch());
  GANTRY_CHECK_OK(model->LogProbabilities(
      {.sequences = 2, .length = length, .tokens = tokens, .targets = targets}, ours));
  GANTRY_CHECK_OK(store.EndStep().status());
  double distance = 0;
  for (int64_t i = 0; i < std::ssize(scores); ++i) {
    const int64_t at = i / (length - 1) * length + i % (length - 1);
    distance = std::max(
        distance, std::abs(double{ours[static_cast<size_t>(at)]} - scores[static_cast<size_t>(i)]));
  }
  return distance;
}

class ModelFolderTest : public ::testing::Test {
 protected:
  ModelFolderTest() : folder_(::testing::TempDir() + "model_folder_test") {
    fs::remove_all(folder_);
  }
  ~ModelFolderTest() override { fs::remove_all(folder_); }

  ModelFolder Read(const std::string& path) {
    return ValueOrDie(ReadModelFolder(files_, path, ModelPurpose::kInference));
  }
  DecoderConfig ConfigOf(const std::string& path, DType parameter_dtype) {
    DecoderConfig config = Read(path).config.decoder;
    config.parameter_dtype = parameter_dtype;
    return config;
  }
  std::unique_ptr<Model> Load(const std::string& path, DType parameter_dtype,
                              Trainability trainability = Trainability::kTrainable) {
    auto model = std::make_unique<Model>(ConfigOf(path, parameter_dtype), trainability);
    GANTRY_CHECK_OK(LoadModelFolder(&files_, path, model->config, model->bench.store(), log_));
    return model;
  }
  absl::Status TryToLoad(const std::string& path) {
    Model model(ConfigOf(path, DType::kF32), Trainability::kTrainable);
    return LoadModelFolder(&files_, path, model.config, model.bench.store(), log_);
  }
  auto Distance(const std::string& folder, std::string_view model) {
    return DistanceFromExpected(files_, folder, ConfigOf(folder, DType::kF32), PathOf(model));
  }
  absl::Status Save(Model& model, const std::string& place, DType dtype,
                    const std::string& origin) {
    return SaveModelFolder(
        {.files = &files_,
         .place = place,
         .config = &model.config,
         .dtype = dtype,
         .origin = origin},
        [&](const DecoderTensor& parameter, int64_t first, std::span<float> values) {
          return ReadParameter(model.bench.store(), parameter.name, first, values);
        });
  }

  // The files' tensors, changed, as one file in folder_ beside the model's config.json.
  struct Tensor {
    std::string name;
    StoredDType dtype;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::vector<Tensor> TensorsOf(std::string_view model) {
    const auto reader = ValueOrDie(SafetensorsReader::Open(&files_, PathOf(model)));
    std::vector<Tensor> tensors;
    for (const StoredTensor& stored : reader.tensors()) {
      tensors.push_back({.name = stored.name,
                         .dtype = stored.dtype,
                         .shape = stored.shape,
                         .bytes = Elements<std::byte>(reader, stored.name)});
    }
    return tensors;
  }
  void Put(std::string_view model, const std::vector<Tensor>& tensors) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::copy(PathOf(model) + "/config.json", folder_);
    std::vector<TensorToStore> list;
    for (const Tensor& tensor : tensors) {
      list.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    }
    GANTRY_CHECK_OK(WriteSafetensors(
        {.files = &files_, .folder = folder_}, list,
        [&](size_t index, int64_t first, std::span<std::byte> piece) {
          std::memcpy(piece.data(), tensors[index].bytes.data() + first, piece.size());
          return absl::OkStatus();
        }));
  }

  PosixFileCalls files_;
  LogCollector log_;
  std::string folder_;
};

TEST_F(ModelFolderTest, ModelsGiveTheNumbersOfTransformers) {
  for (const std::string_view name : kModels) {
    EXPECT_THAT(Distance(PathOf(name), name), IsOkAndHolds(Lt(2e-5))) << name;
  }
}

// In any type of parameters, trained or frozen, masters have the files' precision.
TEST_F(ModelFolderTest, ParametersAreRoundedAndMastersAreNot) {
  for (const std::string_view name : {"gpt2", "llama"}) {
    const auto exact = Load(PathOf(name), DType::kF32);
    const auto trained = Load(PathOf(name), DType::kBF16);
    const auto frozen = Load(PathOf(name), DType::kBF16, Trainability::kFrozen);
    for (const DecoderTensor& tensor : DecoderTensors(exact->config)) {
      const std::vector<float> values = exact->Values(tensor.name, tensor.elements());
      EXPECT_EQ(trained->Values(tensor.name, tensor.elements()), values) << tensor.name;
      std::vector<float> rounded;
      for (const float value : values) rounded.push_back(static_cast<float>(BFloat16(value)));
      EXPECT_EQ(frozen->Values(tensor.name, tensor.elements()), rounded) << tensor.name;
    }
  }
}

TEST_F(ModelFolderTest, WhatIsSavedHasTheBitsThatWereLoaded) {
  for (const std::string_view name : kModels) {
    SCOPED_TRACE(name);
    const auto model = Load(PathOf(name), DType::kBF16);
    fs::remove_all(folder_);
    ASSERT_THAT(Save(*model, folder_, DType::kF32, PathOf(name)), IsOk());
    const auto before = ValueOrDie(SafetensorsReader::Open(&files_, PathOf(name)));
    const auto after = ValueOrDie(SafetensorsReader::Open(&files_, folder_));
    ASSERT_EQ(after.tensors().size(), before.tensors().size());
    for (const StoredTensor& tensor : before.tensors()) {
      ASSERT_NE(after.Find(tensor.name), nullptr) << tensor.name;
      EXPECT_EQ(after.Find(tensor.name)->shape, tensor.shape);
      EXPECT_EQ(Elements<float>(after, tensor.name), Elements<float>(before, tensor.name));
    }
    EXPECT_EQ(Read(folder_).config.decoder, Read(PathOf(name)).config.decoder);
    EXPECT_TRUE(fs::exists(folder_ + "/generation_config.json"));
  }
}

TEST_F(ModelFolderTest, SavesInAnyTypeAndWithoutAnOrigin) {
  const auto model = Load(PathOf("gpt2"), DType::kF32);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    fs::remove_all(folder_);
    ASSERT_THAT(Save(*model, folder_, dtype, ""), IsOk());
    const ModelFolder folder = Read(folder_);
    EXPECT_EQ(folder.config.dtype, dtype);
    EXPECT_EQ(folder.config.decoder, Read(PathOf("gpt2")).config.decoder);
    const auto again = Load(folder_, DType::kF32);
    for (const DecoderTensor& tensor : DecoderTensors(model->config)) {
      const auto values = model->Values(tensor.name, tensor.elements());
      const auto rounded = again->Values(tensor.name, tensor.elements());
      for (size_t i = 0; i < values.size(); ++i) {
        const float expected = dtype == DType::kF16 ? static_cast<float>(Float16(values[i]))
                                                    : static_cast<float>(BFloat16(values[i]));
        ASSERT_EQ(rounded[i], expected) << tensor.name << " " << i;
      }
    }
  }
}

// Strips of any number of rows, the last one smaller.
TEST_F(ModelFolderTest, TransposedMatricesPassInStrips) {
  const auto whole = Load(PathOf("gpt2"), DType::kF32);
  const auto reader = ValueOrDie(SafetensorsReader::Open(&files_, PathOf("gpt2")));
  for (const int64_t strip : {int64_t{1}, int64_t{5 * 4 * 16}, int64_t{1000}, int64_t{1} << 20}) {
    SCOPED_TRACE(strip);
    Model model(whole->config, Trainability::kTrainable);
    ASSERT_THAT(LoadWeights({.reader = &reader,
                             .config = &model.config,
                             .store = &model.bench.store(),
                             .logger = &log_,
                             .strip_bytes = Bytes(strip)}),
                IsOk());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    ASSERT_THAT(
        WriteWeights({.files = &files_,
                      .folder = folder_,
                      .config = &model.config,
                      .dtype = DType::kF32,
                      .strip_bytes = Bytes(strip)},
                     [&](const DecoderTensor& parameter, int64_t first, std::span<float> values) {
                       return ReadParameter(model.bench.store(), parameter.name, first, values);
                     }),
        IsOk());
    const auto saved = ValueOrDie(SafetensorsReader::Open(&files_, folder_));
    for (const DecoderTensor& tensor : DecoderTensors(model.config)) {
      EXPECT_EQ(model.Values(tensor.name, tensor.elements()),
                whole->Values(tensor.name, tensor.elements()))
          << tensor.name;
      EXPECT_EQ(Elements<float>(saved, tensor.name), Elements<float>(reader, tensor.name));
    }
  }
}

TEST_F(ModelFolderTest, NamesMayLackTheirPrefix) {
  for (const std::string_view name : {"gpt2", "llama"}) {
    std::vector<Tensor> tensors = TensorsOf(name);
    const std::string_view prefix = name == "gpt2" ? "transformer." : "model.";
    for (Tensor& tensor : tensors) {
      if (tensor.name.starts_with(prefix)) tensor.name = tensor.name.substr(prefix.size());
    }
    Put(name, tensors);
    EXPECT_THAT(Distance(folder_, name), IsOkAndHolds(Lt(2e-5))) << name;
    const std::string_view norm = name == "gpt2" ? "ln_f.weight" : "norm.weight";
    Tensor& one = *std::ranges::find(tensors, norm, &Tensor::name);
    one.name = StrCat(prefix, norm);
    Put(name, tensors);
    EXPECT_THAT(TryToLoad(folder_), StatusIs(kInvalid, " lacks 1 tensors of the "));
  }
}

TEST_F(ModelFolderTest, WhatIsKnownToBeNoParameterIsPassedOver) {
  std::vector<Tensor> tensors = TensorsOf("gpt2");
  tensors.push_back({"transformer.h.0.attn.bias", StoredDType::kBool, {1, 1, 2, 2}, {}});
  tensors.back().bytes.resize(4);
  tensors.push_back({"transformer.h.1.attn.masked_bias", StoredDType::kF32, {}, {}});
  tensors.back().bytes.resize(4);
  Put("gpt2", tensors);
  EXPECT_THAT(TryToLoad(folder_), IsOk());
  tensors.back().name = "transformer.h.1.attn.other_bias";
  Put("gpt2", tensors);
  EXPECT_THAT(TryToLoad(folder_),
              StatusIs(kInvalid,
                       "holds 1 tensors that are none of the gpt2 that config.json "
                       "describes: \"transformer.h.1.attn.other_bias\""));
  tensors = TensorsOf("llama");
  for (const std::string_view name :
       {"model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"}) {
    tensors.push_back({std::string(name), StoredDType::kF32, {4}, {}});
    tensors.back().bytes.resize(16);
  }
  Put("llama", tensors);
  EXPECT_THAT(TryToLoad(folder_), IsOk());
}

TEST_F(ModelFolderTest, MissingAndUnexpectedTensorsAreNamed) {
  const std::vector<Tensor> all = TensorsOf("llama");
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<Tensor> tensors = all;
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
    Put("llama", tensors);
    EXPECT_THAT(TryToLoad(folder_),
                StatusIs(kInvalid, StrCat("lacks 1 tensors of the llama that config.json "
                                          "describes: \"",
                                          all[i].name, "\"")));
  }
  Put("llama", {});
  EXPECT_THAT(TryToLoad(folder_), StatusIs(kInvalid, "\"model.embed_tokens.weight\", "));
  EXPECT_THAT(TryToLoad(folder_), StatusIs(kInvalid, " and 31 more"));
  std::vector<Tensor> tensors = all;
  for (int i = 0; i < 6; ++i) {
    tensors.push_back({StrCat("model.layers.", 2 + i, ".input_layernorm.weight"),
                       StoredDType::kF32,
                       {16},
                       std::vector<std::byte>(64)});
  }
  Put("llama", tensors);
  EXPECT_THAT(TryToLoad(folder_), StatusIs(kInvalid, "holds 6 tensors that are none of the llama"));
  EXPECT_THAT(TryToLoad(folder_), StatusIs(kInvalid, "\"model.layers.2.input_layernorm.weight\""));
}

TEST_F(ModelFolderTest, OtherShapesAndTypesAreNamed) {
  std::vector<Tensor> tensors = TensorsOf("gpt2");
  for (Tensor& tensor : tensors) {
    if (tensor.name == "transformer.h.1.mlp.c_fc.weight") std::ranges::reverse(tensor.shape);
  }
  Put("gpt2", tensors);
  EXPECT_THAT(TryToLoad(folder_),
              StatusIs(kInvalid,
                       "tensor \"transformer.h.1.mlp.c_fc.weight\" is [64, 16]; by "
                       "config.json it must be [16, 64]"));
  tensors = TensorsOf("llama");
  tensors[3].dtype = StoredDType::kI32;
  Put("llama", tensors);
  EXPECT_THAT(TryToLoad(folder_), StatusIs(kInvalid, "is I32; only F32, BF16 and F16 can be"));
}

TEST_F(ModelFolderTest, ATiedHeadInTheFilesIsTheEmbeddingOrIsTold) {
  std::vector<Tensor> tensors = TensorsOf("llama_tied");
  Tensor head = *std::ranges::find(tensors, "model.embed_tokens.weight", &Tensor::name);
  head.name = "lm_head.weight";
  tensors.push_back(head);
  Put("llama_tied", tensors);
  auto model = Load(folder_, DType::kF32);
  EXPECT_THAT(log_.text, IsEmpty());
  tensors.back().bytes[5] ^= std::byte{0x10};
  Put("llama_tied", tensors);
  model = Load(folder_, DType::kF32);
  EXPECT_THAT(log_.text, HasSubstr("\"lm_head.weight\", which differs from the embedding, while "
                                   "config.json says that they are one"));
  EXPECT_THAT(Distance(folder_, "llama_tied"), IsOkAndHolds(Lt(2e-5)));
  // Untied without a head is no model.
  tensors.pop_back();
  Put("llama_tied", tensors);
  DecoderConfig config = ConfigOf(folder_, DType::kF32);
  config.tie_embeddings = false;
  Model untied(config, Trainability::kTrainable);
  EXPECT_THAT(LoadModelFolder(&files_, folder_, config, untied.bench.store(), log_),
              StatusIs(kInvalid,
                       "lacks 1 tensors of the llama that config.json describes: "
                       "\"lm_head.weight\""));
}

TEST_F(ModelFolderTest, GenerationConfigCompletesConfig) {
  const ModelFolder folder = Read(PathOf("llama"));
  EXPECT_EQ(folder.generation.end_tokens, std::vector<int32_t>{2});
  EXPECT_EQ(folder.generation.begin_token, 1);
  fs::create_directories(folder_);
  fs::copy(PathOf("llama") + "/config.json", folder_);
  EXPECT_EQ(Read(folder_).generation.end_tokens, std::vector<int32_t>{2});
  std::ofstream(folder_ + "/generation_config.json") << R"({"eos_token_id": [7, 8]})";
  EXPECT_EQ(Read(folder_).generation.end_tokens, (std::vector<int32_t>{7, 8}));
  std::ofstream(folder_ + "/generation_config.json") << R"({"top_k": "many"})";
  EXPECT_THAT(ReadModelFolder(files_, folder_, ModelPurpose::kInference),
              StatusIs(kInvalid, StrCat(folder_, ": generation_config.json: top_k is \"many\"")));
}

TEST_F(ModelFolderTest, FoldersWithoutAModelAreTold) {
  EXPECT_FALSE(IsModelFolder(folder_));
  EXPECT_THAT(ReadModelFolder(files_, folder_, ModelPurpose::kInference),
              StatusIs(absl::StatusCode::kNotFound, "is no model folder: it has no config.json"));
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/config.json") << R"({"model_type": "falcon"})";
  EXPECT_TRUE(IsModelFolder(folder_));
  EXPECT_THAT(ReadModelFolder(files_, folder_, ModelPurpose::kInference),
              StatusIs(kInvalid, StrCat(folder_, ": config.json: model_type is \"falcon\"")));
}

TEST_F(ModelFolderTest, AFolderThatIsThereIsNotTouched) {
  const auto model = Load(PathOf("llama"), DType::kF32);
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/mine") << "mine";
  EXPECT_THAT(Save(*model, folder_, DType::kF32, ""),
              StatusIs(absl::StatusCode::kAlreadyExists, "is there already"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(ModelFolderTest, WhicheverCallOfASaveFailsNothingIsThere) {
  const auto model = Load(PathOf("llama"), DType::kF32);
  const auto save = [&](FileCalls* files) {
    return SaveModelFolder(
        {.files = files,
         .place = folder_,
         .config = &model->config,
         .dtype = DType::kBF16,
         .shard_bytes_max = 4_KiB,
         .origin = PathOf("llama")},
        [&](const DecoderTensor& parameter, int64_t first, std::span<float> values) {
          return ReadParameter(model->bench.store(), parameter.name, first, values);
        });
  };
  FaultyFileCalls counting(&files_);
  ASSERT_THAT(save(&counting), IsOk());
  for (const FileCallKind kind :
       {FileCallKind::kRead, FileCallKind::kWrite, FileCallKind::kSync, FileCallKind::kRename}) {
    for (int64_t n = 0; n < counting.calls(kind); ++n) {
      fs::remove_all(folder_);
      FaultyFileCalls files(&files_);
      files.Inject({.kind = kind, .first = n}, FailCall{EIO});
      EXPECT_THAT(save(&files), StatusIs(absl::StatusCode::kDataLoss)) << kind << " " << n;
      const bool renamed = kind == FileCallKind::kSync && n + 1 == counting.calls(kind);
      EXPECT_EQ(fs::exists(folder_), renamed) << kind << " " << n;
    }
  }
}

}  // namespace
}  // namespace gantry
