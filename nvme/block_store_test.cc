// What a store keeps and in which order, over real files; cancellation and promotion step by step
// on a backend that does its real I/O when told.
#include "nvme/block_store.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/block_store_fixture.h"
#include "nvme/request_queue.h"

namespace gantry {
namespace {

using BlockStoreTest = BlockStoreFixture;

struct Shape {
  std::string name;
  std::vector<double> shares;
  int64_t extent_bytes;
  int rings = 1;
};

class BlockStoreShapesTest : public BlockStoreFixture,
                             public testing::WithParamInterface<std::tuple<Shape, IoPreference>> {};

INSTANTIATE_TEST_SUITE_P(
    Shapes, BlockStoreShapesTest,
    testing::Combine(testing::Values(Shape{"small", {1}, 4096},           //
                                     Shape{"one", {1}, 5 * kPieceBytes},  //
                                     Shape{"dealt", {3, 1}, 64 << 10},    //
                                     Shape{"cut", {1, 1}, 2 * kPieceBytes},
                                     Shape{"ragged", {2, 1, 1}, 7 * kPieceBytes + 4096, 2},
                                     Shape{"rings", {1}, 6 * kPieceBytes - 4096, 4}),
                     testing::Values(IoPreference::kIoUring, IoPreference::kThreads)),
    [](const auto& info) {
      return StrCat(std::get<0>(info.param).name, "_",
                    std::get<1>(info.param) == IoPreference::kThreads ? "threads" : "io_uring");
    });

// Random writes, reads of random ranges, frees and growth against a model of what each extent
// holds.
TEST_P(BlockStoreShapesTest, RandomRequestsAgreeWithTheModel) {
  constexpr uint64_t kSeed = 2718;
  SCOPED_TRACE(StrCat("seed ", kSeed));
  const auto& [shape, io] = GetParam();
  const Random random({.seed = kSeed, .stream = 0});
  uint64_t draw = 0;
  auto below = [&](int64_t bound) { return random.Below(bound, draw++); };
  Make({.shares = shape.shares,
        .extent_bytes = Bytes(shape.extent_bytes),
        .extents = 4,
        .io = io,
        .rings = shape.rings});
  struct Held {
    std::optional<uint64_t> seed;
    int64_t generation;
  };
  std::map<ExtentId, Held> held;
  std::map<ExtentId, int64_t> generations;
  for (int step = 0; step < 80; ++step) {
    const int64_t action = below(10);
    if (held.empty() || action == 0) {
      auto extent = store_->AllocateExtent();
      if (!extent.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(extent.status()));
        ASSERT_TRUE(store_->Grow(1 + below(3)).ok());
        continue;
      }
      ASSERT_TRUE(held.emplace(*extent, Held{std::nullopt, generations[*extent]}).second);
      continue;
    }
    auto which = held.begin();
    std::advance(which, below(static_cast<int64_t>(held.size())));
    auto& [extent, state] = *which;
    if (action == 1) {
      store_->FreeExtent(extent);
      held.erase(which);
    } else if (action < 5 || !state.seed.has_value()) {
      state.seed = static_cast<uint64_t>(step) + 1;
      ASSERT_TRUE(Write(extent, *state.seed).ok());
      EXPECT_EQ(store_->generation(extent), ++generations[extent]);
    } else {
      const int64_t pieces = (shape.extent_bytes + kPieceBytes - 1) / kPieceBytes;
      const int64_t first = below(pieces);
      const int64_t last = first + 1 + below(pieces - first);
      const int64_t begin = first * kPieceBytes;
      const int64_t end = std::min(last * kPieceBytes, shape.extent_bytes);
      AlignedBlock expected(shape.extent_bytes);
      expected.Fill(*state.seed);
      AlignedBlock read(end - begin);
      const absl::Status status = Read(extent, read, begin);
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_TRUE(std::ranges::equal(read.span(), expected.part(begin, end - begin))) << step;
    }
  }
  EXPECT_EQ(store_->extents() - store_->extents_free(), static_cast<int64_t>(held.size()));
  EXPECT_GT(store_->counters().pieces_verified, 0);
  EXPECT_EQ(store_->counters().mismatches, 0);
}

TEST_P(BlockStoreShapesTest, BytesFollowTheShares) {
  const auto& [shape, io] = GetParam();
  Make({.shares = shape.shares,
        .extent_bytes = Bytes(shape.extent_bytes),
        .extents = 16,
        .io = io,
        .rings = shape.rings});
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(Write(Allocate(), 1).ok());
  const std::vector<StripeReport> reports = store_->Describe();
  ASSERT_EQ(reports.size(), shape.shares.size());
  double sum = 0;
  for (const double share : shape.shares) sum += share;
  int64_t bytes = 0;
  for (size_t i = 0; i < reports.size(); ++i) {
    EXPECT_EQ(reports[i].directory, Directory(i));
    EXPECT_NEAR(reports[i].share, shape.shares[i] / sum, 1e-12);
    EXPECT_EQ(reports[i].backend, io == IoPreference::kThreads ? "threads" : "io_uring");
    EXPECT_EQ(reports[i].file_bytes.count(), reports[i].io.bytes_written);
    EXPECT_NEAR(static_cast<double>(reports[i].io.bytes_written),
                reports[i].share * 16.0 * static_cast<double>(shape.extent_bytes),
                16.0 * kPieceBytes);
    bytes += reports[i].io.bytes_written;
  }
  EXPECT_EQ(bytes, 16 * shape.extent_bytes);
}

TEST_F(BlockStoreTest, NothingIsVerifiedWhereThatIsOff) {
  Make({.verification = Verification::kOff});
  const ExtentId extent = Allocate();
  ASSERT_TRUE(Write(extent, 1).ok());
  ASSERT_TRUE(Write(extent, 2).ok());
  EXPECT_EQ(store_->generation(extent), 2);
  ExpectContent(extent, 2);
  EXPECT_EQ(store_->counters().pieces_verified, 0);
}

TEST_F(BlockStoreTest, RegisteredMemoryIsUsed) {
  AlignedBlock memory(2 * kPieceBytes);
  memory.Fill(1);
  const std::span<std::byte> region = memory.span();
  Make({.shares = {1, 1}, .fixed_memory = {&region, 1}});
  const StripeReport before = store_->Describe()[1];
  if (!before.fixed_memory) GTEST_SKIP() << before.backend << " has no registered memory here";
  const ExtentId extent = Allocate();
  store_->Write({.extent = extent, .buffer = memory.span(), .tag = 1});
  ASSERT_TRUE(sink_.Take(1).ok());
  EXPECT_EQ(store_->Describe()[1].io.fixed_pieces, 1);
  ExpectContent(extent, 1);  // into other memory
  EXPECT_EQ(store_->Describe()[1].io.fixed_pieces, 1);
}

TEST_F(BlockStoreTest, EveryExtentIsHandedOutOnceAndFullIsAnError) {
  Make({.extents = 3});
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(Allocate(), ExtentId(i));
  const absl::Status full = store_->AllocateExtent().status();
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_TRUE(Contains(full, Directory(0))) << full.ToString();
  store_->FreeExtent(ExtentId(1));
  EXPECT_EQ(Allocate(), ExtentId(1));
  ASSERT_TRUE(store_->Grow(0).ok());
  ASSERT_TRUE(store_->Grow(2).ok());
  EXPECT_EQ(store_->extents(), 5);
  EXPECT_EQ(Allocate(), ExtentId(3));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Grow(-1)));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Grow(INT64_MAX)));
}

TEST_F(BlockStoreTest, BadOptions) {
  const auto code = [&](const StoreSetup& setup) { return Create(setup).status().code(); };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code({.extent_bytes = Bytes(0)}), invalid);
  EXPECT_EQ(code({.extent_bytes = Bytes(4095)}), invalid);
  EXPECT_EQ(code({.extents = -1}), invalid);
  EXPECT_EQ(code({.extents = INT64_MAX / 4096}), invalid);
  EXPECT_EQ(code({.rings = 0}), invalid);
  EXPECT_EQ(code({.rings = 17}), invalid);
  EXPECT_EQ(code({.queue_depth = 0}), invalid);
  EXPECT_EQ(code({.shares = {1, 0}}), invalid);
  BlockStore::Options options = {.directories = {},
                                 .extent_bytes = Bytes(4096),
                                 .extent_count = 1,
                                 .sink = &sink_,
                                 .files = &posix_,
                                 .clock = &clock_,
                                 .logger = &logger_};
  EXPECT_EQ(BlockStore::Create(options).status().code(), invalid);
  options.directories = {root_.path()};
  options.shares = {1, 1};
  EXPECT_EQ(BlockStore::Create(options).status().code(), invalid);
}

TEST_F(BlockStoreTest, NothingIsLeftBehind) {
  const int64_t descriptors = OpenDescriptors();
  for (int i = 0; i < 20; ++i) {
    Make({.shares = {1, 1}, .rings = 2});
    ASSERT_TRUE(Write(Allocate(), 3).ok());
  }
  store_.reset();
  EXPECT_EQ(OpenDescriptors(), descriptors);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(ListDirectory(Directory(i)).empty());
}

// Does its real I/O in Step, one piece at a time, on the calling thread.
class SteppedBackend final : public IoBackend {
 public:
  explicit SteppedBackend(IoSink* sink) : sink_(sink) {}
  ~SteppedBackend() override {
    while (Step()) {
    }
    Deliver();
  }
  void Submit(const IoRequest& request) override {
    CheckRequest(request);
    queue_.Push(request);
  }
  void Cancel(uint64_t tag) override { queue_.Cancel(tag); }
  void Promote(uint64_t tag, IoPriority priority) override { queue_.Promote(tag, priority); }
  std::string_view name() const override { return "stepped"; }
  IoCounters counters() const override { return {}; }

  // Does the next piece; false when none waits.
  bool Step() {
    if (!queue_.HasNext()) return false;
    RequestQueue::Piece piece = queue_.Next();
    const IoRequest& request = piece.progress.piece();
    const auto size = static_cast<ssize_t>(request.buffer.size());
    if (request.kind == IoRequest::Kind::kRead) {
      EXPECT_EQ(pread(request.fd, request.buffer.data(), request.buffer.size(), request.offset),
                size);
    } else {
      EXPECT_EQ(pwrite(request.fd, request.buffer.data(), request.buffer.size(), request.offset),
                size);
    }
    HashPiece(request);
    queue_.Finish(piece.tag, absl::OkStatus());
    return true;
  }
  void Deliver() {
    for (RequestQueue::Completion& done : queue_.TakeCompletions()) {
      sink_->OnIoComplete(done.tag, std::move(done.status));
    }
  }
  void Run() {
    while (Step()) Deliver();
    Deliver();
  }

 private:
  IoSink* const sink_;
  RequestQueue queue_;
};

class BlockStoreSteppedTest : public BlockStoreFixture {
 protected:
  void MakeStepped(std::vector<double> shares, int64_t extent_bytes) {
    Make({.shares = std::move(shares),
          .extent_bytes = Bytes(extent_bytes),
          .make_io = [this](const IoBackendOptions& options) {
            auto backend = std::make_unique<SteppedBackend>(options.sink);
            rings_.push_back(backend.get());
            return absl::StatusOr<std::unique_ptr<IoBackend>>(std::move(backend));
          }});
  }
  void RunAll() {
    for (SteppedBackend* ring : rings_) ring->Run();
  }
  void Submit(ExtentId extent, const AlignedBlock& block, uint64_t tag,
              IoPriority priority = IoPriority::kWriteBack) {
    store_->Write({.extent = extent, .buffer = block.span(), .priority = priority, .tag = tag});
  }
  bool Holds(ExtentId extent, const AlignedBlock& block) {
    AlignedBlock read(store_->extent_bytes().count());
    store_->Read({.extent = extent, .buffer = read.span(), .tag = 999});
    RunAll();
    const absl::Status status = sink_.Take(999);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return std::ranges::equal(read.span(), block.span());
  }

  std::vector<SteppedBackend*> rings_;  // the store's
};

TEST_F(BlockStoreSteppedTest, AWaitingWriteIsCancelledAndChangesNothing) {
  MakeStepped({1, 1}, 4 * kPieceBytes);
  const ExtentId extent = Allocate();
  AlignedBlock old(4 * kPieceBytes);
  old.Fill(1);
  AlignedBlock fresh(4 * kPieceBytes);
  fresh.Fill(2);
  Submit(extent, old, 1);
  RunAll();
  ASSERT_TRUE(sink_.Take(1).ok());
  Submit(extent, fresh, 2);
  store_->Cancel(3);  // unknown
  store_->Cancel(2);
  RunAll();
  EXPECT_TRUE(absl::IsCancelled(sink_.Take(2)));
  EXPECT_EQ(store_->generation(extent), 1);
  EXPECT_EQ(store_->counters().cancelled, 1);
  EXPECT_TRUE(Holds(extent, old));
  Submit(extent, fresh, 2);  // the extent and the tag are free again
  RunAll();
  ASSERT_TRUE(sink_.Take(2).ok());
  EXPECT_TRUE(Holds(extent, fresh));
}

TEST_F(BlockStoreSteppedTest, AWriteThatHasStartedAnywhereIsFinished) {
  MakeStepped({1, 1, 1}, 6 * kPieceBytes);
  const ExtentId extent = Allocate();
  AlignedBlock block(6 * kPieceBytes);
  block.Fill(1);
  Submit(extent, block, 1);
  ASSERT_TRUE(rings_[1]->Step());  // one piece of the second directory's part
  store_->Cancel(1);
  for (SteppedBackend* ring : rings_) ring->Deliver();
  EXPECT_EQ(sink_.completions(), 0);
  RunAll();
  RunAll();  // what was cancelled in the first and third directory went out again
  ASSERT_TRUE(sink_.Take(1).ok());
  EXPECT_EQ(store_->counters().cancelled, 0);
  EXPECT_EQ(store_->generation(extent), 1);
  EXPECT_TRUE(Holds(extent, block));
}

TEST_F(BlockStoreSteppedTest, ReadsAreCancelledEvenHalfWay) {
  MakeStepped({1, 1}, 4 * kPieceBytes);
  const ExtentId extent = Allocate();
  AlignedBlock block(4 * kPieceBytes);
  block.Fill(1);
  Submit(extent, block, 1);
  RunAll();
  ASSERT_TRUE(sink_.Take(1).ok());
  AlignedBlock read(4 * kPieceBytes);
  store_->Read({.extent = extent, .buffer = read.span(), .tag = 2});
  ASSERT_TRUE(rings_[0]->Step());
  store_->Cancel(2);
  RunAll();
  EXPECT_TRUE(absl::IsCancelled(sink_.Take(2)));
  store_->Read({.extent = extent, .buffer = read.span(), .tag = 2});
  for (SteppedBackend* ring : rings_) EXPECT_TRUE(ring->Step());
  store_->Cancel(2);  // every part has started
  RunAll();
  EXPECT_TRUE(sink_.Take(2).ok());
}

TEST_F(BlockStoreSteppedTest, PromotionReachesEveryPart) {
  MakeStepped({1, 1}, 2 * kPieceBytes);
  AlignedBlock block(2 * kPieceBytes);
  for (const uint64_t tag : {1, 2, 3}) Submit(Allocate(), block, tag);
  store_->Promote(9, IoPriority::kDemand);
  store_->Promote(3, IoPriority::kDemand);
  store_->Promote(3, IoPriority::kWriteBack);  // never back
  for (SteppedBackend* ring : rings_) {
    ASSERT_TRUE(ring->Step());
    ring->Deliver();
  }
  EXPECT_TRUE(sink_.Take(3).ok());
  EXPECT_EQ(sink_.completions(), 1);
  RunAll();
  EXPECT_EQ(sink_.completions(), 3);
}

TEST_F(BlockStoreSteppedTest, DestructionFinishesOrCancelsEverything) {
  MakeStepped({1, 1}, 4 * kPieceBytes);
  AlignedBlock block(4 * kPieceBytes);
  for (const uint64_t tag : {1, 2, 3}) Submit(Allocate(), block, tag);
  ASSERT_TRUE(rings_[0]->Step());
  store_->Cancel(1);  // its second part can't be taken up again any more
  store_.reset();
  EXPECT_TRUE(absl::IsCancelled(sink_.Take(1)));
  EXPECT_TRUE(sink_.Take(2).ok());
  EXPECT_TRUE(sink_.Take(3).ok());
}

// Several threads, each with extents of its own, on a shallow queue; requests are cancelled and
// promoted while they run. What a completion says is what the extent holds.
TEST_F(BlockStoreTest, ThreadsCancelAndPromoteAtRandom) {
  constexpr uint64_t kSeed = 161803;
  SCOPED_TRACE(StrCat("seed ", kSeed));
  constexpr int64_t kBytes = 3 * kPieceBytes;
  for (const IoPreference io : {IoPreference::kIoUring, IoPreference::kThreads}) {
    Make({.shares = {2, 1},
          .extent_bytes = Bytes(kBytes),
          .extents = 9,
          .io = io,
          .queue_depth = 2});
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 3; ++t) {
      // thread: the store must take calls from several at once.
      threads.emplace_back([&, t] {
        const Random random({.seed = kSeed, .stream = t});
        uint64_t draw = 0;
        struct Slot {
          ExtentId extent;
          std::optional<uint64_t> seed;
          AlignedBlock block{kBytes};
        };
        std::vector<Slot> slots;
        for (int i = 0; i < 3; ++i) slots.push_back({.extent = Allocate(), .seed = {}});
        for (uint64_t round = 0; round < 25; ++round) {
          struct Pending {
            Slot* slot;
            bool write;
            uint64_t seed;
            uint64_t tag;
          };
          std::vector<Pending> pending;
          for (Slot& slot : slots) {
            const bool write = !slot.seed.has_value() || random.Below(2, draw++) == 0;
            const uint64_t tag = 1'000'000 * t + 10 * round + pending.size();
            const auto priority = static_cast<IoPriority>(random.Below(3, draw++));
            if (write) {
              slot.block.Fill(tag);
              store_->Write({.extent = slot.extent,
                             .buffer = slot.block.span(),
                             .priority = priority,
                             .tag = tag});
            } else {
              store_->Read({.extent = slot.extent,
                            .buffer = slot.block.span(),
                            .priority = priority,
                            .tag = tag});
            }
            pending.push_back({&slot, write, tag, tag});
            if (random.Below(2, draw++) == 0) {
              const auto any = random.Below(static_cast<int64_t>(pending.size()), draw++);
              store_->Promote(pending[static_cast<size_t>(any)].tag, IoPriority::kDemand);
            }
            if (random.Below(3, draw++) == 0) {
              const auto any = random.Below(static_cast<int64_t>(pending.size()), draw++);
              store_->Cancel(pending[static_cast<size_t>(any)].tag);
            }
          }
          for (const Pending& request : pending) {
            const absl::Status status = sink_.Take(request.tag);
            if (absl::IsCancelled(status)) continue;
            EXPECT_TRUE(status.ok()) << status.ToString();
            if (request.write) {
              request.slot->seed = request.seed;
              continue;
            }
            AlignedBlock expected(kBytes);
            expected.Fill(*request.slot->seed);
            EXPECT_TRUE(std::ranges::equal(request.slot->block.span(), expected.span()));
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(store_->counters().mismatches, 0);
  }
}

using BlockStoreDeathTest = BlockStoreTest;

TEST_F(BlockStoreDeathTest, MisuseAborts) {
  Make({.extents = 3});
  AlignedBlock block(2 * kPieceBytes + 4096);
  const ExtentId extent = Allocate();
  const auto read = [&](ExtentId which, int64_t offset, int64_t size) {
    store_->Read({.extent = which, .offset = offset, .buffer = block.part(0, size), .tag = 1});
  };
  EXPECT_DEATH(read(extent, 0, kPieceBytes), "extent#0 was not written");
  EXPECT_DEATH(store_->FreeExtent(ExtentId(1)), "extent#1 is not allocated");
  EXPECT_DEATH(store_->Write({.extent = ExtentId(-1), .buffer = block.part(0, 2 << 20), .tag = 1}),
               "extent#-1 is not allocated");
  EXPECT_DEATH(store_->Write({.extent = extent, .buffer = block.part(0, 1 << 20), .tag = 1}),
               "extent_bytes_");
  ASSERT_TRUE(Write(extent, 1).ok());
  EXPECT_DEATH(read(extent, 4096, kPieceBytes), "offset 4096");
  EXPECT_DEATH(read(extent, 0, kPieceBytes + 4096), "neither whole pieces nor");
  EXPECT_DEATH(read(extent, kPieceBytes, 2 * kPieceBytes), "of an extent of 2097152");
  EXPECT_DEATH(read(extent, 0, 0), "of an extent of 2097152");
  store_->FreeExtent(extent);
  EXPECT_EQ(Allocate(), extent);
  EXPECT_DEATH(read(extent, 0, kPieceBytes), "extent#0 was not written");  // by the new owner
}

}  // namespace
}  // namespace gantry
