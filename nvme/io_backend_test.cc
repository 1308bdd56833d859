// The contract of IoBackend, on both implementations at several depths, against real files.
#include "nvme/io_backend.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/file_calls.h"
#include "base/files.h"
#include "base/random.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/file_calls.h"
#include "nvme/io_ring.h"
#include "nvme/io_threads.h"
#include "nvme/request_progress.h"
#include "nvme/scratch_file.h"
#include "nvme/testing_support.h"

namespace gantry {
namespace {

using Kind = IoRequest::Kind;

class IoBackendTest : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  std::unique_ptr<IoBackend> Create(IoSink* sink, int pending_max = 1024) {
    const auto& [name, depth] = GetParam();
    if (name == "io_uring") {
      auto ring = IoRing::Create({.sink = sink, .queue_depth = depth, .pending_max = pending_max});
      EXPECT_TRUE(ring.ok()) << ring.status().ToString();
      return ring.ok() ? *std::move(ring) : nullptr;
    }
    auto threads = IoThreads::Create({.sink = sink,
                                      .threads = depth,
                                      .pending_max = pending_max,
                                      .calls = std::make_unique<PosixTransferCalls>()});
    EXPECT_TRUE(threads.ok()) << threads.status().ToString();
    return threads.ok() ? *std::move(threads) : nullptr;
  }
  FileDescriptor NewFile() {
    PosixFileCalls files;
    auto file = CreateScratchFile(files, directory_.path());
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    return *std::move(file);
  }
  static bool Contains(const absl::Status& status, std::string_view text) {
    return FromAbsl(status.message()).find(text) != std::string_view::npos;
  }

  TemporaryDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(Backends, IoBackendTest,
                         testing::Combine(testing::Values("io_uring", "threads"),
                                          testing::Values(1, 2, 7, 64)),
                         [](const auto& info) {
                           return StrCat(std::get<0>(info.param), "_", std::get<1>(info.param));
                         });

struct Range {
  int64_t offset;
  int64_t size;
};

// Consecutive ranges of random size in random order, one of them empty and one of one byte.
std::vector<Range> RandomRanges(const Random& random) {
  constexpr int64_t kSizes[] = {0, 1, 100, 4096, 70'000, kPieceBytes, 3 * kPieceBytes};
  std::vector<Range> ranges;
  int64_t end = 0;
  for (uint64_t i = 0; i < 24; ++i) {
    const int64_t limit = kSizes[i % std::size(kSizes)];
    const int64_t size = limit < 2 ? limit : random.Below(limit + 1, 2 * i);
    ranges.push_back({.offset = end, .size = size});
    end += size + random.Below(3, 2 * i + 1) * 511;
  }
  for (size_t i = ranges.size() - 1; i > 0; --i) {
    std::swap(ranges[i],
              ranges[static_cast<size_t>(random.Below(static_cast<int64_t>(i) + 1, 1000 + i))]);
  }
  return ranges;
}

TEST_P(IoBackendTest, RandomRoundTrips) {
  constexpr uint64_t kSeed = 7191;
  SCOPED_TRACE(StrCat("seed ", kSeed));
  WaitingSink sink;
  const FileDescriptor file = NewFile();
  std::unique_ptr<IoBackend> backend = Create(&sink);
  ASSERT_NE(backend, nullptr);
  const std::vector<Range> ranges = RandomRanges(Random({.seed = kSeed, .stream = 1}));
  std::vector<AlignedBlock> blocks;
  int64_t bytes = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    blocks.emplace_back(ranges[i].size).Fill(kSeed + i);
    bytes += ranges[i].size;
    ASSERT_TRUE(backend
                    ->Submit({.kind = Kind::kWrite,
                              .fd = file.get(),
                              .offset = ranges[i].offset,
                              .buffer = blocks[i].span(),
                              .tag = i})
                    .ok());
  }
  for (size_t i = 0; i < ranges.size(); ++i) ASSERT_TRUE(sink.Take(i).ok()) << i;
  std::vector<AlignedBlock> read;
  for (size_t i = 0; i < ranges.size(); ++i) {
    read.emplace_back(ranges[i].size);
    ASSERT_TRUE(backend
                    ->Submit({.kind = Kind::kRead,
                              .fd = file.get(),
                              .offset = ranges[i].offset,
                              .buffer = read[i].span(),
                              .tag = i})
                    .ok());
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    ASSERT_TRUE(sink.Take(i).ok()) << i;
    EXPECT_TRUE(std::ranges::equal(read[i].span(), blocks[i].span())) << "range " << i;
    // The file itself, through a plain read.
    std::vector<std::byte> plain(blocks[i].span().size());
    ASSERT_EQ(pread(file.get(), plain.data(), plain.size(), ranges[i].offset),
              static_cast<ssize_t>(plain.size()));
    EXPECT_TRUE(std::ranges::equal(plain, blocks[i].span())) << "range " << i;
  }
  const IoCounters counters = backend->counters();
  EXPECT_EQ(counters.bytes_written, bytes);
  EXPECT_EQ(counters.bytes_read, bytes);
  EXPECT_EQ(counters.requests, static_cast<int64_t>(2 * ranges.size()));
  EXPECT_EQ(counters.failures, 0);
  EXPECT_EQ(sink.completions(), counters.requests);
}

TEST_P(IoBackendTest, DirectIo) {
  WaitingSink sink;
  PosixFileCalls files;
  auto directory = OpenDirectory(files, directory_.path());
  ASSERT_TRUE(directory.ok());
  auto file = CreateScratchFile(
      files, {.directory_fd = directory->get(), .directory = directory_.path(), .name = "direct"},
      O_DIRECT);
  if (!file.ok()) GTEST_SKIP() << "no O_DIRECT here: " << file.status().ToString();
  std::unique_ptr<IoBackend> backend = Create(&sink);
  AlignedBlock block(2 * kPieceBytes + 8192);
  block.Fill(3);
  IoRequest request = {.kind = Kind::kWrite,
                       .fd = file->get(),
                       .offset = 4096,
                       .buffer = block.span(),
                       .alignment = 4096,
                       .tag = 1};
  absl::Status status = Transfer(*backend, sink, request);
  ASSERT_TRUE(status.ok()) << status.ToString();
  AlignedBlock read(2 * kPieceBytes + 8192);
  request.kind = Kind::kRead;
  request.buffer = read.span();
  status = Transfer(*backend, sink, request);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(std::ranges::equal(read.span(), block.span()));
  EXPECT_EQ(backend->counters().pieces, 6);
}

TEST_P(IoBackendTest, TruncatedFileIsDataLoss) {
  WaitingSink sink;
  const FileDescriptor file = NewFile();
  std::unique_ptr<IoBackend> backend = Create(&sink);
  AlignedBlock block(3 * kPieceBytes);
  ASSERT_EQ(ftruncate(file.get(), 2 * kPieceBytes + 100), 0);
  const IoRequest request = {
      .kind = Kind::kRead, .fd = file.get(), .offset = 0, .buffer = block.span(), .tag = 9};
  const absl::Status status = Transfer(*backend, sink, request);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status.ToString();
  EXPECT_TRUE(Contains(status, directory_.path())) << status.ToString();
  EXPECT_TRUE(Contains(status, StrCat("offset ", 2 * kPieceBytes + 100))) << status.ToString();
  EXPECT_EQ(backend->counters().resubmits, 1);  // the short read before the end was resumed
  EXPECT_EQ(backend->counters().failures, 1);
}

TEST_P(IoBackendTest, UnopenedDescriptorFails) {
  WaitingSink sink;
  std::unique_ptr<IoBackend> backend = Create(&sink);
  AlignedBlock block(100);
  const IoRequest request = {
      .kind = Kind::kRead, .fd = 1'000'000, .offset = 0, .buffer = block.span(), .tag = 1};
  const absl::Status status = Transfer(*backend, sink, request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(Contains(status, "EBADF")) << status.ToString();
}

TEST_P(IoBackendTest, SyncCompletes) {
  WaitingSink sink;
  const FileDescriptor file = NewFile();
  std::unique_ptr<IoBackend> backend = Create(&sink);
  AlignedBlock block(100'000);
  ASSERT_TRUE(
      Transfer(
          *backend, sink,
          {.kind = Kind::kWrite, .fd = file.get(), .offset = 0, .buffer = block.span(), .tag = 1})
          .ok());
  const absl::Status status = Transfer(
      *backend, sink, {.kind = Kind::kSync, .fd = file.get(), .offset = 0, .buffer = {}, .tag = 2});
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// Holds back the completions: the backend's thread waits in the sink until the gate opens. Only
// this test's sink may do that.
class GatedSink final : public IoSink {
 public:
  void OnIoComplete(uint64_t, absl::Status status) override {
    EXPECT_TRUE(status.ok());
    MutexLock lock(mutex_);
    while (!open_) opened_.Wait(mutex_);
    ++completed_;
    opened_.NotifyAll();
  }
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    opened_.NotifyAll();
  }
  void WaitFor(int64_t completed) {
    MutexLock lock(mutex_);
    while (completed_ < completed) opened_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar opened_;
  bool open_ GANTRY_GUARDED_BY(mutex_) = false;
  int64_t completed_ GANTRY_GUARDED_BY(mutex_) = 0;
};

TEST_P(IoBackendTest, FullQueueRefusesAndRecovers) {
  GatedSink sink;
  const FileDescriptor file = NewFile();
  std::unique_ptr<IoBackend> backend = Create(&sink, /*pending_max=*/2);
  AlignedBlock block(4096);
  const IoRequest request = {
      .kind = Kind::kWrite, .fd = file.get(), .offset = 0, .buffer = block.span(), .tag = 1};
  // Requests in the sink are no longer pending, so a few more than two are taken; with every thread
  // held in the sink, it ends.
  int64_t accepted = 0;
  absl::Status status;
  while (accepted < 1000) {
    status = backend->Submit(request);
    if (!status.ok()) break;
    ++accepted;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_GE(accepted, 2);
  sink.Open();
  sink.WaitFor(accepted);
  EXPECT_TRUE(backend->Submit(request).ok());
  sink.WaitFor(accepted + 1);
}

// Each completion submits the next request.
class ChainSink final : public IoSink {
 public:
  void OnIoComplete(uint64_t tag, absl::Status status) override {
    EXPECT_TRUE(status.ok()) << status.ToString();
    last = tag;
    if (tag == 0) return;
    next.tag = tag - 1;
    next.offset += 4096;
    EXPECT_TRUE(backend->Submit(next).ok());
  }
  IoBackend* backend = nullptr;
  IoRequest next{};
  std::atomic<uint64_t> last = UINT64_MAX;
};

TEST_P(IoBackendTest, SubmitFromCallbackWhileDraining) {
  ChainSink sink;
  const FileDescriptor file = NewFile();
  AlignedBlock block(4096);
  std::unique_ptr<IoBackend> backend = Create(&sink, /*pending_max=*/1);
  sink.backend = backend.get();
  sink.next = {
      .kind = Kind::kWrite, .fd = file.get(), .offset = 0, .buffer = block.span(), .tag = 50};
  ASSERT_TRUE(backend->Submit(sink.next).ok());
  backend.reset();  // the whole chain runs during the drain
  EXPECT_EQ(sink.last, 0u);
  struct stat status{};
  ASSERT_EQ(fstat(file.get(), &status), 0);
  EXPECT_EQ(status.st_size, 51 * 4096);
}

TEST_P(IoBackendTest, DestructorDrains) {
  WaitingSink sink;
  const FileDescriptor file = NewFile();
  AlignedBlock block(kPieceBytes + 4096);
  block.Fill(4);
  std::unique_ptr<IoBackend> backend = Create(&sink);
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(backend
                    ->Submit({.kind = Kind::kWrite,
                              .fd = file.get(),
                              .offset = static_cast<int64_t>(i) * (kPieceBytes + 4096),
                              .buffer = block.span(),
                              .tag = i})
                    .ok());
  }
  backend.reset();
  EXPECT_EQ(sink.completions(), 20);
  std::vector<std::byte> plain(static_cast<size_t>(kPieceBytes + 4096));
  for (int64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(pread(file.get(), plain.data(), plain.size(), i * (kPieceBytes + 4096)),
              static_cast<ssize_t>(plain.size()));
    EXPECT_TRUE(std::ranges::equal(plain, block.span())) << i;
  }
}

TEST_P(IoBackendTest, SeveralThreadsSubmit) {
  constexpr int kThreads = 4;
  constexpr int64_t kEach = 60;
  constexpr int64_t kBytes = 9000;
  WaitingSink sink;
  const FileDescriptor file = NewFile();
  std::unique_ptr<IoBackend> backend = Create(&sink);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      AlignedBlock written(kBytes);
      AlignedBlock read(kBytes);
      for (int64_t i = 0; i < kEach; ++i) {
        const int64_t index = t * kEach + i;
        written.Fill(static_cast<uint64_t>(index));
        IoRequest request = {.kind = Kind::kWrite,
                             .fd = file.get(),
                             .offset = index * kBytes,
                             .buffer = written.span(),
                             .tag = static_cast<uint64_t>(index)};
        EXPECT_TRUE(Transfer(*backend, sink, request).ok());
        request.kind = Kind::kRead;
        request.buffer = read.span();
        EXPECT_TRUE(Transfer(*backend, sink, request).ok());
        EXPECT_TRUE(std::ranges::equal(read.span(), written.span())) << index;
        EXPECT_GE(backend->counters().requests, 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(backend->counters().requests, 2 * kThreads * kEach);
}

// A write across RLIMIT_FSIZE is short at first, and fails with EFBIG when resumed.
TEST_P(IoBackendTest, FileSizeLimitIsResourceExhausted) {
  const int result = RunInChild([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {.rlim_cur = 65536, .rlim_max = 65536};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    WaitingSink sink;
    const FileDescriptor file = NewFile();
    std::unique_ptr<IoBackend> backend = Create(&sink);
    AlignedBlock block(100'000);
    block.Fill(1);
    const absl::Status status = Transfer(
        *backend, sink,
        {.kind = Kind::kWrite, .fd = file.get(), .offset = 0, .buffer = block.span(), .tag = 1});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status.ToString();
    EXPECT_TRUE(Contains(status, "EFBIG")) << status.ToString();
    EXPECT_TRUE(Contains(status, "write of 34464 bytes at offset 65536")) << status.ToString();
    EXPECT_EQ(backend->counters().resubmits, 1);
    AlignedBlock read(65536);
    EXPECT_TRUE(
        Transfer(
            *backend, sink,
            {.kind = Kind::kRead, .fd = file.get(), .offset = 0, .buffer = read.span(), .tag = 2})
            .ok());
    EXPECT_TRUE(std::ranges::equal(read.span(), block.part(0, 65536)));
    return 0;
  });
  EXPECT_EQ(result, 0);
}

TEST_P(IoBackendTest, FullFileSystemIsResourceExhausted) {
  const int result = RunInChild([&] {
    const std::string refused =
        MountPrivately({.type = "tmpfs", .path = directory_.path(), .data = "size=1m"});
    if (!refused.empty()) {
      std::cout << "cannot mount a small tmpfs: " << refused << "\n";
      return kCannot;
    }
    WaitingSink sink;
    const FileDescriptor file = NewFile();
    std::unique_ptr<IoBackend> backend = Create(&sink);
    AlignedBlock block(2 * kPieceBytes);
    const absl::Status status = Transfer(
        *backend, sink,
        {.kind = Kind::kWrite, .fd = file.get(), .offset = 0, .buffer = block.span(), .tag = 1});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status.ToString();
    EXPECT_TRUE(Contains(status, "ENOSPC")) << status.ToString();
    EXPECT_TRUE(Contains(status, directory_.path())) << status.ToString();
    return 0;
  });
  if (result == kCannot) GTEST_SKIP() << "no tmpfs can be mounted here";
  EXPECT_EQ(result, 0);
}

TEST_P(IoBackendTest, NothingLeaksDescriptors) {
  WaitingSink sink;
  const FileDescriptor file = NewFile();
  AlignedBlock block(4096);
  const int64_t before = OpenDescriptors();
  const int rounds = std::get<1>(GetParam()) > 8 ? 20 : 200;  // many threads start slowly
  for (int i = 0; i < rounds; ++i) {
    std::unique_ptr<IoBackend> backend = Create(&sink);
    ASSERT_NE(backend, nullptr) << i;
    ASSERT_TRUE(
        Transfer(
            *backend, sink,
            {.kind = Kind::kWrite, .fd = file.get(), .offset = 0, .buffer = block.span(), .tag = 1})
            .ok());
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(IoBackendDeathTest, RequestsMustKeepTheRules) {
  AlignedBlock block(8192);
  IoRequest request = {.kind = Kind::kRead,
                       .fd = 0,
                       .offset = 0,
                       .buffer = block.span(),
                       .alignment = 4096,
                       .tag = 0};
  CheckRequest(request);
  EXPECT_DEATH(CheckRequest({.kind = Kind::kRead, .fd = -1, .offset = 0, .buffer = {}, .tag = 0}),
               "fd");
  request.offset = 512;
  EXPECT_DEATH(CheckRequest(request), "offset");
  request.offset = 0;
  request.buffer = block.part(0, 4097);
  EXPECT_DEATH(CheckRequest(request), "size");
  request.alignment = 3;
  EXPECT_DEATH(CheckRequest(request), "alignment 3");
}

TEST(IoBackendOptionsTest, NumbersOutOfRange) {
  WaitingSink sink;
  for (int depth : {0, -1, 4097}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        IoRing::Create({.sink = &sink, .queue_depth = depth, .pending_max = 1}).status()));
    EXPECT_TRUE(
        absl::IsInvalidArgument(IoThreads::Create({.sink = &sink,
                                                   .threads = depth,
                                                   .pending_max = 1,
                                                   .calls = std::make_unique<PosixTransferCalls>()})
                                    .status()));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      IoRing::Create({.sink = &sink, .queue_depth = 1, .pending_max = 0}).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(IoThreads::Create({.sink = &sink,
                                                 .threads = 1,
                                                 .pending_max = 0,
                                                 .calls = std::make_unique<PosixTransferCalls>()})
                                  .status()));
}

}  // namespace
}  // namespace gantry
