// Goal: folders come out as they went in but for what was asked, and merging an adapter gives what
// PEFT's merge_and_unload gives.
//
// The models, adapters and merged weights: testdata/make_models.py, testdata/make_adapters.py.
#include "trainer/hugging_face/convert_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
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
#include "base/strings.h"
#include "base/testing/faulty_file_calls.h"
#include "base/testing/status_matchers.h"
#include "trainer/hugging_face/adapter_config.h"
#include "trainer/hugging_face/adapter_folder.h"
#include "trainer/safetensors/header.h"
#include "trainer/safetensors/reader.h"
#include "trainer/safetensors/stored_dtype.h"
#include "trainer/safetensors/writer.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string PathOf(std::string_view name) { return StrCat("trainer/hugging_face/testdata/", name); }

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  GANTRY_CHECK_OK(value.status());
  return *std::move(value);
}

template <typename T>
std::vector<T> Elements(const SafetensorsReader& reader, std::string_view name) {
  const StoredTensor* tensor = reader.Find(name);
  GANTRY_CHECK(tensor != nullptr) << name;
  std::vector<T> elements(static_cast<size_t>(tensor->bytes) / sizeof(T));
  GANTRY_CHECK_OK(reader.ReadInto(*tensor, 0, std::as_writable_bytes(std::span(elements))));
  return elements;
}

std::string Text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class ConvertFolderTest : public ::testing::Test {
 protected:
  ConvertFolderTest() : place_(::testing::TempDir() + "convert_folder_test") {
    fs::remove_all(place_);
    fs::remove_all(place_ + ".adapter");
  }
  ~ConvertFolderTest() override {
    fs::remove_all(place_);
    fs::remove_all(place_ + ".adapter");
  }

  FolderConversion From(std::string_view model) {
    return {.files = &files_, .from = PathOf(model), .place = place_};
  }
  SafetensorsReader Open(const std::string& path) {
    return ValueOrDie(SafetensorsReader::Open(&files_, path));
  }

  PosixFileCalls files_;
  std::string place_;
};

TEST_F(ConvertFolderTest, NothingChangesThatWasNotAsked) {
  FolderConversion conversion = From("qwen3");  // in four shards
  const auto converted = ConvertFolder(conversion);
  ASSERT_THAT(converted, IsOk());
  const SafetensorsReader before = Open(PathOf("qwen3"));
  const SafetensorsReader after = Open(place_);
  EXPECT_EQ(after.file_count(), 1u);
  EXPECT_EQ(converted->tensors, std::ssize(before.tensors()));
  EXPECT_EQ(converted->bytes, before.data_bytes());
  for (const StoredTensor& tensor : before.tensors()) {
    EXPECT_EQ(after.Find(tensor.name)->shape, tensor.shape);
    EXPECT_EQ(Elements<float>(after, tensor.name), Elements<float>(before, tensor.name));
  }
  EXPECT_EQ(Text(place_ + "/config.json"), Text(PathOf("qwen3") + "/config.json"));
  EXPECT_EQ(Text(place_ + "/generation_config.json"),
            Text(PathOf("qwen3") + "/generation_config.json"));
}

TEST_F(ConvertFolderTest, TypesAndShardsAreChanged) {
  FolderConversion conversion = From("llama");
  conversion.dtype = DType::kBF16;
  conversion.shard_bytes_max = 4_KiB;
  const auto converted = ConvertFolder(conversion);
  ASSERT_THAT(converted, IsOk());
  const SafetensorsReader before = Open(PathOf("llama"));
  const SafetensorsReader after = Open(place_);
  EXPECT_EQ(converted->bytes, before.data_bytes() / 2);
  EXPECT_GT(after.file_count(), 3u);
  for (const StoredTensor& tensor : before.tensors()) {
    EXPECT_EQ(after.Find(tensor.name)->dtype, StoredDType::kBF16);
    const auto exact = Elements<float>(before, tensor.name);
    const auto rounded = Elements<BFloat16>(after, tensor.name);
    for (size_t i = 0; i < exact.size(); ++i) {
      ASSERT_EQ(static_cast<float>(rounded[i]), static_cast<float>(BFloat16(exact[i])));
    }
  }
  EXPECT_NE(Text(place_ + "/config.json").find("\"dtype\": \"bfloat16\""), std::string::npos);
}

// Any model's files, with tensors that are no weights.
TEST_F(ConvertFolderTest, WhatIsNoFloatStaysAsItIs) {
  const std::string from = place_ + ".adapter";
  fs::create_directories(from);
  std::ofstream(from + "/config.json") << "{\"model_type\": \"anything\"}";
  const std::vector<TensorToStore> tensors = {{"ids", StoredDType::kI64, {3}},
                                              {"weight", StoredDType::kF16, {2}}};
  ASSERT_THAT(WriteSafetensors({.files = &files_, .folder = from}, tensors,
                               [](size_t, int64_t, std::span<std::byte> piece) {
                                 for (std::byte& byte : piece) byte = std::byte{0x3c};
                                 return absl::OkStatus();
                               }),
              IsOk());
  FolderConversion conversion{.files = &files_, .from = from, .place = place_};
  conversion.dtype = DType::kF32;
  ASSERT_THAT(ConvertFolder(conversion), IsOk());
  const SafetensorsReader after = Open(place_);
  EXPECT_EQ(after.Find("ids")->dtype, StoredDType::kI64);
  EXPECT_THAT(Elements<int64_t>(after, "ids"),
              ElementsAre(0x3c3c3c3c3c3c3c3c, 0x3c3c3c3c3c3c3c3c, 0x3c3c3c3c3c3c3c3c));
  EXPECT_EQ(after.Find("weight")->dtype, StoredDType::kF32);
  EXPECT_THAT(Elements<float>(after, "weight"), ElementsAre(1.05859375F, 1.05859375F));
}

TEST_F(ConvertFolderTest, MergingGivesTheWeightsOfPeft) {
  struct Case {
    std::string_view model;
    int64_t maps;
  };
  for (const Case& item : {Case{"llama", 6}, Case{"gpt2", 4}}) {
    SCOPED_TRACE(item.model);
    fs::remove_all(place_);
    FolderConversion conversion = From(item.model);
    conversion.adapter = PathOf(StrCat(item.model, "_adapter"));
    const auto converted = ConvertFolder(conversion);
    ASSERT_THAT(converted, IsOk());
    EXPECT_EQ(converted->merged, item.maps);
    const SafetensorsReader expected = Open(conversion.adapter + "/merged.safetensors");
    const SafetensorsReader after = Open(place_);
    const SafetensorsReader before = Open(conversion.from);
    ASSERT_EQ(after.tensors().size(), expected.tensors().size());
    int64_t changed = 0;
    for (const StoredTensor& tensor : expected.tensors()) {
      const auto ours = Elements<float>(after, tensor.name);
      const auto theirs = Elements<float>(expected, tensor.name);
      for (size_t i = 0; i < ours.size(); ++i) {
        ASSERT_LE(std::abs(ours[i] - theirs[i]), 1e-6 * (1 + std::abs(theirs[i]))) << tensor.name;
      }
      if (ours != Elements<float>(before, tensor.name)) ++changed;
    }
    EXPECT_EQ(changed, item.maps);
  }
}

TEST_F(ConvertFolderTest, AdaptersOfOtherModelsAreRefused) {
  FolderConversion conversion = From("qwen2");
  conversion.adapter = PathOf("gpt2_adapter");
  EXPECT_THAT(ConvertFolder(conversion),
              StatusIs(kInvalid,
                       "changes \"transformer.h.0.attn.c_attn\", which the model does "
                       "not have: it is another model's"));
  conversion.adapter = PathOf("llama_adapter");
  EXPECT_THAT(ConvertFolder(conversion), StatusIs(kInvalid, "which is not its shape in the model"));
  conversion.adapter = PathOf("llama");
  EXPECT_THAT(ConvertFolder(conversion),
              StatusIs(absl::StatusCode::kNotFound, "is no adapter: it has no adapter_config"));
  EXPECT_FALSE(fs::exists(place_));
}

// ---- Adapters themselves

absl::Status SaveSmallAdapter(FileCalls* files, const std::string& place,
                              const AdapterConfig& config) {
  const std::vector<AdapterModule> modules = {{"model.b", 3, 5}, {"model.a", 4, 2}};
  return SaveAdapter({.files = files, .place = place, .config = &config, .dtype = DType::kF32},
                     modules,
                     [](size_t module, AdapterMatrix part, int64_t first, std::span<float> values) {
                       const float base = part == AdapterMatrix::kA ? 100.0F : 200.0F;
                       for (size_t i = 0; i < values.size(); ++i) {
                         values[i] = base * static_cast<float>(module + 1) +
                                     static_cast<float>(first) + static_cast<float>(i);
                       }
                       return absl::OkStatus();
                     });
}

TEST_F(ConvertFolderTest, AnAdapterComesBackAsItWasSaved) {
  const AdapterConfig config{.rank = 2, .alpha = 4, .target_modules = {"a", "b"}};
  ASSERT_THAT(SaveSmallAdapter(&files_, place_, config), IsOk());
  const auto adapter = AdapterFolder::Open(&files_, place_);
  ASSERT_THAT(adapter, IsOk());
  EXPECT_EQ(adapter->config(), config);
  EXPECT_THAT(adapter->modules(), ElementsAre("model.a", "model.b"));
  const auto pair = adapter->Read("model.a");
  ASSERT_THAT(pair, IsOk());
  EXPECT_EQ(pair->in, 4);
  EXPECT_EQ(pair->out, 2);
  EXPECT_THAT(pair->a, ElementsAre(200, 201, 202, 203, 204, 205, 206, 207));
  EXPECT_THAT(pair->b, ElementsAre(400, 401, 402, 403));
  EXPECT_THAT(SaveSmallAdapter(&files_, place_, config),
              StatusIs(absl::StatusCode::kAlreadyExists, "is there already"));
}

TEST_F(ConvertFolderTest, DamagedAdaptersAreNamed) {
  const auto open_with = [&](std::string_view name, std::vector<int64_t> shape,
                             StoredDType dtype = StoredDType::kF32) {
    fs::remove_all(place_);
    fs::create_directories(place_);
    std::ofstream(place_ + "/adapter_config.json") << R"({"peft_type": "LORA", "r": 2})";
    const std::vector<TensorToStore> tensors = {
        {"base_model.model.m.lora_A.weight", StoredDType::kF32, {2, 3}},
        {std::string(name), dtype, std::move(shape)}};
    GANTRY_CHECK_OK(
        WriteSafetensors({.files = &files_, .folder = place_, .name = "adapter_model"}, tensors,
                         [](size_t, int64_t, std::span<std::byte>) { return absl::OkStatus(); }));
    return AdapterFolder::Open(&files_, place_);
  };
  EXPECT_THAT(open_with("base_model.model.m.lora_B.weight", {3, 2}), IsOk());
  EXPECT_THAT(
      open_with("base_model.model.m.lora_B.weight", {3, 3}),
      StatusIs(kInvalid, "A and B of \"m\" have ranks 2 and 3; adapter_config.json says 2"));
  EXPECT_THAT(open_with("base_model.model.m.lora_B.weight", {3, 2, 1}),
              StatusIs(kInvalid, "is F32 of 3 dimensions; it must be F32, BF16 or F16 of 2"));
  EXPECT_THAT(open_with("base_model.model.m.lora_B.weight", {3, 2}, StoredDType::kI32),
              StatusIs(kInvalid, "is I32 of 2 dimensions"));
  EXPECT_THAT(open_with("base_model.model.n.lora_B.weight", {3, 2}),
              StatusIs(kInvalid, "without \"base_model.model.m.lora_B.weight\""));
  EXPECT_THAT(open_with("base_model.model.m.lora_magnitude_vector", {3}),
              StatusIs(kInvalid, "holds \"base_model.model.m.lora_magnitude_vector\"; only"));
  EXPECT_THAT(open_with("m.lora_B.weight", {3, 2}), StatusIs(kInvalid, "only base_model.model."));
  fs::remove(place_ + "/adapter_model.safetensors");
  EXPECT_THAT(AdapterFolder::Open(&files_, place_), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ConvertFolderTest, WhicheverCallFailsNothingIsThere) {
  FolderConversion conversion = From("llama");
  conversion.adapter = PathOf("llama_adapter");
  FaultyFileCalls counting(&files_);
  conversion.files = &counting;
  ASSERT_THAT(ConvertFolder(conversion), IsOk());
  for (const FileCallKind kind :
       {FileCallKind::kOpen, FileCallKind::kRead, FileCallKind::kWrite, FileCallKind::kSync}) {
    for (int64_t n = 0; n < counting.calls(kind); ++n) {
      fs::remove_all(place_);
      FaultyFileCalls files(&files_);
      files.Inject({.kind = kind, .first = n}, FailCall{EIO});
      conversion.files = &files;
      const auto converted = ConvertFolder(conversion);
      EXPECT_THAT(converted, StatusIs(absl::StatusCode::kDataLoss)) << kind << " " << n;
      const bool renamed = (kind == FileCallKind::kSync || kind == FileCallKind::kOpen) &&
                           n + 1 == counting.calls(kind);
      EXPECT_EQ(fs::exists(place_), renamed) << kind << " " << n;
    }
  }
}

}  // namespace
}  // namespace gantry
