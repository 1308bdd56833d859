// Goal: a model is handed out as it lies in its files, whatever is damaged or does not fit together
// is an error that names the file, and no file outside the folder is opened.
#include "trainer/safetensors/reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/parallel_for.h"
#include "base/strings.h"
#include "base/testing/faulty_file_calls.h"
#include "base/testing/status_matchers.h"
#include "trainer/safetensors/header.h"
#include "trainer/safetensors/shard_index.h"
#include "trainer/safetensors/stored_dtype.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kNotFound = absl::StatusCode::kNotFound;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

// A file of one U8 tensor a name; each byte of a tensor is its name's first letter.
std::string FileOf(const std::vector<std::pair<std::string, int64_t>>& tensors) {
  SafetensorsHeader header{.tensors = {}, .metadata = {{"format", "pt"}}};
  std::string data;
  for (const auto& [name, bytes] : tensors) {
    header.tensors.push_back({.name = name,
                              .dtype = StoredDType::kU8,
                              .shape = {bytes},
                              .offset = std::ssize(data),
                              .bytes = bytes});
    data += std::string(static_cast<size_t>(bytes), name.empty() ? '?' : name[0]);
  }
  const auto text = SerializeSafetensorsHeader(header);
  GANTRY_CHECK_OK(text.status());
  return *text + data;
}

class SafetensorsReaderTest : public ::testing::Test {
 protected:
  SafetensorsReaderTest() : folder_(::testing::TempDir() + "safetensors_reader_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~SafetensorsReaderTest() override { fs::remove_all(folder_); }

  std::string At(std::string_view name) const { return StrCat(folder_, "/", name); }
  void Put(std::string_view name, const std::string& content) const {
    std::ofstream(At(name), std::ios::binary) << content;
  }
  // Two shards, and their index.
  void PutShards() const {
    Put("x.safetensors", FileOf({{"a", 3}, {"b", 5}}));
    Put("y.safetensors", FileOf({{"c", 4}}));
    Put(kModelIndexFile,
        SerializeShardIndex(
            {{"a", "x.safetensors"}, {"b", "x.safetensors"}, {"c", "y.safetensors"}}, 12));
  }
  auto Open(const std::string& path) { return SafetensorsReader::Open(&files_, path); }
  static std::string Content(const SafetensorsReader& reader, std::string_view name) {
    const StoredTensor* tensor = reader.Find(name);
    GANTRY_CHECK(tensor != nullptr) << name;
    std::string bytes(static_cast<size_t>(tensor->bytes), '\0');
    GANTRY_CHECK_OK(reader.ReadInto(*tensor, 0, std::as_writable_bytes(std::span(bytes))));
    return bytes;
  }

  PosixFileCalls files_;
  std::string folder_;
};

TEST_F(SafetensorsReaderTest, ReadsAFileByItsNameOrItsFolder) {
  Put("model.safetensors", FileOf({{"a", 3}, {"bee", 2}, {"", 1}, {"zero", 0}}));
  for (const std::string& path : {folder_, At("model.safetensors")}) {
    const auto reader = Open(path);
    ASSERT_THAT(reader, IsOk());
    EXPECT_EQ(reader->tensors().size(), 4u);
    EXPECT_EQ(reader->data_bytes(), 6);
    EXPECT_EQ(Content(*reader, "a"), "aaa");
    EXPECT_EQ(Content(*reader, "bee"), "bb");
    EXPECT_EQ(Content(*reader, ""), "?");
    EXPECT_EQ(Content(*reader, "zero"), "");
    EXPECT_EQ(reader->Find("be"), nullptr);
    EXPECT_EQ(reader->Find("bees"), nullptr);
    EXPECT_EQ(reader->metadata().at("format"), "pt");
  }
}

TEST_F(SafetensorsReaderTest, ReadsPieces) {
  Put("model.safetensors", FileOf({{"a", 3}, {"b", 2}}));
  const auto reader = Open(folder_);
  ASSERT_THAT(reader, IsOk());
  std::string two(2, '\0');
  const auto bytes = std::as_writable_bytes(std::span(two));
  reader->ReadAhead(*reader->Find("a"), 0, 3);
  EXPECT_THAT(reader->ReadInto(*reader->Find("a"), 1, bytes), IsOk());
  EXPECT_EQ(two, "aa");
  EXPECT_DEATH(reader->ReadInto(*reader->Find("a"), 2, bytes).IgnoreError(), "2 bytes from 2 of 3");
  EXPECT_DEATH(reader->ReadInto(*reader->Find("a"), -1, bytes).IgnoreError(), "from -1");
}

TEST_F(SafetensorsReaderTest, ReadsShards) {
  PutShards();
  Put("other.safetensors", "is not named");
  const auto reader = Open(folder_);
  ASSERT_THAT(reader, IsOk());
  ASSERT_EQ(reader->file_count(), 2u);
  EXPECT_EQ(reader->path_of(1), At("y.safetensors"));
  EXPECT_EQ(reader->data_bytes(), 12);
  EXPECT_EQ(Content(*reader, "b"), "bbbbb");
  EXPECT_EQ(Content(*reader, "c"), "cccc");
  EXPECT_EQ(reader->Find("c")->file, 1u);
  // As in Transformers, a whole model counts before shards.
  Put("model.safetensors", FileOf({{"d", 1}}));
  const auto whole = Open(folder_);
  ASSERT_THAT(whole, IsOk());
  EXPECT_EQ(whole->tensors().size(), 1u);
}

TEST_F(SafetensorsReaderTest, ShardsThatDoNotFitTheirIndexAreRefused) {
  PutShards();
  Put("y.safetensors", FileOf({{"c", 4}, {"d", 1}}));
  EXPECT_THAT(Open(folder_), StatusIs(kInvalid, "y.safetensors holds tensor \"d\", which is not"));
  Put("y.safetensors", FileOf({{"c", 4}, {"a", 1}}));
  EXPECT_THAT(Open(folder_), StatusIs(kInvalid, "y.safetensors holds tensor \"a\", which is not"));
  Put("y.safetensors", FileOf({{"d", 4}}));
  EXPECT_THAT(Open(folder_), StatusIs(kInvalid, "y.safetensors holds tensor \"d\", which is not"));
  Put("y.safetensors", FileOf({}));
  EXPECT_THAT(Open(folder_),
              StatusIs(kInvalid, StrCat(At(kModelIndexFile),
                                        " names tensors that are not in their files: \"c\"")));
  Put("x.safetensors", FileOf({}));
  EXPECT_THAT(Open(folder_), StatusIs(kInvalid, "in their files: \"a\", \"b\", \"c\""));
  fs::remove(At("y.safetensors"));
  EXPECT_THAT(Open(folder_), StatusIs(kNotFound, "names y.safetensors, which is not there"));
  Put("y.safetensors", "short");
  EXPECT_THAT(Open(folder_), StatusIs(kInvalid, "y.safetensors is no safetensors file: it has 5"));
  Put(kModelIndexFile, R"({"weight_map":{"a":"../x.safetensors"}})");
  EXPECT_THAT(Open(folder_),
              StatusIs(kInvalid, StrCat(At(kModelIndexFile), ": index: weight_map.a is \"../x")));
}

TEST_F(SafetensorsReaderTest, WhatIsNoModelIsRefused) {
  EXPECT_THAT(Open(folder_), StatusIs(kNotFound, "neither model.safetensors nor"));
  EXPECT_THAT(Open(At("missing")), StatusIs(kNotFound, "missing"));
  Put("pytorch_model.bin", "");
  EXPECT_THAT(Open(folder_), StatusIs(kNotFound, "pytorch_model.bin is not read"));
  ASSERT_EQ(mkfifo(At("fifo").c_str(), 0600), 0);
  EXPECT_THAT(Open(At("fifo")), StatusIs(kInvalid, "fifo is no regular file"));
  fs::create_directory(At("model.safetensors"));
  EXPECT_THAT(Open(folder_), StatusIs(kInvalid, "model.safetensors is no regular file"));
}

TEST_F(SafetensorsReaderTest, HeaderLengthsAreBounded) {
  const std::string good = FileOf({{"a", 3}});
  const auto with_length = [&](uint64_t length) {
    std::string file = good;
    for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xff);
    return file;
  };
  for (const uint64_t length :
       {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{100'000'001}, static_cast<uint64_t>(good.size()),
        static_cast<uint64_t>(good.size()) - 7}) {
    Put("f", with_length(length));
    EXPECT_THAT(Open(At("f")), StatusIs(kInvalid, "its header would have")) << length;
  }
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{1}, uint64_t{10}, static_cast<uint64_t>(good.size()) - 8}) {
    Put("f", with_length(length));
    EXPECT_THAT(Open(At("f")), StatusIs(kInvalid, StrCat(At("f"), ": the header"))) << length;
  }
  for (const size_t size : {0u, 1u, 7u}) {
    Put("f", good.substr(0, size));
    EXPECT_THAT(Open(At("f")), StatusIs(kInvalid, StrCat("it has ", size, " bytes")));
  }
  for (size_t size = 8; size < good.size(); ++size) {
    Put("f", good.substr(0, size));
    EXPECT_THAT(Open(At("f")), StatusIs(kInvalid, At("f"))) << size;
  }
  Put("f", good + "x");
  EXPECT_THAT(Open(At("f")), StatusIs(kInvalid, "what follows is no tensor's"));
  Put("f", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
  EXPECT_THAT(Open(At("f")), StatusIs(kInvalid, "Git LFS pointer"));
}

TEST_F(SafetensorsReaderTest, LinksAreFollowed) {
  fs::create_directory(At("blobs"));
  Put("blobs/0123", FileOf({{"a", 3}}));
  fs::create_directory(At("snapshot"));
  fs::create_symlink("../blobs/0123", At("snapshot/model.safetensors"));
  const auto reader = Open(At("snapshot"));
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ(Content(*reader, "a"), "aaa");
  fs::remove(At("snapshot/model.safetensors"));
  fs::create_symlink("/etc/passwd", At("snapshot/model.safetensors"));
  EXPECT_THAT(Open(At("snapshot")), StatusIs(kInvalid, "is no whole safetensors file"));
}

TEST_F(SafetensorsReaderTest, AFileThatChangesIsAnError) {
  const std::string good = FileOf({{"a", 3}, {"b", 5000}});
  std::string bytes(3, '\0');
  const auto span = std::as_writable_bytes(std::span(bytes));
  // Shorter: also a read of what is still there.
  Put("f", good);
  auto reader = Open(At("f"));
  ASSERT_THAT(reader, IsOk());
  fs::resize_file(At("f"), good.size() - 1);
  EXPECT_THAT(reader->ReadInto(*reader->Find("a"), 0, span), StatusIs(kDataLoss, "was changed"));
  std::string all(5000, '\0');
  EXPECT_THAT(reader->ReadInto(*reader->Find("b"), 0, std::as_writable_bytes(std::span(all))),
              StatusIs(kDataLoss, "it was cut short"));
  // Longer, and rewritten at the same size.
  Put("f", good);
  reader = Open(At("f"));
  ASSERT_THAT(reader, IsOk());
  Put("f", good + "x");
  EXPECT_THAT(reader->ReadInto(*reader->Find("a"), 0, span), StatusIs(kDataLoss, "was changed"));
  Put("f", good);
  reader = Open(At("f"));
  ASSERT_THAT(reader, IsOk());
  const struct timespec times[2] = {{.tv_sec = 5, .tv_nsec = 0}, {.tv_sec = 6, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, At("f").c_str(), times, 0), 0);
  EXPECT_THAT(reader->ReadInto(*reader->Find("a"), 0, span), StatusIs(kDataLoss, "was changed"));
  // Another file under the name is another file.
  Put("f", good);
  reader = Open(At("f"));
  ASSERT_THAT(reader, IsOk());
  Put("g", FileOf({{"a", 4}}));
  fs::rename(At("g"), At("f"));
  EXPECT_EQ(Content(*reader, "a"), "aaa");
}

TEST_F(SafetensorsReaderTest, WhicheverCallFailsIsAnError) {
  PutShards();
  FaultyFileCalls counting(&files_);
  const auto load = [&](FileCalls* calls) -> absl::StatusOr<std::string> {
    auto reader = SafetensorsReader::Open(calls, folder_);
    if (!reader.ok()) return reader.status();
    std::string bytes(4, '\0');
    const absl::Status read =
        reader->ReadInto(*reader->Find("c"), 0, std::as_writable_bytes(std::span(bytes)));
    if (!read.ok()) return read;
    return bytes;
  };
  ASSERT_THAT(load(&counting), IsOkAndHolds("cccc"));
  for (const FileCallKind kind : {FileCallKind::kOpen, FileCallKind::kRead}) {
    for (int64_t n = 0; n < counting.calls(kind); ++n) {
      SCOPED_TRACE(StrCat(kind, " ", n));
      FaultyFileCalls failing(&files_);
      failing.Inject({.kind = kind, .first = n}, FailCall{EIO});
      EXPECT_THAT(load(&failing), StatusIs(kDataLoss));
      FaultyFileCalls interrupted(&files_);
      interrupted.Inject({.kind = kind, .first = n}, FailCall{EINTR});
      EXPECT_THAT(load(&interrupted), IsOkAndHolds("cccc"));
      if (kind == FileCallKind::kOpen) continue;
      FaultyFileCalls shortened(&files_);
      shortened.Inject({.kind = kind, .first = n}, ShortenCall{.bytes = 1});
      EXPECT_THAT(load(&shortened), IsOkAndHolds("cccc"));
    }
  }
}

TEST_F(SafetensorsReaderTest, ThreadsReadAtTheSameTime) {
  Put("model.safetensors", FileOf({{"a", 100'000}, {"b", 100'000}}));
  const auto reader = Open(folder_);
  ASSERT_THAT(reader, IsOk());
  const auto team = ThreadTeam::Create({.threads = 4});
  ASSERT_THAT(team, IsOk());
  std::atomic<int> wrong = 0;
  (*team)->For({.count = 400, .grain = 1}, [&](int64_t begin, int64_t) {
    const std::string_view name = begin % 2 == 0 ? "a" : "b";
    std::string bytes(1000, '\0');
    const absl::Status read = reader->ReadInto(*reader->Find(name), begin * 200,
                                               std::as_writable_bytes(std::span(bytes)));
    if (!read.ok() || bytes != std::string(1000, name[0])) ++wrong;
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace gantry
