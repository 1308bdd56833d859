// What is particular to the ring; the common contract is in io_backend_test.cc.
#include "nvme/io_ring.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file_calls.h"
#include "base/files.h"
#include "base/log.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/io_backend.h"
#include "nvme/scratch_file.h"
#include "nvme/testing_support.h"

namespace gantry {
namespace {

// A pipe gives what it holds, so a read of more is truly short in the completion and must be
// resumed in the right place, several times.
TEST(IoRingTest, ShortReadsOfAPipeAreResumed) {
  WaitingSink sink;
  auto ring = IoRing::Create({.sink = &sink, .queue_depth = 2});
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor reading(ends[0]);
  const FileDescriptor writing(ends[1]);
  AlignedBlock sent(3000);
  sent.Fill(11);
  AlignedBlock received(3000);
  ASSERT_EQ(write(writing.get(), sent.span().data(), 1000), 1000);
  (*ring)->Submit({.kind = IoRequest::Kind::kRead,
                   .fd = reading.get(),
                   .offset = 0,
                   .buffer = received.span(),
                   .tag = 1});
  for (int64_t part = 1; part < 3; ++part) {
    int unread = 1;  // until the ring has taken the last part, so that the next completes by itself
    while (unread != 0) {
      ASSERT_TRUE(Transfer(**ring, sink,
                           {.kind = IoRequest::Kind::kRead,
                            .fd = reading.get(),
                            .offset = 0,
                            .buffer = {},
                            .tag = 2})
                      .ok());
      ASSERT_EQ(ioctl(reading.get(), FIONREAD, &unread), 0);
    }
    ASSERT_EQ(write(writing.get(), sent.part(part * 1000, 1000).data(), 1000), 1000);
  }
  const absl::Status status = sink.Take(1);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(std::ranges::equal(received.span(), sent.span()));
  EXPECT_EQ((*ring)->counters().resubmits, 2);
  EXPECT_EQ((*ring)->counters().bytes_read, 3000);
}

// Three requests of one piece each are at the kernel at once: pipes that are filled in the opposite
// order complete in that order.
TEST(IoRingTest, TheQueueIsFullAcrossRequests) {
  WaitingSink sink;
  auto ring = IoRing::Create({.sink = &sink, .queue_depth = 3});
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  AlignedBlock block(3 * 4096);
  std::vector<FileDescriptor> reading;
  std::vector<FileDescriptor> writing;
  for (uint64_t i = 0; i < 3; ++i) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reading.emplace_back(ends[0]);
    writing.emplace_back(ends[1]);
    (*ring)->Submit({.kind = IoRequest::Kind::kRead,
                     .fd = ends[0],
                     .offset = 0,
                     .buffer = block.part(static_cast<int64_t>(i) * 4096, 1),
                     .tag = i});
  }
  for (const uint64_t i : {2, 1, 0}) {
    ASSERT_EQ(write(writing[i].get(), "x", 1), 1);
    EXPECT_TRUE(sink.Take(i).ok()) << i;
  }
}

TEST(IoRingTest, APieceCostsAboutOneSystemCallAtMost) {
  TemporaryDirectory directory;
  PosixFileCalls posix;
  auto file = CreateScratchFile(posix, directory.path());
  ASSERT_TRUE(file.ok());
  WaitingSink sink;
  auto ring = IoRing::Create({.sink = &sink, .queue_depth = 16});
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  AlignedBlock block(64 * kPieceBytes);
  const absl::Status status = Transfer(**ring, sink,
                                       {.kind = IoRequest::Kind::kWrite,
                                        .fd = file->get(),
                                        .offset = 0,
                                        .buffer = block.span(),
                                        .tag = 1});
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ((*ring)->counters().pieces, 64);
  EXPECT_GE((*ring)->counters().system_calls, 4);  // the ring holds 16
  // One that waits for each piece, one for the wake-up, one before the completion is told.
  EXPECT_LE((*ring)->counters().system_calls, 64 + 4);
}

// Answers each empty request (tag 1) with the next, until the real one (tag 0) is done.
class BusySink final : public IoSink {
 public:
  static constexpr int kEmptyMax = 100'000;
  void OnIoComplete(uint64_t tag, absl::Status status) override {
    EXPECT_TRUE(status.ok()) << status.ToString();
    if (tag == 0) done = true;
    if (tag == 1 && !done && ++empty_requests < kEmptyMax) {
      ring->Submit(next);
    }
  }
  // Written before the first request, then used by the ring's thread until it is joined.
  IoRing* ring = nullptr;
  IoRequest next{};
  bool done = false;
  int empty_requests = 0;
};

TEST(IoRingTest, EmptyRequestsDoNotStarveOthers) {
  BusySink sink;
  auto ring = IoRing::Create({.sink = &sink, .queue_depth = 2});
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  const FileDescriptor file(open("/proc/version", O_RDONLY | O_CLOEXEC));
  AlignedBlock block(16);
  IoRequest request = {
      .kind = IoRequest::Kind::kRead, .fd = file.get(), .offset = 0, .buffer = {}, .tag = 1};
  sink.ring = ring->get();
  sink.next = request;
  (*ring)->Submit(request);
  request.buffer = block.span();
  request.tag = 0;
  (*ring)->Submit(request);
  ring->reset();
  EXPECT_TRUE(sink.done);
  EXPECT_LT(sink.empty_requests, BusySink::kEmptyMax);
}

class FixedIoRingTest : public testing::Test {
 protected:
  FixedIoRingTest() {
    auto file = CreateScratchFile(posix_, directory_.path());
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    file_ = *std::move(file);
  }
  std::unique_ptr<IoRing> Create(std::span<const std::span<std::byte>> memory) {
    const int fd = file_.get();
    auto ring = IoRing::Create({.sink = &sink_,
                                .queue_depth = 4,
                                .fixed_files = {&fd, 1},
                                .fixed_memory = memory,
                                .logger = &logger_});
    EXPECT_TRUE(ring.ok()) << ring.status().ToString();
    return ring.ok() ? *std::move(ring) : nullptr;
  }
  absl::Status Run(IoRing& ring, IoRequest::Kind kind, std::span<std::byte> buffer) {
    return Transfer(ring, sink_,
                    {.kind = kind, .fd = file_.get(), .offset = 0, .buffer = buffer, .tag = 1});
  }
  // Writes from `from` and reads into `to`: the same bytes, wherever both are.
  void ExpectWorks(IoRing& ring, std::span<std::byte> from, std::span<std::byte> to) {
    std::ranges::fill(to, std::byte{0});
    absl::Status status = Run(ring, IoRequest::Kind::kWrite, from);
    EXPECT_TRUE(status.ok()) << status.ToString();
    status = Run(ring, IoRequest::Kind::kRead, to);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(std::ranges::equal(from, to));
  }

  PosixFileCalls posix_;
  TemporaryDirectory directory_;
  FileDescriptor file_;
  WaitingSink sink_;
  MemoryLogger logger_;
};

TEST_F(FixedIoRingTest, BuffersInsideOneRegionAreFixedOthersWorkPlainly) {
  AlignedBlock memory(3 * kPieceBytes);
  memory.Fill(1);
  AlignedBlock plain(2 * kPieceBytes);
  plain.Fill(2);
  // Two regions side by side, and a piece of memory behind them that is not registered.
  const std::span<std::byte> regions[] = {memory.part(kPieceBytes, kPieceBytes),
                                          memory.part(0, kPieceBytes)};
  std::unique_ptr<IoRing> ring = Create(regions);
  ASSERT_NE(ring, nullptr);
  EXPECT_TRUE(ring->setup().fixed_files);
  if (!ring->setup().fixed_memory) GTEST_SKIP() << logger_.messages().at(0);
  ExpectWorks(*ring, memory.part(0, 4096), memory.part(kPieceBytes, 4096));
  EXPECT_EQ(ring->counters().fixed_pieces, 2);
  ExpectWorks(*ring, plain.part(0, 9000), memory.part(kPieceBytes - 9000, 9000));
  EXPECT_EQ(ring->counters().fixed_pieces, 3);
  ExpectWorks(*ring, memory.part(kPieceBytes - 100, 200), plain.part(0, 200));  // in two regions
  ExpectWorks(*ring, memory.part(2 * kPieceBytes - 100, 200), plain.part(0, 200));  // out of one
  EXPECT_EQ(ring->counters().fixed_pieces, 3);
  // The pieces of one request may differ.
  ExpectWorks(*ring, plain.span(), memory.part(kPieceBytes, 2 * kPieceBytes));
  EXPECT_EQ(ring->counters().fixed_pieces, 4);
  EXPECT_EQ(Run(*ring, IoRequest::Kind::kSync, {}), absl::OkStatus());
  // A file that is not registered.
  auto other = CreateScratchFile(posix_, directory_.path());
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(Transfer(*ring, sink_,
                       {.kind = IoRequest::Kind::kWrite,
                        .fd = other->get(),
                        .offset = 0,
                        .buffer = memory.part(0, 4096),
                        .tag = 1})
                  .ok());
  struct stat status{};
  ASSERT_EQ(fstat(other->get(), &status), 0);
  EXPECT_EQ(status.st_size, 4096);
  EXPECT_TRUE(logger_.messages().empty());
}

// Memory of a shared file mapping, which the kernel may refuse (EOPNOTSUPP or EFAULT) or not.
TEST_F(FixedIoRingTest, MappedFilesWorkEitherWay) {
  auto mapped = CreateScratchFile(posix_, directory_.path());
  ASSERT_TRUE(mapped.ok());
  ASSERT_EQ(ftruncate(mapped->get(), kPieceBytes), 0);
  void* const address =
      mmap(nullptr, kPieceBytes, PROT_READ | PROT_WRITE, MAP_SHARED, mapped->get(), 0);
  ASSERT_NE(address, MAP_FAILED);
  const std::span<std::byte> region(static_cast<std::byte*>(address), kPieceBytes);
  std::unique_ptr<IoRing> ring = Create({&region, 1});
  ASSERT_NE(ring, nullptr);
  EXPECT_EQ(logger_.messages().size(), ring->setup().fixed_memory ? 0U : 1U);
  AlignedBlock block(kPieceBytes);
  block.Fill(4);
  ExpectWorks(*ring, block.span(), region);
  ExpectWorks(*ring, region, block.span());
  ring.reset();
  munmap(address, kPieceBytes);
}

// Lowers the lockable memory to 64 KiB, or as far as a ring can still be made: the limit counts
// what all processes of the user have locked, and some kernels count rings, too. In bytes; 0: no
// way.
int64_t LimitLockableMemory(IoSink* sink) {
  // Another user has locked nothing; where that is not allowed, at least without the privilege.
  constexpr uid_t kNobodyElse = 54'321;
  if (setresuid(kNobodyElse, kNobodyElse, kNobodyElse) != 0 && !DropCapability(CAP_IPC_LOCK)) {
    return 0;
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 0;
  for (const rlim_t bytes : {rlim_t{64} << 10, limit.rlim_max}) {
    limit.rlim_cur = bytes;
    if (bytes > rlim_t{64} << 20 || setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 0;
    const auto ring = IoRing::Create({.sink = sink, .queue_depth = 4});
    if (ring.ok()) return static_cast<int64_t>(bytes);
    std::cout << bytes << " bytes: " << ring.status().ToString() << "\n";
  }
  return 0;
}

TEST_F(FixedIoRingTest, TooLittleLockableMemoryIsOneLineInTheLog) {
  const int result = RunInChild([&] {
    const int64_t limit = LimitLockableMemory(&sink_);
    if (limit == 0) return kCannot;
    AlignedBlock memory(limit + 2 * kPieceBytes);
    memory.Fill(5);
    const std::span<std::byte> region = memory.part(0, limit + kPieceBytes);
    for (int i = 0; i < 2; ++i) {
      std::unique_ptr<IoRing> ring = Create({&region, 1});
      if (ring == nullptr) return 1;
      EXPECT_FALSE(ring->setup().fixed_memory);
      EXPECT_TRUE(ring->setup().fixed_files);
      ExpectWorks(*ring, memory.part(0, kPieceBytes),
                  memory.part(limit + kPieceBytes, kPieceBytes));
      EXPECT_EQ(ring->counters().fixed_pieces, 0);
    }
    EXPECT_EQ(logger_.messages().size(), 1U);
    for (const std::string& message : logger_.messages()) {
      EXPECT_NE(message.find("ENOMEM"), std::string::npos) << message;
      EXPECT_NE(message.find("ulimit -l"), std::string::npos) << message;
    }
    return 0;
  });
  if (result == kCannot) GTEST_SKIP() << "no room under the limit, or no way to be under it";
  EXPECT_EQ(result, 0);
}

TEST(IoRingTest, ReportsItsFlags) {
  WaitingSink sink;
  auto ring = IoRing::Create({.sink = &sink, .queue_depth = 1});
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  EXPECT_FALSE((*ring)->setup().flags.empty());
  EXPECT_EQ((*ring)->name(), "io_uring");
}

}  // namespace
}  // namespace gantry
