// The decisions after each system call result, without any I/O.
#include "nvme/request_progress.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

using Action = RequestProgress::Action;

IoRequest Request(std::span<std::byte> buffer, IoRequest::Kind kind, int64_t alignment = 1) {
  return {
      .kind = kind, .fd = 0, .offset = 8192, .buffer = buffer, .alignment = alignment, .tag = 5};
}

bool Contains(const absl::Status& status, std::string_view text) {
  return FromAbsl(status.message()).find(text) != std::string_view::npos;
}

TEST(RequestProgressTest, WholeTransferIsDone) {
  std::vector<std::byte> buffer(4096);
  RequestProgress progress(Request(buffer, IoRequest::Kind::kRead));
  EXPECT_EQ(progress.Advance(4096), Action::kDone);
}

TEST(RequestProgressTest, SyncIsDoneAtZero) {
  RequestProgress progress(Request({}, IoRequest::Kind::kSync));
  EXPECT_EQ(progress.Advance(0), Action::kDone);
}

TEST(RequestProgressTest, ShortTransferResumesAtTheRemainder) {
  std::vector<std::byte> buffer(1000);
  RequestProgress progress(Request(buffer, IoRequest::Kind::kWrite));
  ASSERT_EQ(progress.Advance(300), Action::kResume);
  EXPECT_EQ(progress.next().offset, 8192 + 300);
  EXPECT_EQ(progress.next().buffer.data(), buffer.data() + 300);
  EXPECT_EQ(progress.next().buffer.size(), 700u);
  ASSERT_EQ(progress.Advance(699), Action::kResume);
  EXPECT_EQ(progress.next().buffer.size(), 1u);
  EXPECT_EQ(progress.Advance(1), Action::kDone);
  EXPECT_EQ(progress.piece().buffer.size(), 1000u);
}

TEST(RequestProgressTest, DirectTransferResumesAligned) {
  std::vector<std::byte> buffer(4096);
  RequestProgress progress(Request(buffer, IoRequest::Kind::kRead, 512));
  ASSERT_EQ(progress.Advance(1500), Action::kResume);
  EXPECT_EQ(progress.next().offset, 8192 + 1024);
  EXPECT_EQ(progress.next().buffer.data(), buffer.data() + 1024);
  EXPECT_EQ(progress.next().buffer.size(), 3072u);
  EXPECT_EQ(progress.Advance(3072), Action::kDone);
}

TEST(RequestProgressTest, EndOfFileIsDataLoss) {
  std::vector<std::byte> buffer(1000);
  RequestProgress progress(Request(buffer, IoRequest::Kind::kRead));
  ASSERT_EQ(progress.Advance(600), Action::kResume);
  ASSERT_EQ(progress.Advance(0), Action::kFail);
  const absl::Status status = progress.Failure("/d/f");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Contains(status, "read of 400 bytes at offset 8792 of '/d/f'")) << status.ToString();
}

TEST(RequestProgressTest, RetriesAreBoundedAndBytesResetThem) {
  std::vector<std::byte> buffer(1000);
  RequestProgress progress(Request(buffer, IoRequest::Kind::kWrite));
  for (int i = 0; i < kRetriesMax; ++i) {
    ASSERT_EQ(progress.Advance(i % 2 == 0 ? -EAGAIN : -EINTR), Action::kRetryLater) << i;
  }
  ASSERT_EQ(progress.Advance(10), Action::kResume);
  for (int i = 0; i < kRetriesMax; ++i) ASSERT_EQ(progress.Advance(-EAGAIN), Action::kRetryLater);
  ASSERT_EQ(progress.Advance(-EAGAIN), Action::kFail);
  const absl::Status status = progress.Failure("f");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Contains(status, "EAGAIN")) << status.ToString();
}

TEST(RequestProgressTest, NoProgressIsBounded) {
  std::vector<std::byte> buffer(4096);
  RequestProgress stuck(Request(buffer, IoRequest::Kind::kWrite));
  for (int i = 0; i < kRetriesMax; ++i) ASSERT_EQ(stuck.Advance(0), Action::kRetryLater);
  ASSERT_EQ(stuck.Advance(0), Action::kFail);
  EXPECT_EQ(stuck.Failure("f").code(), absl::StatusCode::kInternal);

  // Less than one aligned unit again and again: the file ends inside it.
  RequestProgress ragged(Request(buffer, IoRequest::Kind::kRead, 512));
  for (int i = 0; i < kRetriesMax; ++i) ASSERT_EQ(ragged.Advance(100), Action::kRetryLater);
  ASSERT_EQ(ragged.Advance(100), Action::kFail);
  EXPECT_EQ(ragged.Failure("f").code(), absl::StatusCode::kDataLoss);
}

TEST(RequestProgressTest, ErrnosAreTyped) {
  struct Case {
    int error_number;
    absl::StatusCode code;
    std::string_view name;
  };
  std::vector<std::byte> buffer(4096);
  for (const Case& c : {Case{ENOSPC, absl::StatusCode::kResourceExhausted, "ENOSPC"},
                        Case{EDQUOT, absl::StatusCode::kResourceExhausted, "EDQUOT"},
                        Case{EFBIG, absl::StatusCode::kResourceExhausted, "EFBIG"},
                        Case{EIO, absl::StatusCode::kDataLoss, "EIO"},
                        Case{ENODEV, absl::StatusCode::kUnavailable, "ENODEV"},
                        Case{EINVAL, absl::StatusCode::kInternal, "EINVAL"}}) {
    RequestProgress progress(Request(buffer, IoRequest::Kind::kWrite));
    ASSERT_EQ(progress.Advance(-c.error_number), Action::kFail);
    const absl::Status status = progress.Failure("/d/f");
    EXPECT_EQ(status.code(), c.code) << c.name;
    EXPECT_TRUE(Contains(status, c.name)) << status.ToString();
    EXPECT_TRUE(Contains(status, "write of 4096 bytes at offset 8192 of '/d/f'"));
  }
}

// Any sequence of short results: the pieces that are asked for tile the buffer in order,
// overlapping only in ragged tails, and all of it is covered.
TEST(RequestProgressTest, RandomShortTransfersCoverEverything) {
  constexpr uint64_t kSeed = 20240917;
  SCOPED_TRACE(StrCat("seed ", kSeed));
  const Random random({.seed = kSeed, .stream = 0});
  uint64_t draw = 0;
  for (int64_t alignment : {1, 512, 4096}) {
    for (int round = 0; round < 200; ++round) {
      std::vector<std::byte> buffer(
          static_cast<size_t>(alignment * (1 + random.Below(64, draw++))));
      RequestProgress progress(Request(buffer, IoRequest::Kind::kRead, alignment));
      std::vector<bool> covered(buffer.size());
      Action action = Action::kResume;
      while (action != Action::kDone) {
        const IoRequest next = progress.next();
        const auto start = static_cast<size_t>(next.buffer.data() - buffer.data());
        ASSERT_EQ(next.offset - 8192, static_cast<int64_t>(start));
        ASSERT_EQ(static_cast<int64_t>(start) % alignment, 0);
        ASSERT_EQ(start + next.buffer.size(), buffer.size());
        // Every other result is whole, or ragged tails alone would use up the retries.
        const auto wanted = static_cast<int64_t>(next.buffer.size());
        const bool whole = random.Below(2, draw++) == 0;
        const int64_t moved = whole ? wanted : 1 + random.Below(wanted, draw++);
        std::fill_n(covered.begin() + static_cast<int64_t>(start), moved, true);
        action = progress.Advance(moved);
        ASSERT_NE(action, Action::kFail);
      }
      EXPECT_EQ(std::count(covered.begin(), covered.end(), false), 0);
    }
  }
}

TEST(SplitRequestTest, PiecesTileTheRequest) {
  for (int64_t size :
       {int64_t{1}, kPieceBytes - 1, kPieceBytes, kPieceBytes + 1, 3 * kPieceBytes + 17}) {
    std::vector<std::byte> buffer(static_cast<size_t>(size));
    SplitRequest split(Request(buffer, IoRequest::Kind::kWrite));
    int64_t position = 0;
    int64_t pieces = 0;
    while (split.HasNext()) {
      EXPECT_FALSE(split.finished());
      const IoRequest piece = split.Next().piece();
      EXPECT_EQ(piece.offset, 8192 + position);
      EXPECT_EQ(piece.buffer.data(), buffer.data() + position);
      EXPECT_LE(static_cast<int64_t>(piece.buffer.size()), kPieceBytes);
      position += static_cast<int64_t>(piece.buffer.size());
      ++pieces;
    }
    EXPECT_EQ(position, size);
    EXPECT_EQ(pieces, (size + kPieceBytes - 1) / kPieceBytes);
    for (int64_t i = 0; i < pieces; ++i) {
      EXPECT_FALSE(split.finished());
      split.Finish(absl::OkStatus());
    }
    EXPECT_TRUE(split.finished());
    EXPECT_TRUE(split.TakeStatus().ok());
  }
}

TEST(SplitRequestTest, FirstErrorStopsAndStays) {
  std::vector<std::byte> buffer(static_cast<size_t>(4 * kPieceBytes));
  SplitRequest split(Request(buffer, IoRequest::Kind::kRead));
  split.Next();
  split.Next();
  split.Next();
  split.Finish(DataLoss("first"));
  EXPECT_FALSE(split.HasNext());
  EXPECT_FALSE(split.finished());  // two still use the buffer
  split.Finish(absl::OkStatus());
  split.Finish(Internal("second"));
  EXPECT_TRUE(split.finished());
  EXPECT_EQ(split.TakeStatus().message(), "first");
}

TEST(SplitRequestTest, OnlyAnUntouchedRequestIsCancelled) {
  std::vector<std::byte> buffer(static_cast<size_t>(2 * kPieceBytes));
  SplitRequest waiting(Request(buffer, IoRequest::Kind::kRead));
  EXPECT_TRUE(waiting.Cancel());
  EXPECT_FALSE(waiting.Cancel());
  EXPECT_TRUE(waiting.finished());
  EXPECT_TRUE(absl::IsCancelled(waiting.TakeStatus()));
  SplitRequest started(Request(buffer, IoRequest::Kind::kRead));
  started.Next();
  EXPECT_FALSE(started.Cancel());
  EXPECT_TRUE(started.HasNext());
  started.Finish(absl::OkStatus());
  EXPECT_FALSE(started.Cancel());  // nothing is out, but one piece was
  SplitRequest sync(Request({}, IoRequest::Kind::kSync));
  EXPECT_TRUE(sync.Cancel());
  EXPECT_FALSE(SplitRequest(Request({}, IoRequest::Kind::kRead)).Cancel());
}

TEST(SplitRequestTest, EmptyAndSync) {
  EXPECT_TRUE(SplitRequest(Request({}, IoRequest::Kind::kRead)).finished());
  SplitRequest sync(Request({}, IoRequest::Kind::kSync));
  EXPECT_FALSE(sync.finished());
  sync.Next();
  EXPECT_FALSE(sync.HasNext());
  sync.Finish(absl::OkStatus());
  EXPECT_TRUE(sync.finished());
}

TEST(SplitRequestDeathTest, FinishWithoutNext) {
  SplitRequest split(Request({}, IoRequest::Kind::kSync));
  EXPECT_DEATH(split.Finish(absl::OkStatus()), "pieces_out_");
}

}  // namespace
}  // namespace gantry
