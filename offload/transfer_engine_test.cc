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
#include "nvme/run_directory.h"

namespace gantry {
namespace {

constexpr int64_t kPart = int64_t{1} << 16;

// Completes requests when the test says.
class ManualBackend final : public IoBackend {
 public:
  explicit ManualBackend(IoSink* sink) : sink_(sink) {}
  void Submit(const IoRequest& request) override {
    MutexLock lock(mutex_);
    for (const IoRequest& other : pending_) EXPECT_NE(other.tag, request.tag);
    pending_.push_back(request);
  }
  void Cancel(uint64_t) override {}
  void Promote(uint64_t, IoPriority) override {}
  std::string_view name() const override { return "manual"; }
  IoCounters counters() const override { return {}; }

  size_t pending() const {
    MutexLock lock(mutex_);
    return pending_.size();
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
  IoSink* sink_;
  mutable Mutex mutex_;
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
    if (run_ == nullptr) {
      auto run = RunDirectory::Create(&files_, ::testing::TempDir());
      ASSERT_THAT(run, IsOk());
      run_ = *std::move(run);
      auto file = BlockFile::Create({.directory = run_.get(),
                                     .name = "blocks",
                                     .extent_bytes = Bytes(kPart),
                                     .extent_count = 64,
                                     .logger = &logger_,
                                     .files = &posix_});
      ASSERT_THAT(file, IsOk());
      file_ = *std::move(file);
      for (int i = 0; i < 64; ++i) ASSERT_THAT(file_->AllocateExtent(), IsOk());
    }
    auto engine = TransferEngine::Create({.device = device_.get(),
                                          .part_bytes = Bytes(kPart),
                                          .file = setup.file ? file_.get() : nullptr,
                                          .io = setup.io,
                                          .make_io = setup.make_io,
                                          .io_directory = run_->path(),
                                          .clock = clock,
                                          .logger = &logger_,
                                          .trace_sink = nullptr});
    ASSERT_THAT(engine, IsOk());
    engine_ = *std::move(engine);
  }

  // An engine whose I/O completes on command.
  void MakeManual() {
    Make({.make_io =
              [&](const IoBackendOptions& options) {
                auto backend = std::make_unique<ManualBackend>(options.sink);
                manual_ = backend.get();
                return absl::StatusOr<std::unique_ptr<IoBackend>>(std::move(backend));
              },
          .virtual_time = true});
  }

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
  PosixFileCalls posix_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Slab> slab_;
  PosixFileCalls files_;
  std::unique_ptr<RunDirectory> run_;
  std::unique_ptr<BlockFile> file_;
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
    const FilePart out[] = {{ExtentId(5), Slot(20)}, {ExtentId(3), Slot(22)}};
    const FilePart in[] = {{ExtentId(5), Slot(30)}, {ExtentId(3), Slot(31)}};
    const std::vector<std::pair<TransferLane, std::function<TransferTicket()>>> steps = {
        {TransferLane::kHostToDevice,
         [&] { return engine_->Copy(CopyDirection::kHostToDevice, up); }},
        {TransferLane::kDeviceToHost,
         [&] { return engine_->Copy(CopyDirection::kDeviceToHost, down); }},
        {TransferLane::kFileWrite, [&] { return engine_->WriteFile(out); }},
        {TransferLane::kFileRead, [&] { return engine_->ReadFile(in); }}};
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
  EXPECT_EQ(engine_->io_name(), "threads");
}

TEST_F(TransferEngineTest, LanesAndBackendsHaveNames) {
  EXPECT_EQ(Name(TransferLane::kHostToDevice), "host to device");
  EXPECT_EQ(Name(TransferLane::kDeviceToHost), "device to host");
  EXPECT_EQ(Name(TransferLane::kFileRead), "file read");
  EXPECT_EQ(Name(TransferLane::kFileWrite), "file write");
  Make({.file = false});
  EXPECT_EQ(engine_->io_name(), "none");
}

TEST_F(TransferEngineTest, ATransferIsDoneWhenItsLastPartIs) {
  MakeManual();
  const FilePart two[] = {{ExtentId(0), Slot(0)}, {ExtentId(1), Slot(1)}};
  const FilePart one[] = {{ExtentId(2), Slot(2)}};
  const TransferTicket first = engine_->WriteFile(two);
  const TransferTicket second = engine_->ReadFile(one);
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
    const FilePart part{ExtentId(i), Slot(i)};
    tickets.push_back(engine_->WriteFile({&part, 1}));
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
  const FilePart three[] = {{ExtentId(0), Slot(0)}, {ExtentId(1), Slot(1)}, {ExtentId(2), Slot(2)}};
  engine_->WriteFile(three);
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
    const FilePart part{ExtentId(i), Slot(i)};
    tickets.insert(engine_->WriteFile({&part, 1}));
  }
  for (const auto& [ticket, status] : Wait(tickets)) EXPECT_THAT(status, IsOk()) << ticket;
  tickets.clear();
  for (int64_t i = 0; i < 30; i += 2) {
    const FilePart two[] = {{ExtentId(i), Slot(30 + i)}, {ExtentId(i + 1), Slot(31 + i)}};
    tickets.insert(engine_->ReadFile(two));
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
  const FilePart two[] = {{ExtentId(0), Slot(0)}, {ExtentId(1), Slot(1)}};
  const TransferTicket first = engine_->WriteFile(two);
  const TransferTicket second = engine_->WriteFile(two);
  const auto statuses = Wait({first, second});
  EXPECT_THAT(statuses.at(first), StatusIs(absl::StatusCode::kDataLoss, "injected EIO"));
  EXPECT_THAT(statuses.at(second), IsOk());
}

TEST_F(TransferEngineTest, AFailedBackendFailsTheCreation) {
  const absl::Status status =
      TransferEngine::Create({.device = device_.get(),
                              .part_bytes = Bytes(kPart),
                              .file = file_.get(),
                              .io = IoPreference::kAuto,
                              .make_io =
                                  [](const IoBackendOptions&) {
                                    return absl::StatusOr<std::unique_ptr<IoBackend>>(
                                        Unavailable("no backend"));
                                  },
                              .io_directory = run_->path(),
                              .clock = &monotonic_,
                              .logger = &logger_,
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
  const FilePart part{ExtentId(0), Slot(0)};
  engine_->ReadFile({&part, 1});
  virtual_.Advance(10);
  engine_->ReadFile({&part, 1});
  virtual_.Advance(5);
  manual_->Complete(0);
  EXPECT_EQ(engine_->counters(TransferLane::kFileRead).busy, 0);  // still at work
  virtual_.Advance(7);
  manual_->Complete(0);
  EXPECT_EQ(engine_->counters(TransferLane::kFileRead).busy, 22);
  EXPECT_EQ(engine_->counters(TransferLane::kFileWrite).busy, 0);
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
    const FilePart part{ExtentId(i), Slot(i)};
    engine_->WriteFile({&part, 1});
    const CopyPart copy{Slot(32 + i), Slot(i)};
    engine_->Copy(i % 2 == 0 ? CopyDirection::kHostToDevice : CopyDirection::kDeviceToHost,
                  {&copy, 1});
  }
  engine_.reset();
  for (int64_t i = 0; i < 32; ++i) {
    EXPECT_TRUE(HasByte(32 + i, static_cast<int>(100 + i))) << i;
    FillSlot(i, 0);
  }
  Make({});
  std::set<TransferTicket> tickets;
  for (int64_t i = 0; i < 32; ++i) {
    const FilePart part{ExtentId(i), Slot(i)};
    tickets.insert(engine_->ReadFile({&part, 1}));
  }
  Wait(tickets);
  for (int64_t i = 0; i < 32; ++i) EXPECT_TRUE(HasByte(i, static_cast<int>(100 + i))) << i;
}

TEST_F(TransferEngineTest, LanesThatAreNotThereAbort) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  Make({.topology = DeviceTopology::kUnified, .file = false});
  const CopyPart copy{Slot(1), Slot(0)};
  const FilePart part{ExtentId(0), Slot(0)};
  EXPECT_DEATH(engine_->Copy(CopyDirection::kHostToDevice, {&copy, 1}), "no copy lanes");
  EXPECT_DEATH(engine_->ReadFile({&part, 1}), "no file tier");
  EXPECT_DEATH(engine_->WriteFile({}), "parts");
}

}  // namespace
}  // namespace gantry
