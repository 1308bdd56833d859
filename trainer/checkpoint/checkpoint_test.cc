// Round trips through a directory, and what reading says of every kind of damage.
#include "trainer/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/ids.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"
#include "gemini/testing/memory_store.h"
#include "trainer/checkpoint/checkpoint_directory.h"
#include "trainer/checkpoint/state_file.h"
#include "trainer/checkpoint/testing/small_store.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : directory_(::testing::TempDir() + "checkpoint_test") {
    std::filesystem::remove_all(directory_);
    source_ = MakeSmallStore(SmallModel(), kChunk);
    FillStates(*source_.store, 99);
    saved_ = Save(*source_.store);
  }

  std::string Save(MemoryStore& store) {
    auto target = CheckpointDirectory::Open({.files = &files_, .path = directory_, .keep = 2});
    GANTRY_CHECK_OK(target.status());
    auto path = (*target)->Save(store, {.step = 3, .sequences = 24}, {{"model.layers", "1"}});
    GANTRY_CHECK_OK(path.status());
    return *path;
  }

  std::string manifest_path() const { return saved_ + "/" + kManifestFile; }
  std::string state_path() const { return saved_ + "/" + kStateFile; }

  void FlipByte(const std::string& path, int64_t offset, uint8_t mask) {
    auto file = OpenFile(files_, path, O_RDWR, 0);
    GANTRY_CHECK_OK(file.status());
    uint8_t byte = 0;
    GANTRY_CHECK_EQ(pread(file->get(), &byte, 1, offset), 1);
    byte ^= mask;
    GANTRY_CHECK_EQ(pwrite(file->get(), &byte, 1, offset), 1);
  }
  static int64_t SizeOfFile(const std::string& path) {
    return static_cast<int64_t>(std::filesystem::file_size(path));
  }
  // Opens and restores into a fresh store; an error must leave that store as it was.
  absl::Status OpenAndRestore() const {
    auto checkpoint = Checkpoint::Open(&files_, saved_);
    if (!checkpoint.ok()) return checkpoint.status();
    SmallStore target = MakeSmallStore(SmallModel(), kChunk);
    const std::vector<std::byte> before = AllStates(*target.store);
    absl::Status status = checkpoint->Restore(*target.store);
    if (!status.ok()) {
      EXPECT_EQ(AllStates(*target.store), before);
    }
    return status;
  }

  mutable PosixFileCalls files_;
  std::string directory_;
  SmallStore source_;
  std::string saved_;
};

TEST_F(CheckpointTest, RestoresEveryStateToTheBit) {
  const auto checkpoint = Checkpoint::Open(&files_, saved_);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->manifest().position.step, 3);
  EXPECT_EQ(checkpoint->manifest().position.sequences, 24);
  EXPECT_EQ(checkpoint->manifest().settings.at("model.layers"), "1");
  EXPECT_EQ(checkpoint->manifest().state_bytes(), SizeOfFile(state_path()));
  SmallStore target = MakeSmallStore(SmallModel(), kChunk);
  ASSERT_THAT(checkpoint->Restore(*target.store), IsOk());
  EXPECT_EQ(AllStates(*target.store), AllStates(*source_.store));
}

TEST_F(CheckpointTest, DoesNotDependOnTheChunkSize) {
  SmallStore other = MakeSmallStore(SmallModel(), 4 * kChunk);
  FillStates(*other.store, 99);
  const std::string again = Save(*other.store);
  ASSERT_NE(again, saved_);
  for (const char* name : {kManifestFile, kStateFile}) {
    EXPECT_EQ(*ReadFileToString(files_, StrCat(saved_, "/", name), 1_MiB),
              *ReadFileToString(files_, StrCat(again, "/", name), 1_MiB));
  }
}

// A tensor larger than a piece, with a last piece that is not full.
TEST_F(CheckpointTest, LongTensorsPassInPieces) {
  const std::vector<TensorSpec> model = {
      {.name = "long", .shape = {kStatePieceBytes.count() / 4 * 2 + 5}, .dtype = DType::kBF16}};
  SmallStore source = MakeSmallStore(model, kChunk);
  const int64_t elements = model[0].shape[0];
  std::vector<float> values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  for (const StateKind kind : {StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance}) {
    ASSERT_THAT(source.store->WriteState(kind, TensorId(0), 0, std::as_bytes(std::span(values))),
                IsOk());
  }
  const auto checkpoint = Checkpoint::Open(&files_, Save(*source.store));
  ASSERT_THAT(checkpoint, IsOk());
  SmallStore target = MakeSmallStore(model, kChunk);
  ASSERT_THAT(checkpoint->Restore(*target.store), IsOk());
  EXPECT_TRUE(AllStates(*target.store) == AllStates(*source.store));
}

TEST_F(CheckpointTest, OnlyTheStatesThatThereAreAreSaved) {
  SmallStore lion = MakeSmallStore(SmallModel(), kChunk, OptimizerKind::kLion);
  FillStates(*lion.store, 7);
  const auto checkpoint = Checkpoint::Open(&files_, Save(*lion.store));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->manifest().optimizer, OptimizerKind::kLion);
  // 77 + 33 + 1 trained elements of 8 bytes, 15 frozen ones of 2.
  EXPECT_EQ(checkpoint->manifest().state_bytes(), 111 * 8 + 15 * 2);
  SmallStore target = MakeSmallStore(SmallModel(), kChunk, OptimizerKind::kLion);
  ASSERT_THAT(checkpoint->Restore(*target.store), IsOk());
  EXPECT_EQ(AllStates(*target.store), AllStates(*lion.store));
}

TEST_F(CheckpointTest, FactorsAreSavedAndComeBack) {
  SmallStore source = MakeSmallStore(SmallModel(), kChunk, OptimizerKind::kAdafactor);
  FillStates(*source.store, 8);
  const auto checkpoint = Checkpoint::Open(&files_, Save(*source.store));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->manifest().optimizer, OptimizerKind::kAdafactor);
  // 77 + 33 + 1 trained elements of 4 bytes, 7 rows and 11 columns, a vector and a scalar.
  EXPECT_EQ(checkpoint->manifest().state_bytes(), 111 * 4 + (7 + 11 + 33 + 1) * 4 + 15 * 2);
  SmallStore target = MakeSmallStore(SmallModel(), kChunk, OptimizerKind::kAdafactor);
  ASSERT_THAT(checkpoint->Restore(*target.store), IsOk());
  EXPECT_EQ(AllStates(*target.store), AllStates(*source.store));
}

TEST_F(CheckpointTest, AnotherOptimizerIsRefusedUnlessNothingIsTrained) {
  const auto checkpoint = Checkpoint::Open(&files_, saved_);
  ASSERT_THAT(checkpoint, IsOk());
  for (const OptimizerKind kind : {OptimizerKind::kLion, OptimizerKind::kAdam}) {
    SmallStore target = MakeSmallStore(SmallModel(), kChunk, kind);
    const std::vector<std::byte> before = AllStates(*target.store);
    EXPECT_THAT(checkpoint->Restore(*target.store),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         StrCat("holds the states of adamw, not of ", kind)));
    EXPECT_EQ(AllStates(*target.store), before);
  }
  std::vector<TensorSpec> frozen = SmallModel();
  for (TensorSpec& spec : frozen) spec.trainability = Trainability::kFrozen;
  SmallStore target = MakeSmallStore(frozen, kChunk, OptimizerKind::kLion);
  EXPECT_THAT(checkpoint->Restore(*target.store), IsOk());
}

// The content is f32, whatever the format; eight-bit moments come back as they were.
TEST_F(CheckpointTest, FormatsReadEachOther) {
  const auto checkpoint = Checkpoint::Open(&files_, saved_);
  ASSERT_THAT(checkpoint, IsOk());
  SmallStore split =
      MakeSmallStore(SmallModel(), kChunk, OptimizerKind::kAdamW, StateFormat::kSplitMaster);
  ASSERT_THAT(checkpoint->Restore(*split.store), IsOk());
  EXPECT_EQ(AllStates(*split.store), AllStates(*source_.store));
  SmallStore eight =
      MakeSmallStore(SmallModel(), kChunk, OptimizerKind::kAdamW, StateFormat::kEightBit);
  ASSERT_THAT(checkpoint->Restore(*eight.store), IsOk());
  EXPECT_NE(AllStates(*eight.store), AllStates(*source_.store));  // rounded to codes
  const auto rounded = Checkpoint::Open(&files_, Save(*eight.store));
  ASSERT_THAT(rounded, IsOk());
  for (const StateFormat format : {StateFormat::kEightBit, StateFormat::kF32}) {
    SmallStore again = MakeSmallStore(SmallModel(), 4 * kChunk, OptimizerKind::kAdamW, format);
    ASSERT_THAT(rounded->Restore(*again.store), IsOk());
    EXPECT_EQ(AllStates(*again.store), AllStates(*eight.store)) << format;
  }
}

TEST_F(CheckpointTest, AFrozenModelTakesTheValuesOfATrainedOne) {
  std::vector<TensorSpec> frozen = SmallModel();
  for (TensorSpec& spec : frozen) spec.trainability = Trainability::kFrozen;
  SmallStore target = MakeSmallStore(frozen, kChunk);
  const auto checkpoint = Checkpoint::Open(&files_, saved_);
  ASSERT_THAT(checkpoint, IsOk());
  ASSERT_THAT(checkpoint->Restore(*target.store), IsOk());
  for (int64_t i = 0; i < target.store->layout().tensor_count(); ++i) {
    const TensorId id(i);
    const auto bytes = static_cast<size_t>(target.store->layout().placement(id).elements *
                                           SizeOf(frozen[static_cast<size_t>(i)].dtype));
    std::vector<std::byte> expected(bytes);
    std::vector<std::byte> actual(bytes);
    ASSERT_THAT(source_.store->ReadState(StateKind::kParameter, id, 0, expected), IsOk());
    ASSERT_THAT(target.store->ReadState(StateKind::kParameter, id, 0, actual), IsOk());
    EXPECT_EQ(actual, expected) << frozen[static_cast<size_t>(i)].name;
  }
}

TEST_F(CheckpointTest, EveryFlippedByteIsAnError) {
  ASSERT_THAT(OpenAndRestore(), IsOk());
  for (const std::string& path : {manifest_path(), state_path()}) {
    const int64_t size = SizeOfFile(path);
    ASSERT_GT(size, 500);
    for (int64_t offset = 0; offset < size; ++offset) {
      const auto mask = static_cast<uint8_t>(1 << (offset % 8));
      FlipByte(path, offset, mask);
      ASSERT_THAT(OpenAndRestore(), StatusIs(absl::StatusCode::kDataLoss)) << path << offset;
      FlipByte(path, offset, mask);
    }
  }
  EXPECT_THAT(OpenAndRestore(), IsOk());
}

TEST_F(CheckpointTest, EveryLengthButTheRightOneIsAnError) {
  const int64_t size = SizeOfFile(state_path());
  for (int64_t length = size - 1; length >= 0; --length) {
    ASSERT_EQ(truncate(state_path().c_str(), length), 0);
    ASSERT_THAT(OpenAndRestore(), StatusIs(absl::StatusCode::kDataLoss, "it was cut short"));
  }
  ASSERT_EQ(truncate(state_path().c_str(), size + 1), 0);
  EXPECT_THAT(OpenAndRestore(),
              StatusIs(absl::StatusCode::kDataLoss, "is from another checkpoint"));
  ASSERT_EQ(truncate(manifest_path().c_str(), 100), 0);
  EXPECT_THAT(OpenAndRestore(), StatusIs(absl::StatusCode::kDataLoss, "cannot be used"));
}

TEST_F(CheckpointTest, AHugeManifestIsNotRead) {
  ASSERT_EQ(truncate(manifest_path().c_str(), int64_t{1} << 40), 0);  // sparse
  EXPECT_THAT(OpenAndRestore(), StatusIs(absl::StatusCode::kResourceExhausted, "cannot read"));
}

TEST_F(CheckpointTest, MissingFilesAndOddFilesAreErrors) {
  ASSERT_EQ(rename(state_path().c_str(), (state_path() + "x").c_str()), 0);
  EXPECT_THAT(OpenAndRestore(), StatusIs(absl::StatusCode::kNotFound, "cannot be used"));
  ASSERT_EQ(mkfifo(state_path().c_str(), 0600), 0);  // opening it must not hang
  EXPECT_THAT(OpenAndRestore(), StatusIs(absl::StatusCode::kDataLoss, "no regular file"));
  EXPECT_THAT(Checkpoint::Open(&files_, directory_ + "/absent"),
              StatusIs(absl::StatusCode::kNotFound, "there is no such directory"));
  ASSERT_EQ(mkdir((directory_ + "/empty").c_str(), 0700), 0);
  EXPECT_THAT(Checkpoint::Open(&files_, directory_ + "/empty"),
              StatusIs(absl::StatusCode::kNotFound, "neither manifest.json nor"));
}

TEST_F(CheckpointTest, AnotherModelIsRefusedWithTheDifference) {
  struct Case {
    std::string message;
    std::vector<TensorSpec> model;
  };
  std::vector<Case> cases;
  const std::vector<TensorSpec> model = SmallModel();
  cases.push_back({"tensor 'embed' is [7, 11] there and [11, 7] in the model", model});
  cases.back().model[0].shape = {11, 7};
  cases.push_back({"tensor 'embed' is bf16 there and f32 in the model", model});
  cases.back().model[0].dtype = DType::kF32;
  cases.push_back({"the model has no tensor 'norm'", model});
  cases.back().model[1].name = "norm2";
  cases.push_back({"tensor 'frozen' is frozen there and trained in the model", model});
  cases.back().model[2].trainability = Trainability::kTrainable;
  cases.push_back({"it has 4 tensors, the model 5", model});
  cases.back().model.push_back({.name = "more", .shape = {2}, .dtype = DType::kF32});
  cases.push_back({"the model has no tensor 'scalar'", model});
  cases.back().model.pop_back();
  for (const Case& item : cases) {
    SCOPED_TRACE(item.message);
    SmallStore target = MakeSmallStore(item.model, kChunk);
    const std::vector<std::byte> before = AllStates(*target.store);
    EXPECT_THAT(Checkpoint::Open(&files_, saved_)->Restore(*target.store),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         StrCat("is from another model: ", item.message)));
    EXPECT_EQ(AllStates(*target.store), before);
  }
}

TEST_F(CheckpointTest, SurvivesItsOwnRemoval) {
  const auto checkpoint = Checkpoint::Open(&files_, saved_);
  ASSERT_THAT(checkpoint, IsOk());
  std::filesystem::remove_all(directory_);
  SmallStore target = MakeSmallStore(SmallModel(), kChunk);
  EXPECT_THAT(checkpoint->Restore(*target.store), IsOk());
}

}  // namespace
}  // namespace gantry
