// Goal: what is written is what the reference implementation writes, comes back through the reader
// to the bit, and after a failure of any call no folder is there.
#include "trainer/safetensors/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/temporary_directory.h"
#include "base/testing/faulty_file_calls.h"
#include "base/testing/status_matchers.h"
#include "trainer/safetensors/header.h"
#include "trainer/safetensors/reader.h"
#include "trainer/safetensors/stored_dtype.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr char kReference[] = "trainer/safetensors/testdata/reference.safetensors";

class SafetensorsWriterTest : public ::testing::Test {
 protected:
  SafetensorsWriterTest() : folder_(::testing::TempDir() + "safetensors_writer_test") {
    fs::remove_all(folder_);
  }
  ~SafetensorsWriterTest() override { fs::remove_all(folder_); }

  // Bytes of tensor `i` are a function of i and the byte.
  static std::byte ByteOf(size_t tensor, int64_t byte) {
    return static_cast<std::byte>(
        Random({.seed = 7, .stream = tensor}).Bits(static_cast<uint64_t>(byte)));
  }
  static absl::Status Fill(size_t tensor, int64_t first_byte, std::span<std::byte> piece) {
    for (size_t i = 0; i < piece.size(); ++i) {
      piece[i] = ByteOf(tensor, first_byte + static_cast<int64_t>(i));
    }
    return absl::OkStatus();
  }

  absl::Status Write(FileCalls* files, const std::vector<TensorToStore>& tensors, Bytes shard_max) {
    GANTRY_ASSIGN_OR_RETURN(TemporaryDirectory directory,
                            TemporaryDirectory::Create(files, folder_));
    GANTRY_RETURN_IF_ERROR(WriteSafetensors(
        {.files = files, .folder = directory.path(), .shard_bytes_max = shard_max}, tensors, Fill));
    return directory.Commit();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  void ExpectRead(const std::vector<TensorToStore>& tensors) {
    const auto reader = SafetensorsReader::Open(&files_, folder_);
    ASSERT_THAT(reader, IsOk());
    ASSERT_EQ(reader->tensors().size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const StoredTensor* found = reader->Find(tensors[i].name);
      ASSERT_NE(found, nullptr);
      EXPECT_EQ(found->dtype, tensors[i].dtype);
      EXPECT_EQ(found->shape, tensors[i].shape);
      std::vector<std::byte> bytes(static_cast<size_t>(found->bytes));
      std::vector<std::byte> expected(bytes.size());
      ASSERT_THAT(reader->ReadInto(*found, 0, bytes), IsOk());
      ASSERT_THAT(Fill(i, 0, expected), IsOk());
      EXPECT_TRUE(bytes == expected) << tensors[i].name;
    }
  }

  PosixFileCalls files_;
  std::string folder_;
};

const std::vector<TensorToStore>& Small() {
  static const auto* const tensors = new std::vector<TensorToStore>{
      {"b", StoredDType::kF32, {2, 3}}, {"c", StoredDType::kBF16, {5}},
      {"a", StoredDType::kF32, {1}},    {"d", StoredDType::kI64, {}},
      {"e", StoredDType::kF32, {0}},
  };
  return *tensors;
}

// The reference's tensors in another order, from its bytes.
TEST_F(SafetensorsWriterTest, WritesTheFileOfTheReferenceImplementation) {
  const auto reader = SafetensorsReader::Open(&files_, kReference);
  ASSERT_THAT(reader, IsOk());
  std::vector<TensorToStore> tensors;
  for (size_t i = reader->tensors().size(); i > 0; --i) {
    const StoredTensor& tensor = reader->tensors()[i - 1];
    tensors.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  fs::create_directories(folder_);
  ASSERT_THAT(WriteSafetensors({.files = &files_, .folder = folder_}, tensors,
                               [&](size_t i, int64_t first, std::span<std::byte> piece) {
                                 return reader->ReadInto(*reader->Find(tensors[i].name), first,
                                                         piece);
                               }),
              IsOk());
  const auto expected = ReadFileToString(files_, kReference, 1_MiB);
  ASSERT_THAT(expected, IsOk());
  EXPECT_THAT(ReadFileToString(files_, folder_ + "/model.safetensors", 1_MiB),
              IsOkAndHolds(*expected));
  EXPECT_THAT(Names(), ElementsAre("model.safetensors"));
}

TEST_F(SafetensorsWriterTest, ShardsAreAsFullAsTheyGo) {
  // 24, 10, 4, 8 and 0 bytes.
  struct Case {
    int64_t bytes_max;
    size_t files;
  };
  for (const Case& item : {Case{0, 5}, Case{9, 4}, Case{10, 4}, Case{12, 3}, Case{34, 2},
                           Case{45, 2}, Case{46, 1}, Case{47, 1}}) {
    SCOPED_TRACE(StrCat("at most ", item.bytes_max));
    fs::remove_all(folder_);
    ASSERT_THAT(Write(&files_, Small(), Bytes(item.bytes_max)), IsOk());
    ExpectRead(Small());
    const auto reader = SafetensorsReader::Open(&files_, folder_);
    ASSERT_THAT(reader, IsOk());
    EXPECT_EQ(reader->file_count(), item.files);
    std::map<size_t, int64_t> bytes;
    std::map<size_t, int> count;
    for (const StoredTensor& tensor : reader->tensors()) {
      bytes[tensor.file] += tensor.bytes;
      ++count[tensor.file];
    }
    for (const auto& [file, sum] : bytes) {
      EXPECT_TRUE(sum <= item.bytes_max || count[file] == 1) << file;
    }
  }
}

TEST_F(SafetensorsWriterTest, ShardsHaveTransformersNames) {
  ASSERT_THAT(Write(&files_, Small(), 34_B), IsOk());
  EXPECT_THAT(Names(),
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json"));
}

TEST_F(SafetensorsWriterTest, PiecesAreBounded) {
  const int64_t piece = kSafetensorsPieceBytes.count();
  const std::vector<TensorToStore> tensors = {{"a", StoredDType::kU8, {piece - 1}},
                                              {"b", StoredDType::kU8, {piece}},
                                              {"c", StoredDType::kU8, {piece + 1}}};
  std::vector<int64_t> pieces;
  fs::create_directories(folder_);
  ASSERT_THAT(WriteSafetensors({.files = &files_, .folder = folder_}, tensors,
                               [&](size_t, int64_t, std::span<std::byte> bytes) {
                                 pieces.push_back(std::ssize(bytes));
                                 return absl::OkStatus();
                               }),
              IsOk());
  EXPECT_THAT(pieces, ElementsAre(piece - 1, piece, piece, 1));
}

TEST_F(SafetensorsWriterTest, NoTensorsAreAFileToo) {
  ASSERT_THAT(Write(&files_, {}, kShardBytesMax), IsOk());
  EXPECT_THAT(Names(), ElementsAre("model.safetensors"));
  ExpectRead({});
}

TEST_F(SafetensorsWriterTest, ImpossibleTensorsAreRefused) {
  const auto write = [&](std::vector<TensorToStore> tensors) {
    const absl::Status status = Write(&files_, tensors, kShardBytesMax);
    EXPECT_FALSE(fs::exists(folder_));
    return status;
  };
  EXPECT_THAT(write({{"a", StoredDType::kU8, {1}}, {"a", StoredDType::kU8, {1}}}),
              StatusIs(kInvalid, "tensor \"a\" would be stored twice"));
  EXPECT_THAT(write({{"a", StoredDType::kU8, {-1}}}), StatusIs(kInvalid, "no number of elements"));
  EXPECT_THAT(write({{std::string(1025, 'n'), StoredDType::kU8, {1}}}),
              StatusIs(kInvalid, "1025 bytes; the most is 1024"));
  const int64_t large = (int64_t{1} << 60) - 1;
  EXPECT_THAT(write({{"a", StoredDType::kU8, {large}},
                     {"b", StoredDType::kU8, {large}},
                     {"c", StoredDType::kU8, {large}},
                     {"d", StoredDType::kU8, {large}},
                     {"e", StoredDType::kU8, {large}},
                     {"f", StoredDType::kU8, {large}},
                     {"g", StoredDType::kU8, {large}},
                     {"h", StoredDType::kU8, {large}},
                     {"i", StoredDType::kU8, {large}}}),
              StatusIs(kInvalid, "too large"));
}

TEST_F(SafetensorsWriterTest, TheSourcesErrorIsTold) {
  fs::create_directories(folder_);
  EXPECT_THAT(WriteSafetensors({.files = &files_, .folder = folder_}, Small(),
                               [](size_t tensor, int64_t, std::span<std::byte>) {
                                 return tensor == 1 ? DataLoss("tensor 1 is lost")
                                                    : absl::OkStatus();
                               }),
              StatusIs(absl::StatusCode::kDataLoss, "tensor 1 is lost"));
}

TEST_F(SafetensorsWriterTest, WhicheverCallFailsNothingIsThere) {
  FaultyFileCalls counting(&files_);
  ASSERT_THAT(Write(&counting, Small(), 34_B), IsOk());
  for (const FileCallKind kind : {FileCallKind::kOpen, FileCallKind::kWrite, FileCallKind::kSync,
                                  FileCallKind::kRename, FileCallKind::kMakeDirectory}) {
    for (int64_t n = 0; n < counting.calls(kind); ++n) {
      SCOPED_TRACE(StrCat(kind, " ", n, " of ", counting.calls(kind)));
      fs::remove_all(folder_);
      FaultyFileCalls files(&files_);
      files.Inject({.kind = kind, .first = n}, FailCall{ENOSPC});
      const absl::Status written = Write(&files, Small(), 34_B);
      if (written.ok()) {
        // A parent that was there already.
        EXPECT_EQ(kind, FileCallKind::kMakeDirectory);
        continue;
      }
      EXPECT_EQ(written.code(), absl::StatusCode::kResourceExhausted) << written;
      // Once renamed it is there: only the parent's sync may have failed.
      const bool last = kind == FileCallKind::kSync && n + 1 == counting.calls(kind);
      const bool opened_parent = kind == FileCallKind::kOpen && n + 1 == counting.calls(kind);
      EXPECT_EQ(fs::exists(folder_), last || opened_parent);
    }
  }
  for (const auto& entry : fs::directory_iterator(::testing::TempDir())) {
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
  }
}

}  // namespace
}  // namespace gantry
