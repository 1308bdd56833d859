// Damage done to the real file below the store, each kind of which must get its right name; and
// damage that a second reading heals.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/file_calls.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/block_store_fixture.h"
#include "nvme/io_backend.h"

namespace gantry {
namespace {

constexpr int64_t kExtent = 4 * kPieceBytes;  // 4 MiB in one directory, 2 MiB in each of two

class BlockStoreIntegrityTest : public BlockStoreFixture,
                                public testing::WithParamInterface<std::tuple<IoPreference, int>> {
 protected:
  void SetUp() override {
    const auto& [io, directories] = GetParam();
    Make({.shares = std::vector<double>(static_cast<size_t>(directories), 1.0),
          .extent_bytes = Bytes(kExtent),
          .io = io});
    part_ = kExtent / directories;
    last_ = static_cast<size_t>(directories) - 1;
    for (int i = 0; i < 3; ++i) extents_.push_back(Allocate());
  }
  // Bytes of the last directory's part of an extent, from `offset` in the part.
  std::vector<std::byte> Raw(ExtentId extent, int64_t offset, int64_t size) {
    std::vector<std::byte> bytes(static_cast<size_t>(size));
    const FileDescriptor file = OpenBlocks(last_);
    EXPECT_EQ(pread(file.get(), bytes.data(), bytes.size(), extent.value() * part_ + offset), size);
    return bytes;
  }
  void Overwrite(ExtentId extent, int64_t offset, std::span<const std::byte> bytes) {
    const FileDescriptor file = OpenBlocks(last_);
    ASSERT_EQ(pwrite(file.get(), bytes.data(), bytes.size(), extent.value() * part_ + offset),
              static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(fsync(file.get()), 0);
  }
  absl::Status ReadWhole(ExtentId extent) {
    AlignedBlock block(kExtent);
    return Read(extent, block);
  }
  void ExpectDataLoss(const absl::Status& status, const std::vector<std::string>& texts) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status.ToString();
    for (const std::string& text : texts) EXPECT_TRUE(Contains(status, text)) << status.ToString();
  }

  int64_t part_ = 0;
  size_t last_ = 0;  // the directory that is damaged
  std::vector<ExtentId> extents_;
};

INSTANTIATE_TEST_SUITE_P(
    Stores, BlockStoreIntegrityTest,
    testing::Combine(testing::Values(IoPreference::kIoUring, IoPreference::kThreads),
                     testing::Values(1, 2)),
    [](const auto& info) {
      return StrCat(std::get<0>(info.param) == IoPreference::kThreads ? "threads" : "io_uring", "_",
                    std::get<1>(info.param));
    });

TEST_P(BlockStoreIntegrityTest, AFlippedBitIsCorruption) {
  ASSERT_TRUE(Write(extents_[0], 1).ok());
  ASSERT_TRUE(Write(extents_[1], 2).ok());
  ASSERT_TRUE(Write(extents_[1], 3).ok());
  std::vector<std::byte> byte = Raw(extents_[1], part_ - 1, 1);
  byte[0] ^= std::byte{1};
  Overwrite(extents_[1], part_ - 1, byte);
  const absl::Status status = ReadWhole(extents_[1]);
  ExpectDataLoss(status, {Directory(last_), StrCat("offset ", 2 * part_ - kPieceBytes),
                          StrCat("read of ", kPieceBytes, " bytes"), "extent#1", "piece 3",
                          "generation 2 was expected", "corrupted"});
  EXPECT_EQ(store_->counters().mismatches, 1);
  EXPECT_EQ(store_->counters().rereads, 1);
  ExpectContent(extents_[0], 1);  // the others are as they were
  AlignedBlock half(2 * kPieceBytes);
  EXPECT_TRUE(Read(extents_[1], half).ok());  // and so is the rest of this one
  byte[0] ^= std::byte{1};
  Overwrite(extents_[1], part_ - 1, byte);
  ExpectContent(extents_[1], 3);
}

TEST_P(BlockStoreIntegrityTest, ASingleReadMayGoUncompared) {
  ASSERT_TRUE(Write(extents_[0], 1).ok());
  std::vector<std::byte> byte = Raw(extents_[0], 0, 1);
  byte[0] ^= std::byte{1};
  Overwrite(extents_[0], 0, byte);
  const int64_t verified = store_->counters().pieces_verified;
  AlignedBlock block(kExtent);
  store_->Read({.extent = extents_[0],
                .buffer = block.span(),
                .verification = Verification::kOff,
                .tag = 1'000'000});
  EXPECT_TRUE(sink_.Take(1'000'000).ok());
  EXPECT_EQ(block.span()[static_cast<size_t>(kExtent - part_)], byte[0]);
  EXPECT_EQ(store_->counters().pieces_verified, verified);
  EXPECT_EQ(store_->counters().mismatches, 0);
  ExpectDataLoss(ReadWhole(extents_[0]), {"extent#0", "corrupted"});  // the others are compared
}

TEST_P(BlockStoreIntegrityTest, ALostWriteIsTheGenerationBefore) {
  ASSERT_TRUE(Write(extents_[2], 1).ok());
  const std::vector<std::byte> old = Raw(extents_[2], 0, part_);
  ASSERT_TRUE(Write(extents_[2], 2).ok());
  Overwrite(extents_[2], 0, std::span(old).first(kPieceBytes));  // one piece never arrived
  ExpectDataLoss(ReadWhole(extents_[2]),
                 {"generation 2 was expected", "those of generation 1: the last write was lost"});
  Overwrite(extents_[2], 0, old);  // nothing arrived
  ExpectDataLoss(ReadWhole(extents_[2]), {"those of generation 1: the last write was lost"});
}

TEST_P(BlockStoreIntegrityTest, ALostFirstWriteIsZeros) {
  ASSERT_TRUE(Write(extents_[0], 1).ok());
  Overwrite(extents_[0], 0, std::vector<std::byte>(static_cast<size_t>(part_)));
  ExpectDataLoss(ReadWhole(extents_[0]),
                 {"generation 1 was expected", "those of generation 0: the last write was lost"});
}

TEST_P(BlockStoreIntegrityTest, SwappedExtentsNameEachOther) {
  ASSERT_TRUE(Write(extents_[0], 1).ok());
  ASSERT_TRUE(Write(extents_[2], 2).ok());
  ASSERT_TRUE(Write(extents_[2], 3).ok());
  const std::vector<std::byte> first = Raw(extents_[0], 0, part_);
  const std::vector<std::byte> second = Raw(extents_[2], 0, part_);
  Overwrite(extents_[0], 0, second);
  Overwrite(extents_[2], 0, first);
  // Which of the damaged pieces is reported depends on which came in first.
  ExpectDataLoss(ReadWhole(extents_[0]), {"of extent#0", "those of extent#2 piece ",
                                          "generation 2: a write", "wrong place"});
  ExpectDataLoss(ReadWhole(extents_[2]),
                 {"of extent#2", "those of extent#0 piece ", "generation 1: a write"});
  EXPECT_EQ(store_->counters().mismatches, 2 * part_ / kPieceBytes);
}

// One write landed in a neighbour: the neighbour holds foreign bytes, its own place the old ones.
TEST_P(BlockStoreIntegrityTest, AMisdirectedWriteShowsInBothPlaces) {
  ASSERT_TRUE(Write(extents_[0], 1).ok());
  ASSERT_TRUE(Write(extents_[1], 2).ok());
  const std::vector<std::byte> old = Raw(extents_[0], 0, kPieceBytes);
  ASSERT_TRUE(Write(extents_[0], 3).ok());
  Overwrite(extents_[1], 0, Raw(extents_[0], 0, kPieceBytes));
  Overwrite(extents_[0], 0, old);
  ExpectDataLoss(ReadWhole(extents_[0]), {"the last write was lost"});
  ExpectDataLoss(ReadWhole(extents_[1]), {"those of extent#0 piece ", "generation 2"});
}

TEST_P(BlockStoreIntegrityTest, ATruncatedFileIsNamed) {
  for (const ExtentId extent : extents_) ASSERT_TRUE(Write(extent, 1).ok());
  {
    const FileDescriptor file = OpenBlocks(last_);
    ASSERT_EQ(ftruncate(file.get(), 2 * part_), 0);
  }
  ExpectDataLoss(ReadWhole(extents_[2]), {Directory(last_), "truncated"});
  ExpectContent(extents_[1], 1);
}

// Reads through the thread backend in which chosen transfers deliver a wrong bit.
class FlippingCalls final : public PosixFileCalls {
 public:
  int64_t ReadAt(int fd, std::span<std::byte> buffer, int64_t offset) override {
    const int64_t moved = PosixFileCalls::ReadAt(fd, buffer, offset);
    if (flips.fetch_sub(1) > 0) buffer[buffer.size() / 2] ^= std::byte{16};
    return moved;
  }
  int64_t WriteAt(int fd, std::span<const std::byte> buffer, int64_t offset) override {
    if (writes_allowed.fetch_sub(1) <= 0) return -EIO;
    return PosixFileCalls::WriteAt(fd, buffer, offset);
  }
  std::atomic<int64_t> flips = 0;  // reads still to be damaged
  std::atomic<int64_t> writes_allowed = 1'000'000;
};

using BlockStoreRereadTest = BlockStoreFixture;

TEST_F(BlockStoreRereadTest, ASecondReadingHeals) {
  FlippingCalls calls;
  Make({.extent_bytes = Bytes(kExtent), .io = IoPreference::kThreads, .files = &calls});
  const ExtentId extent = Allocate();
  ASSERT_TRUE(Write(extent, 1).ok());
  calls.flips = 4;  // every piece, once
  ExpectContent(extent, 1);
  EXPECT_EQ(store_->counters().mismatches, 4);
  EXPECT_EQ(store_->counters().rereads, 4);
  EXPECT_EQ(store_->counters().pieces_verified, 8);
  calls.flips = 1'000;
  AlignedBlock block(kExtent);
  const absl::Status status = Read(extent, block);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status.ToString();
  EXPECT_TRUE(Contains(status, "gave wrong bytes twice")) << status.ToString();
  EXPECT_EQ(store_->counters().rereads, 8);
  calls.flips = 0;
  ExpectContent(extent, 1);  // the store goes on
  store_.reset();
}

TEST_F(BlockStoreRereadTest, AFailedWriteLeavesAMixtureThatIsNamed) {
  FlippingCalls calls;
  Make({.extent_bytes = Bytes(kExtent),
        .io = IoPreference::kThreads,
        .queue_depth = 1,
        .files = &calls});
  const ExtentId extent = Allocate();
  ASSERT_TRUE(Write(extent, 1).ok());
  calls.writes_allowed = 2;
  const absl::Status failed = Write(extent, 2);
  EXPECT_TRUE(absl::IsDataLoss(failed)) << failed.ToString();
  EXPECT_TRUE(Contains(failed, Directory(0))) << failed.ToString();
  EXPECT_EQ(store_->generation(extent), 1);
  AlignedBlock block(kExtent);
  const absl::Status mixture = Read(extent, block);
  EXPECT_TRUE(absl::IsDataLoss(mixture)) << mixture.ToString();
  EXPECT_TRUE(Contains(mixture, "a write of generation 2 failed before")) << mixture.ToString();
  calls.writes_allowed = 1000;
  ASSERT_TRUE(Write(extent, 3).ok());
  ExpectContent(extent, 3);
  store_.reset();
}

}  // namespace
}  // namespace gantry
