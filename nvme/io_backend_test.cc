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
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/strings.h"
#include "base/testing/fault_plan.h"
#include "gtest/gtest.h"
#include "nvme/io_ring.h"
#include "nvme/io_threads.h"
#include "nvme/request_progress.h"
#include "nvme/scratch_file.h"
#include "nvme/simulated_io.h"
#include "nvme/testing_support.h"

namespace gantry {
namespace {

using Kind = IoRequest::Kind;

class IoBackendTest : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  std::unique_ptr<IoBackend> Create(IoSink* sink) {
    const auto& [name, depth] = GetParam();
    if (name == "io_uring") {
      auto ring = IoRing::Create({.sink = sink, .queue_depth = depth});
      EXPECT_TRUE(ring.ok()) << ring.status().ToString();
      return ring.ok() ? *std::move(ring) : nullptr;
    }
    if (name == "simulated") {
      auto drive = SimulatedIo::Create({.clock = &clock_,
                                        .loop = &loop_,
                                        .faults = &healthy_,
                                        .sink = sink,
                                        .latency = 50'000,
                                        .bandwidth_bytes_per_second = 1'000'000'000,
                                        .queue_depth = depth});
      EXPECT_TRUE(drive.ok()) << drive.status().ToString();
      return drive.ok() ? *std::move(drive) : nullptr;
    }
    auto threads = IoThreads::Create({.sink = sink, .threads = depth, .files = &posix_});
    EXPECT_TRUE(threads.ok()) << threads.status().ToString();
    return threads.ok() ? *std::move(threads) : nullptr;
  }
  // Whether the backend has no threads: then it cannot be held back in a sink nor be shared.
  static bool Simulated() { return std::get<0>(GetParam()) == "simulated"; }
  // For the sink that waits.
  std::function<bool()> RunNext() {
    if (!Simulated()) return {};
    return [this] { return loop_.RunNext(); };
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

  PosixFileCalls posix_;
  TemporaryDirectory directory_;
  VirtualClock clock_;
  EventLoop loop_{{.clock = &clock_, .seed = 3}};
  FaultPlan healthy_{{}};
};

INSTANTIATE_TEST_SUITE_P(Backends, IoBackendTest,
                         testing::Combine(testing::Values("io_uring", "threads", "simulated"),
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
  WaitingSink sink(RunNext());
  const FileDescriptor file = NewFile();
  std::unique_ptr<IoBackend> backend = Create(&sink);
  ASSERT_NE(backend, nullptr);
  const std::vector<Range> ranges = RandomRanges(Random({.seed = kSeed, .stream = 1}));
  std::vector<AlignedBlock> blocks;
  int64_t bytes = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    blocks.emplace_back(ranges[i].size).Fill(kSeed + i);
    bytes += ranges[i].size;
    backend->Submit({.kind = Kind::kWrite,
                     .fd = file.get(),
                     .offset = ranges[i].offset,
                     .buffer = blocks[i].span(),
                     .tag = i});
  }
  for (size_t i = 0; i < ranges.size(); ++i) ASSERT_TRUE(sink.Take(i).ok()) << i;
  std::vector<AlignedBlock> read;
  for (size_t i = 0; i < ranges.size(); ++i) {
    read.emplace_back(ranges[i].size);
    backend->Submit({.kind = Kind::kRead,
                     .fd = file.get(),
                     .offset = ranges[i].offset,
                     .buffer = read[i].span(),
                     .tag = i});
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
  WaitingSink sink(RunNext());
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
  WaitingSink sink(RunNext());
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
  WaitingSink sink(RunNext());
  std::unique_ptr<IoBackend> backend = Create(&sink);
  AlignedBlock block(100);
  const IoRequest request = {
      .kind = Kind::kRead, .fd = 1'000'000, .offset = 0, .buffer = block.span(), .tag = 1};
  const absl::Status status = Transfer(*backend, sink, request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(Contains(status, "EBADF")) << status.ToString();
}

TEST_P(IoBackendTest, SyncCompletes) {
  WaitingSink sink(RunNext());
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

// Holds back the completions: the backend's threads wait in the sink until the gate opens. Only
// this test's sink may do that.
class GatedSink final : public IoSink {
 public:
  struct Completion {
    uint64_t tag;
    absl::Status status;
  };
  void OnIoComplete(uint64_t tag, absl::Status status) override {
    MutexLock lock(mutex_);
    ++entered_;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(mutex_);
    completed_.push_back({tag, std::move(status)});
    changed_.NotifyAll();
  }
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void WaitForEntered(int64_t calls) {
    MutexLock lock(mutex_);
    while (entered_ < calls) changed_.Wait(mutex_);
  }
  std::vector<Completion> WaitFor(size_t completed) {
    MutexLock lock(mutex_);
    while (completed_.size() < completed) changed_.Wait(mutex_);
    return completed_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ GANTRY_GUARDED_BY(mutex_) = false;
  int64_t entered_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::vector<Completion> completed_ GANTRY_GUARDED_BY(mutex_);
};

// Brings every thread of the backend into the gated sink, so that nothing starts until it opens.
// Returns how many requests that took; they have tags from 1000.
int64_t Hold(IoBackend& backend, GatedSink& sink, const IoRequest& request, int depth) {
  const int64_t threads = backend.name() == "threads" ? depth : 1;
  for (int64_t i = 0; i < threads; ++i) {
    IoRequest hold = request;
    hold.tag = static_cast<uint64_t>(1000 + i);
    backend.Submit(hold);
    sink.WaitForEntered(i + 1);
  }
  return threads;
}

TEST_P(IoBackendTest, WaitingRequestsAreCancelledStartedOnesAreNot) {
  if (Simulated()) GTEST_SKIP() << "an event loop has one thread: see simulated_io_test";
  GatedSink sink;
  const FileDescriptor file = NewFile();
  AlignedBlock block(2 * kPieceBytes);
  block.Fill(1);
  std::unique_ptr<IoBackend> backend = Create(&sink);
  IoRequest request = {
      .kind = Kind::kWrite, .fd = file.get(), .offset = 0, .buffer = block.part(0, 1), .tag = 0};
  const int64_t held = Hold(*backend, sink, request, std::get<1>(GetParam()));
  for (uint64_t tag = 1; tag <= 3; ++tag) {
    request.tag = tag;
    request.offset = static_cast<int64_t>(tag) * 2 * kPieceBytes;
    request.buffer = block.span();
    backend->Submit(request);
  }
  backend->Cancel(2);
  backend->Cancel(2);     // known no more
  backend->Cancel(99);    // never known
  backend->Cancel(1000);  // in its completion
  sink.Open();
  std::vector<GatedSink::Completion> done = sink.WaitFor(static_cast<size_t>(held) + 3);
  for (const GatedSink::Completion& completion : done) {
    const auto expected =
        completion.tag == 2 ? absl::StatusCode::kCancelled : absl::StatusCode::kOk;
    EXPECT_EQ(completion.status.code(), expected) << completion.tag;
  }
  EXPECT_EQ(backend->counters().failures, 1);
  EXPECT_EQ(backend->counters().bytes_written, 4 * kPieceBytes + held);
  backend.reset();
  EXPECT_EQ(sink.WaitFor(0).size(), static_cast<size_t>(held) + 3);
  std::vector<std::byte> plain(static_cast<size_t>(2 * kPieceBytes));
  ASSERT_EQ(pread(file.get(), plain.data(), plain.size(), 4 * kPieceBytes),
            static_cast<ssize_t>(plain.size()));
  EXPECT_EQ(std::ranges::count(plain, std::byte{0}), 2 * kPieceBytes);
}

TEST_P(IoBackendTest, UrgentRequestsAndPromotedOnesGoFirst) {
  if (Simulated()) GTEST_SKIP() << "an event loop has one thread: see simulated_io_test";
  if (std::get<1>(GetParam()) != 1) GTEST_SKIP() << "only one piece at a time has an order";
  GatedSink sink;
  const FileDescriptor file = NewFile();
  AlignedBlock block(2 * kPieceBytes);
  std::unique_ptr<IoBackend> backend = Create(&sink);
  IoRequest request = {
      .kind = Kind::kWrite, .fd = file.get(), .offset = 0, .buffer = block.part(0, 1), .tag = 0};
  Hold(*backend, sink, request, 1);
  request.buffer = block.span();
  const IoPriority priorities[] = {IoPriority::kWriteBack, IoPriority::kPrefetch,
                                   IoPriority::kDemand,    IoPriority::kPrefetch,
                                   IoPriority::kWriteBack, IoPriority::kDemand};
  for (const IoPriority priority : priorities) {
    request.priority = priority;
    backend->Submit(request);
    ++request.tag;
  }
  backend->Promote(4, IoPriority::kPrefetch);
  backend->Promote(3, IoPriority::kDemand);
  backend->Promote(2, IoPriority::kWriteBack);  // never back
  backend->Promote(99, IoPriority::kDemand);
  sink.Open();
  std::vector<uint64_t> order;
  for (const GatedSink::Completion& completion : sink.WaitFor(7)) {
    EXPECT_TRUE(completion.status.ok()) << completion.status.ToString();
    order.push_back(completion.tag);
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{1000, 2, 5, 3, 1, 4, 0}));
  backend.reset();
}

TEST_P(IoBackendTest, PieceHashesAreThoseOfTheBytes) {
  WaitingSink sink(RunNext());
  const FileDescriptor file = NewFile();
  std::unique_ptr<IoBackend> backend = Create(&sink);
  for (const int64_t size : {int64_t{1}, kPieceBytes, 5 * kPieceBytes + 4097}) {
    SCOPED_TRACE(size);
    const auto pieces = static_cast<size_t>((size + kPieceBytes - 1) / kPieceBytes);
    AlignedBlock written(size);
    written.Fill(static_cast<uint64_t>(size));
    std::vector<uint64_t> expected;
    for (size_t i = 0; i < pieces; ++i) {
      const int64_t first = static_cast<int64_t>(i) * kPieceBytes;
      expected.push_back(Hash64(written.part(first, std::min(kPieceBytes, size - first))));
    }
    std::vector<uint64_t> hashes(pieces, 0);
    IoRequest request = {.kind = Kind::kWrite,
                         .fd = file.get(),
                         .offset = 0,
                         .buffer = written.span(),
                         .piece_hashes = hashes,
                         .tag = 1};
    ASSERT_TRUE(Transfer(*backend, sink, request).ok());
    EXPECT_EQ(hashes, expected);
    AlignedBlock read(size);
    std::ranges::fill(hashes, 0);
    request.kind = Kind::kRead;
    request.buffer = read.span();
    ASSERT_TRUE(Transfer(*backend, sink, request).ok());
    EXPECT_EQ(hashes, expected);
    // Of what was read, not of what was once written.
    ASSERT_EQ(pwrite(file.get(), "!", 1, size - 1), 1);
    ASSERT_TRUE(Transfer(*backend, sink, request).ok());
    expected.back() = Hash64(read.part((static_cast<int64_t>(pieces) - 1) * kPieceBytes,
                                       size - (static_cast<int64_t>(pieces) - 1) * kPieceBytes));
    EXPECT_EQ(read.span().back(), std::byte{'!'});
    EXPECT_EQ(hashes, expected);
  }
}

// Writes with random priorities, cancelled and promoted at random while they run: each completes
// once, and the file holds what the completions say.
TEST_P(IoBackendTest, RandomPrioritiesCancellationsAndPromotions) {
  constexpr uint64_t kSeed = 33011;
  SCOPED_TRACE(StrCat("seed ", kSeed));
  const Random random({.seed = kSeed, .stream = 0});
#if defined(GANTRY_TSAN) || defined(GANTRY_ASAN)
  constexpr uint64_t kRequests = 12;  // the checksums are slow under sanitizers
#else
  constexpr uint64_t kRequests = 60;
#endif
  WaitingSink sink(RunNext());
  const FileDescriptor file = NewFile();
  std::unique_ptr<IoBackend> backend = Create(&sink);
  std::vector<AlignedBlock> blocks;
  std::vector<std::vector<uint64_t>> hashes(kRequests);
  uint64_t draw = 0;
  for (uint64_t i = 0; i < kRequests; ++i) {
    const int64_t pieces = 1 + random.Below(3, draw++);
    blocks.emplace_back(pieces * kPieceBytes - random.Below(2, draw++) * 4096).Fill(i + 1);
    hashes[i].resize(static_cast<size_t>(pieces));
    backend->Submit({.kind = Kind::kWrite,
                     .fd = file.get(),
                     .offset = static_cast<int64_t>(i) * 3 * kPieceBytes,
                     .buffer = blocks[i].span(),
                     .priority = static_cast<IoPriority>(random.Below(3, draw++)),
                     .piece_hashes = hashes[i],
                     .tag = i});
    const auto any = static_cast<uint64_t>(random.Below(static_cast<int64_t>(i) + 1, draw++));
    if (i % 2 == 0) backend->Cancel(any);
    if (i % 3 == 0) backend->Promote(any, static_cast<IoPriority>(random.Below(3, draw++)));
  }
  int64_t bytes = 0;
  for (uint64_t i = 0; i < kRequests; ++i) {
    const absl::Status status = sink.Take(i);
    std::vector<std::byte> plain(blocks[i].span().size());
    const ssize_t moved =
        pread(file.get(), plain.data(), plain.size(), static_cast<int64_t>(i) * 3 * kPieceBytes);
    if (status.ok()) {
      bytes += static_cast<int64_t>(plain.size());
      EXPECT_EQ(moved, static_cast<ssize_t>(plain.size()));
      EXPECT_TRUE(std::ranges::equal(plain, blocks[i].span())) << i;
      EXPECT_EQ(
          hashes[i][0],
          Hash64(std::span(plain).first(std::min(plain.size(), static_cast<size_t>(kPieceBytes)))));
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status.ToString();
      EXPECT_EQ(std::ranges::count(plain, std::byte{0}), static_cast<int64_t>(plain.size())) << i;
      EXPECT_EQ(std::ranges::count(hashes[i], 0U), static_cast<int64_t>(hashes[i].size())) << i;
    }
  }
  EXPECT_EQ(backend->counters().bytes_written, bytes);
  EXPECT_EQ(sink.completions(), static_cast<int64_t>(kRequests));
}

TEST_P(IoBackendTest, EveryRequestIsTaken) {
  if (Simulated()) GTEST_SKIP() << "an event loop has one thread: see simulated_io_test";
  constexpr int64_t kRequests = 3000;
  GatedSink sink;
  const FileDescriptor file = NewFile();
  std::unique_ptr<IoBackend> backend = Create(&sink);
  AlignedBlock block(16);
  for (int64_t i = 0; i < kRequests; ++i) {
    backend->Submit({.kind = Kind::kWrite,
                     .fd = file.get(),
                     .offset = 16 * i,
                     .buffer = block.span(),
                     .tag = static_cast<uint64_t>(i)});
  }
  sink.Open();
  sink.WaitFor(kRequests);
  backend.reset();
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
    backend->Submit(next);
  }
  IoBackend* backend = nullptr;
  IoRequest next{};
  std::atomic<uint64_t> last = UINT64_MAX;
};

TEST_P(IoBackendTest, SubmitFromCallbackWhileDraining) {
  ChainSink sink;
  const FileDescriptor file = NewFile();
  AlignedBlock block(4096);
  std::unique_ptr<IoBackend> backend = Create(&sink);
  sink.backend = backend.get();
  sink.next = {
      .kind = Kind::kWrite, .fd = file.get(), .offset = 0, .buffer = block.span(), .tag = 50};
  backend->Submit(sink.next);
  backend.reset();  // the whole chain runs during the drain
  EXPECT_EQ(sink.last, 0u);
  struct stat status{};
  ASSERT_EQ(fstat(file.get(), &status), 0);
  EXPECT_EQ(status.st_size, 51 * 4096);
}

TEST_P(IoBackendTest, DestructorDrains) {
  WaitingSink sink(RunNext());
  const FileDescriptor file = NewFile();
  AlignedBlock block(kPieceBytes + 4096);
  block.Fill(4);
  std::unique_ptr<IoBackend> backend = Create(&sink);
  for (uint64_t i = 0; i < 20; ++i) {
    backend->Submit({.kind = Kind::kWrite,
                     .fd = file.get(),
                     .offset = static_cast<int64_t>(i) * (kPieceBytes + 4096),
                     .buffer = block.span(),
                     .tag = i});
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
  if (Simulated()) GTEST_SKIP() << "an event loop has one thread: see simulated_io_test";
  constexpr int kThreads = 4;
  constexpr int64_t kEach = 60;
  constexpr int64_t kBytes = 9000;
  WaitingSink sink(RunNext());
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
    WaitingSink sink(RunNext());
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
    WaitingSink sink(RunNext());
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
  WaitingSink sink(RunNext());
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
  PosixFileCalls posix;
  for (int depth : {0, -1, 4097}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(IoRing::Create({.sink = &sink, .queue_depth = depth}).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(
        IoThreads::Create({.sink = &sink, .threads = depth, .files = &posix}).status()));
  }
}

}  // namespace
}  // namespace gantry
