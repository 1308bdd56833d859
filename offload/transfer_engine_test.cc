// The four lanes over a real emulated device and a real block file; order and accounting with a
// backend that completes on command; times on a virtual clock.
#include "offload/transfer_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file_calls.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "device/host/host_device.h"
#include "nvme/fault_injection.h"

namespace gantry {
namespace {

constexpr int64_t kPart = int64_t{1} << 16;
constexpr int64_t kExtents = 64;

// Completes requests when the test says.
class ManualBackend final : public IoBackend {
 public:
  explicit ManualBackend(IoSink* sink) : sink_(sink) {}
  void Submit(const IoRequest& request) override {
    MutexLock lock(mutex_);
    for (const IoRequest& other : pending_) EXPECT_NE(other.tag, request.tag);
    pending_.push_back(request);
  }
  void Cancel(uint64_t tag) override {
    MutexLock lock(mutex_);
    cancelled_ += Pending(tag);
  }
  void Promote(uint64_t tag, IoPriority priority) override {
    MutexLock lock(mutex_);
    if (priority == IoPriority::kDemand) promoted_ += Pending(tag);
  }
  std::string_view name() const override { return "manual"; }
  IoCounters counters() const override { return {}; }

  size_t pending() const {
    MutexLock lock(mutex_);
    return pending_.size();
  }
  int64_t cancelled() const {
    MutexLock lock(mutex_);
    return cancelled_;
  }
  int64_t promoted() const {
    MutexLock lock(mutex_);
    return promoted_;
  }
  IoRequest::Kind kind(size_t index) const {
    MutexLock lock(mutex_);
    return pending_[index].kind;
  }
  void Complete(size_t index, absl::Status status = absl::OkStatus()) {
    uint64_t tag = 0;
    {
      MutexLock lock(mutex_);
      tag = pending_[index].tag;
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
    }
    sink_->OnIoComplete(tag, std::move(status));
  }

 private:
  int64_t Pending(uint64_t tag) const GANTRY_REQUIRES(mutex_) {
    return std::count_if(pending_.begin(), pending_.end(),
                         [tag](const IoRequest& request) { return request.tag == tag; });
  }

  IoSink* sink_;
  mutable Mutex mutex_;
  int64_t cancelled_ GANTRY_GUARDED_BY(mutex_) = 0;
  int64_t promoted_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::vector<IoRequest> pending_ GANTRY_GUARDED_BY(mutex_);
};

class TransferEngineTest : public ::testing::Test {
 protected:
  struct Setup {
    DeviceTopology topology = DeviceTopology::kDiscrete;
    int64_t bandwidth = 0;
    int64_t latency = 0;
    bool file = true;
    IoPreference io = IoPreference::kAuto;
    IoBackendFactory make_io = {};
    bool virtual_time = false;
    Verification verification = Verification::kEveryRead;
  };

  void SetUp() override { Make({}); }
  void TearDown() override { engine_.reset(); }

  void Make(const Setup& setup) {
    engine_.reset();
    Clock* clock = setup.virtual_time ? static_cast<Clock*>(&virtual_) : &monotonic_;
    auto device = CreateHostDevice({.topology = setup.topology,
                                    .bandwidth_bytes_per_second = setup.bandwidth,
                                    .latency_nanoseconds = setup.latency,
                                    .clock = clock});
    ASSERT_THAT(device, IsOk());
    slab_.reset();
    device_ = *std::move(device);
    auto slab = device_->CreateSlab(
        {.kind = MemoryKind::kHostPinned, .slot_bytes = Bytes(kPart), .slot_count = 64});
    ASSERT_THAT(slab, IsOk());
    slab_ = *std::move(slab);
    std::optional<BlockStore::Options> store;
    if (setup.file) store = StoreOptions(setup, clock);
    auto engine = TransferEngine::Create({.device = device_.get(),
                                          .part_bytes = Bytes(kPart),
                                          .store = std::move(store),
                                          .clock = clock,
                                          .trace_sink = nullptr});
    ASSERT_THAT(engine, IsOk());
    engine_ = *std::move(engine);
    if (!setup.file) return;
    extents_.clear();
    for (int64_t i = 0; i < kExtents; ++i) {
      const auto extent = engine_->store()->AllocateExtent();
      ASSERT_THAT(extent, IsOk());
      extents_.push_back(*extent);
    }
  }
  BlockStore::Options StoreOptions(const Setup& setup, Clock* clock) {
    return {.directories = {::testing::TempDir()},
            .extent_bytes = Bytes(kPart),
            .extent_count = kExtents,
            .verification = setup.verification,
            .io = setup.io,
            .make_io = setup.make_io,
            .sink = nullptr,
            .files = &files_,
            .clock = clock,
            .logger = &logger_};
  }

  // An engine whose I/O completes on command.
  void MakeManual() {
    Make({.make_io =
              [&](const IoBackendOptions& options) {
                auto backend = std::make_unique<ManualBackend>(options.sink);
                manual_ = backend.get();
                return absl::StatusOr<std::unique_ptr<IoBackend>>(std::move(backend));
              },
          .virtual_time = true,
          .verification = Verification::kOff});
  }
  // Manual I/O: so that the extent may be read.
  void WriteManually(int64_t extent) {
    const FilePart part{Extent(extent), Slot(0)};
    const TransferTicket ticket = engine_->WriteFile({&part, 1}, IoPriority::kWriteBack);
    manual_->Complete(0);
    Wait({ticket});
  }
  ExtentId Extent(int64_t i) const { return extents_.at(static_cast<size_t>(i)); }

  std::byte* Slot(int64_t i) { return slab_->parking(SlotId(i)); }
  void FillSlot(int64_t i, int byte) { std::memset(Slot(i), byte, kPart); }
  bool HasByte(int64_t slot, int byte) {
    for (int64_t i = 0; i < kPart; ++i) {
      if (Slot(slot)[i] != static_cast<std::byte>(byte)) return false;
    }
    return true;
  }
  // Waits until every ticket has completed; their statuses.
  std::map<TransferTicket, absl::Status> Wait(std::set<TransferTicket> tickets) {
    std::map<TransferTicket, absl::Status> statuses;
    while (!tickets.empty()) {
      for (const TransferCompletion& completion : engine_->WaitAndPoll()) {
        EXPECT_EQ(tickets.erase(completion.ticket), 1u) << completion.ticket;
        statuses.emplace(completion.ticket, completion.status);
      }
    }
    return statuses;
  }

  MonotonicClock monotonic_;
  VirtualClock virtual_;
  MemoryLogger logger_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Slab> slab_;
  PosixFileCalls files_;
  std::vector<ExtentId> extents_;
  std::unique_ptr<TransferEngine> engine_;
  ManualBackend* manual_ = nullptr;
};

TEST_F(TransferEngineTest, AllFourLanesCarryTheBytes) {
  for (const IoPreference io : {IoPreference::kAuto, IoPreference::kThreads}) {
    Make({.io = io});
    FillSlot(0, 17);
    FillSlot(1, 18);
    const CopyPart up[] = {{Slot(10), Slot(0)}, {Slot(12), Slot(1)}};
    const CopyPart down[] = {{Slot(20), Slot(10)}, {Slot(22), Slot(12)}};
    const FilePart out[] = {{Extent(5), Slot(20)}, {Extent(3), Slot(22)}};
    const FilePart in[] = {{Extent(5), Slot(30)}, {Extent(3), Slot(31)}};
    const std::vector<std::pair<TransferLane, std::function<TransferTicket()>>> steps = {
        {TransferLane::kHostToDevice,
         [&] { return engine_->Copy(CopyDirection::kHostToDevice, up); }},
        {TransferLane::kDeviceToHost,
         [&] { return engine_->Copy(CopyDirection::kDeviceToHost, down); }},
        {TransferLane::kFileWrite, [&] { return engine_->WriteFile(out, IoPriority::kWriteBack); }},
        {TransferLane::kFileRead, [&] { return engine_->ReadFile(in, IoPriority::kDemand); }}};
    for (const auto& [lane, start] : steps) {
      const TransferTicket ticket = start();
      const std::vector<TransferCompletion> done = engine_->WaitAndPoll();
      ASSERT_EQ(done.size(), 1u);
      EXPECT_EQ(done[0].ticket, ticket);
      EXPECT_EQ(done[0].lane, lane);
      EXPECT_THAT(done[0].status, IsOk());
      const TransferCounters counters = engine_->counters(lane);
      EXPECT_EQ(counters.transfers, 1);
      EXPECT_EQ(counters.bytes, 2 * kPart);
      EXPECT_GT(counters.busy, 0);
    }
    EXPECT_TRUE(HasByte(30, 17));
    EXPECT_TRUE(HasByte(31, 18));
    FillSlot(30, 0);
    FillSlot(31, 0);
  }
  EXPECT_EQ(engine_->store()->Describe()[0].backend, "threads");
}

TEST_F(TransferEngineTest, LanesAndBackendsHaveNames) {
  EXPECT_EQ(Name(TransferLane::kHostToDevice), "host to device");
  EXPECT_EQ(Name(TransferLane::kDeviceToHost), "device to host");
  EXPECT_EQ(Name(TransferLane::kFileRead), "file read");
  EXPECT_EQ(Name(TransferLane::kFileWrite), "file write");
  Make({.file = false});
  EXPECT_EQ(engine_->store(), nullptr);
}

TEST_F(TransferEngineTest, ATransferIsDoneWhenItsLastPartIs) {
  MakeManual();
  WriteManually(2);
  const FilePart two[] = {{Extent(0), Slot(0)}, {Extent(1), Slot(1)}};
  const FilePart one[] = {{Extent(2), Slot(2)}};
  const TransferTicket first = engine_->WriteFile(two, IoPriority::kWriteBack);
  const TransferTicket second = engine_->ReadFile(one, IoPriority::kDemand);
  ASSERT_EQ(manual_->pending(), 3u);
  EXPECT_EQ(manual_->kind(0), IoRequest::Kind::kWrite);
  EXPECT_EQ(manual_->kind(2), IoRequest::Kind::kRead);
  manual_->Complete(1);  // one part of the first
  manual_->Complete(1);  // the second
  std::vector<TransferCompletion> done = engine_->WaitAndPoll();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].ticket, second);
  EXPECT_EQ(done[0].lane, TransferLane::kFileRead);
  manual_->Complete(0);
  done = engine_->WaitAndPoll();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].ticket, first);
}

TEST_F(TransferEngineTest, CompletionsComeInTheirOrder) {
  MakeManual();
  std::vector<TransferTicket> tickets;
  for (int64_t i = 0; i < 4; ++i) {
    const FilePart part{Extent(i), Slot(i)};
    tickets.push_back(engine_->WriteFile({&part, 1}, IoPriority::kWriteBack));
  }
  for (const size_t index : {3, 0, 1, 0}) manual_->Complete(index);
  const std::vector<TransferCompletion> done = engine_->WaitAndPoll();
  ASSERT_EQ(done.size(), 4u);
  EXPECT_EQ(done[0].ticket, tickets[3]);
  EXPECT_EQ(done[1].ticket, tickets[0]);
  EXPECT_EQ(done[2].ticket, tickets[2]);
  EXPECT_EQ(done[3].ticket, tickets[1]);
}

TEST_F(TransferEngineTest, TheFirstErrorOfATransferIsKept) {
  MakeManual();
  const FilePart three[] = {{Extent(0), Slot(0)}, {Extent(1), Slot(1)}, {Extent(2), Slot(2)}};
  engine_->WriteFile(three, IoPriority::kWriteBack);
  manual_->Complete(0);
  manual_->Complete(0, DataLoss("first"));
  manual_->Complete(0, Internal("second"));
  const std::vector<TransferCompletion> done = engine_->WaitAndPoll();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_THAT(done[0].status, StatusIs(absl::StatusCode::kDataLoss, "first"));
}

TEST_F(TransferEngineTest, ManyTransfersWaitForAShallowQueue) {
  Make({.make_io = [](const IoBackendOptions& options) {
    IoBackendOptions small = options;
    small.queue_depth = 2;
    return CreateIoBackend(small);
  }});
  std::set<TransferTicket> tickets;
  for (int64_t i = 0; i < 30; ++i) {
    FillSlot(i, static_cast<int>(i + 1));
    const FilePart part{Extent(i), Slot(i)};
    tickets.insert(engine_->WriteFile({&part, 1}, IoPriority::kWriteBack));
  }
  for (const auto& [ticket, status] : Wait(tickets)) EXPECT_THAT(status, IsOk()) << ticket;
  tickets.clear();
  for (int64_t i = 0; i < 30; i += 2) {
    const FilePart two[] = {{Extent(i), Slot(30 + i)}, {Extent(i + 1), Slot(31 + i)}};
    tickets.insert(engine_->ReadFile(two, IoPriority::kDemand));
  }
  for (const auto& [ticket, status] : Wait(tickets)) EXPECT_THAT(status, IsOk()) << ticket;
  for (int64_t i = 0; i < 30; ++i) EXPECT_TRUE(HasByte(30 + i, static_cast<int>(i + 1))) << i;
}

TEST_F(TransferEngineTest, AnErrorOfTheBackendIsTheTransfersAndItGoesOn) {
  Make({.make_io =
            [](const IoBackendOptions& options) -> absl::StatusOr<std::unique_ptr<IoBackend>> {
    auto faulty = std::make_unique<FaultyIoBackend>(
        [options](IoSink* sink) {
          IoBackendOptions inner = options;
          inner.sink = sink;
          return CreateIoBackend(inner);
        },
        options.sink);
    if (!faulty->status().ok()) return faulty->status();
    faulty->FailRequest(1, DataLoss("injected EIO"));
    return faulty;
  }});
  const FilePart two[] = {{Extent(0), Slot(0)}, {Extent(1), Slot(1)}};
  const FilePart others[] = {{Extent(2), Slot(2)}, {Extent(3), Slot(3)}};
  const TransferTicket first = engine_->WriteFile(two, IoPriority::kWriteBack);
  const TransferTicket second = engine_->WriteFile(others, IoPriority::kWriteBack);
  const auto statuses = Wait({first, second});
  EXPECT_THAT(statuses.at(first), StatusIs(absl::StatusCode::kDataLoss, "injected EIO"));
  EXPECT_THAT(statuses.at(second), IsOk());
}

TEST_F(TransferEngineTest, AFailedBackendFailsTheCreation) {
  BlockStore::Options store = StoreOptions({}, &monotonic_);
  store.make_io = [](const IoBackendOptions&) {
    return absl::StatusOr<std::unique_ptr<IoBackend>>(Unavailable("no backend"));
  };
  const absl::Status status = TransferEngine::Create({.device = device_.get(),
                                                      .part_bytes = Bytes(kPart),
                                                      .store = std::move(store),
                                                      .clock = &monotonic_,
                                                      .trace_sink = nullptr})
                                  .status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, "no backend"));
}

// latency 100 ns, then 1 ns per 64 bytes: 1,124 ns a part. Parts of a lane follow each other.
TEST_F(TransferEngineTest, BusyIsTheTimeDuringWhichALaneWorks) {
  Make({.bandwidth = 64'000'000'000, .latency = 100, .virtual_time = true});
  const Nanoseconds part = 100 + kPart / 64;
  const CopyPart two[] = {{Slot(1), Slot(0)}, {Slot(3), Slot(2)}};
  Wait({engine_->Copy(CopyDirection::kHostToDevice, two)});
  EXPECT_EQ(virtual_.Now(), 2 * part);
  EXPECT_EQ(engine_->counters(TransferLane::kHostToDevice).busy, 2 * part);
  EXPECT_EQ(engine_->counters(TransferLane::kDeviceToHost).busy, 0);
  virtual_.Advance(50'000);  // idle
  Wait({engine_->Copy(CopyDirection::kHostToDevice, {two, 1})});
  EXPECT_EQ(engine_->counters(TransferLane::kHostToDevice).busy, 3 * part);
  EXPECT_EQ(engine_->counters(TransferLane::kHostToDevice).transfers, 2);
}

TEST_F(TransferEngineTest, OverlappingTransfersOfALaneAreBusyOnce) {
  MakeManual();
  WriteManually(0);
  const FilePart part{Extent(0), Slot(0)};
  engine_->ReadFile({&part, 1}, IoPriority::kDemand);
  virtual_.Advance(10);
  engine_->ReadFile({&part, 1}, IoPriority::kDemand);
  virtual_.Advance(5);
  manual_->Complete(0);
  EXPECT_EQ(engine_->counters(TransferLane::kFileRead).busy, 15);  // and still at work
  virtual_.Advance(7);
  manual_->Complete(0);
  EXPECT_EQ(engine_->counters(TransferLane::kFileRead).busy, 22);
  EXPECT_EQ(engine_->counters(TransferLane::kDeviceToHost).busy, 0);
  EXPECT_EQ(engine_->counters(TransferLane::kFileRead).bytes, 2 * kPart);
}

TEST_F(TransferEngineTest, WakeEndsAWaitOnceWithoutACompletion) {
  engine_->Wake();
  engine_->Wake();  // two wakes before a wait are one
  EXPECT_TRUE(engine_->WaitAndPoll().empty());
  // thread: the wake must come while the test waits.
  std::thread waker([this] { engine_->Wake(); });
  EXPECT_TRUE(engine_->WaitAndPoll().empty());
  waker.join();
  const CopyPart part{Slot(1), Slot(0)};
  const TransferTicket ticket = engine_->Copy(CopyDirection::kDeviceToHost, {&part, 1});
  const std::vector<TransferCompletion> done = engine_->WaitAndPoll();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].ticket, ticket);
}

TEST_F(TransferEngineTest, DestructionFinishesWhatIsUnderWay) {
  Make({.make_io = [](const IoBackendOptions& options) {
    IoBackendOptions small = options;
    small.queue_depth = 4;  // so that some of it waits
    return CreateIoBackend(small);
  }});
  for (int64_t i = 0; i < 32; ++i) {
    FillSlot(i, static_cast<int>(100 + i));
    const FilePart part{Extent(i), Slot(i)};
    engine_->WriteFile({&part, 1}, IoPriority::kWriteBack);
    const CopyPart copy{Slot(32 + i), Slot(i)};
    engine_->Copy(i % 2 == 0 ? CopyDirection::kHostToDevice : CopyDirection::kDeviceToHost,
                  {&copy, 1});
  }
  engine_.reset();
  for (int64_t i = 0; i < 32; ++i) EXPECT_TRUE(HasByte(32 + i, static_cast<int>(100 + i))) << i;
}

// Both copies have the bytes, and both lanes count them.
TEST_F(TransferEngineTest, AFetchFillsTheHostAndTheDevice) {
  FillSlot(0, 41);
  FillSlot(1, 42);
  const FilePart out[] = {{Extent(7), Slot(0)}, {Extent(8), Slot(1)}};
  Wait({engine_->WriteFile(out, IoPriority::kWriteBack)});
  const FetchPart in[] = {{Extent(7), Slot(10), Slot(20)}, {Extent(8), Slot(11), Slot(21)}};
  const TransferTicket ticket = engine_->FetchFile(in, IoPriority::kDemand);
  EXPECT_THAT(Wait({ticket}).at(ticket), IsOk());
  for (const int64_t slot : {10, 20}) EXPECT_TRUE(HasByte(slot, 41)) << slot;
  for (const int64_t slot : {11, 21}) EXPECT_TRUE(HasByte(slot, 42)) << slot;
  EXPECT_EQ(engine_->counters(TransferLane::kFileRead).bytes, 2 * kPart);
  EXPECT_EQ(engine_->counters(TransferLane::kHostToDevice).bytes, 2 * kPart);
  EXPECT_EQ(engine_->counters(TransferLane::kHostToDevice).transfers, 1);
}

TEST_F(TransferEngineTest, AFetchWhoseReadFailsCopiesNothing) {
  MakeManual();
  WriteManually(0);
  FillSlot(20, 9);
  const FetchPart in{Extent(0), Slot(10), Slot(20)};
  const TransferTicket ticket = engine_->FetchFile({&in, 1}, IoPriority::kDemand);
  manual_->Complete(0, DataLoss("torn"));
  EXPECT_THAT(Wait({ticket}).at(ticket), StatusIs(absl::StatusCode::kDataLoss, "torn"));
  EXPECT_TRUE(HasByte(20, 9));
  EXPECT_EQ(engine_->counters(TransferLane::kHostToDevice).transfers, 0);
}

TEST_F(TransferEngineTest, CancelAndPromoteReachEveryRequestOfATransfer) {
  MakeManual();
  WriteManually(0);
  WriteManually(1);
  const FilePart two[] = {{Extent(0), Slot(1)}, {Extent(1), Slot(2)}};
  const TransferTicket ticket = engine_->ReadFile(two, IoPriority::kPrefetch);
  engine_->Promote(ticket, IoPriority::kDemand);
  EXPECT_EQ(manual_->promoted(), 2);
  engine_->Cancel(ticket);
  EXPECT_EQ(manual_->cancelled(), 2);
  manual_->Complete(0, absl::CancelledError("called off"));
  manual_->Complete(0, absl::CancelledError("called off"));
  EXPECT_THAT(Wait({ticket}).at(ticket), StatusIs(absl::StatusCode::kCancelled, "cancelled"));
  engine_->Cancel(ticket);  // unknown by now
  engine_->Promote(ticket, IoPriority::kDemand);
  EXPECT_EQ(manual_->promoted(), 2);
}

TEST_F(TransferEngineTest, LanesThatAreNotThereAbort) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  Make({.topology = DeviceTopology::kUnified, .file = false});
  const CopyPart copy{Slot(1), Slot(0)};
  const FilePart part{Extent(0), Slot(0)};
  EXPECT_DEATH(engine_->Copy(CopyDirection::kHostToDevice, {&copy, 1}), "no copy lanes");
  EXPECT_DEATH(engine_->ReadFile({&part, 1}, IoPriority::kDemand), "no file tier");
  const FetchPart fetch{Extent(0), Slot(0), Slot(1)};
  EXPECT_DEATH(engine_->FetchFile({&fetch, 1}, IoPriority::kDemand), "no file tier");
  EXPECT_DEATH(engine_->WriteFile({}, IoPriority::kWriteBack), "parts");
}

}  // namespace
}  // namespace gantry
