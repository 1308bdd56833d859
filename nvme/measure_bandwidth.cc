#include "nvme/measure_bandwidth.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nvme/io_backend.h"

namespace gantry {
namespace {

constexpr int64_t kExtentsPerLane = 4;

struct AlignedFree {
  void operator()(std::byte* pointer) const { std::free(pointer); }
};

class LoadSink final : public IoSink {
 public:
  struct Done {
    uint64_t tag;
    absl::Status status;
  };
  void OnIoComplete(uint64_t tag, absl::Status status) override {
    MutexLock lock(mutex_);
    done_.push_back({tag, std::move(status)});
    changed_.NotifyOne();
  }
  Done Take() {
    MutexLock lock(mutex_);
    while (done_.empty()) changed_.Wait(mutex_);
    Done first = std::move(done_.front());
    done_.pop_front();
    return first;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<Done> done_ GANTRY_GUARDED_BY(mutex_);
};

// What one of the requests under way does in turn: it fills its own extents, and then does what the
// mix says, extent by extent.
class Lane {
 public:
  Lane(std::vector<ExtentId> extents, std::span<std::byte> buffer, IoMix mix)
      : extents_(std::move(extents)), buffer_(buffer), mix_(mix) {}

  bool filled() const { return turn_ >= static_cast<int64_t>(extents_.size()); }

  IoRequest Next(const BlockFile& file, uint64_t tag) {
    const auto count = static_cast<int64_t>(extents_.size());
    const bool write =
        !filled() || mix_ == IoMix::kWrites || (mix_ == IoMix::kReadsAndWrites && turn_ % 2 == 0);
    const BlockFile::Part part = {.extent = extents_[static_cast<size_t>(turn_++ % count)],
                                  .offset = 0,
                                  .buffer = buffer_,
                                  .tag = tag};
    return write ? file.WriteRequest(part) : file.ReadRequest(part);
  }

 private:
  std::vector<ExtentId> extents_;
  std::span<std::byte> buffer_;
  IoMix mix_;
  int64_t turn_ = 0;
};

// Some drives and file systems save themselves the work for what they can compress.
void FillIncompressible(std::span<std::byte> memory) {
  uint64_t state = 1;
  for (size_t i = 0; i + sizeof(state) <= memory.size(); i += sizeof(state)) {
    state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX
    std::memcpy(&memory[i], &state, sizeof(state));
  }
}

// What the load is made of while it runs.
struct Running {
  const BlockFile& file;
  IoBackend& backend;
  LoadSink& sink;
  std::vector<Lane>& lanes;
};

// Starts a request of each lane, and the next one of a lane whenever one ends and `again` says so;
// waits for all. `again` gets the lane and how many are under way beside it.
template <typename Again>
absl::Status Run(const Running& running, const Again& again) {
  for (size_t i = 0; i < running.lanes.size(); ++i) {
    running.backend.Submit(running.lanes[i].Next(running.file, i));
  }
  auto under_way = static_cast<int64_t>(running.lanes.size());
  while (under_way > 0) {
    const LoadSink::Done done = running.sink.Take();
    GANTRY_RETURN_IF_ERROR(done.status);
    Lane& lane = running.lanes[done.tag];
    if (again(lane, under_way)) {
      running.backend.Submit(lane.Next(running.file, done.tag));
    } else {
      --under_way;
    }
  }
  return absl::OkStatus();
}

// Bytes per second.
absl::StatusOr<double> RunMeasured(const Running& running, const BandwidthLoad& load) {
  const Nanoseconds begin = load.clock->Now();
  Nanoseconds end = begin;
  int64_t bytes = 0;
  GANTRY_RETURN_IF_ERROR(Run(running, [&](const Lane&, int64_t under_way) {
    bytes += kPieceBytes;
    end = load.clock->Now();
    return end - begin < load.duration && bytes + under_way * kPieceBytes <= load.bytes_max.count();
  }));
  return end <= begin ? 1.0 : static_cast<double>(bytes) * 1e9 / static_cast<double>(end - begin);
}

}  // namespace

absl::StatusOr<double> MeasureBandwidth(const BandwidthLoad& load) {
  GANTRY_CHECK(load.make_io != nullptr && load.queue_depth > 0);
  const int64_t extents_max = std::max(kExtentsPerLane, load.file_bytes_max.count() / kPieceBytes);
  const int64_t lane_count = std::min<int64_t>(load.queue_depth, extents_max / kExtentsPerLane);
  GANTRY_ASSIGN_OR_RETURN(auto file,
                          BlockFile::Create({.directory = load.directory,
                                             .name = "measurement",
                                             .extent_bytes = Bytes(kPieceBytes),
                                             .extent_count = lane_count * kExtentsPerLane,
                                             .logger = load.logger,
                                             .files = load.files,
                                             .direct_io = load.direct_io}));
  const auto memory_bytes = static_cast<size_t>(lane_count * kPieceBytes);
  // The memory outlives the backend, whose destructor waits for what is under way.
  const std::unique_ptr<std::byte, AlignedFree> memory(
      static_cast<std::byte*>(std::aligned_alloc(BlockFile::kExtentGranule, memory_bytes)));
  if (memory == nullptr) return ResourceExhausted("no memory for ", memory_bytes, " bytes");
  FillIncompressible({memory.get(), memory_bytes});
  LoadSink sink;
  GANTRY_ASSIGN_OR_RETURN(auto backend, load.make_io({.sink = &sink,
                                                      .queue_depth = load.queue_depth,
                                                      .preference = load.io,
                                                      .directory = load.directory->path(),
                                                      .logger = load.logger,
                                                      .files = load.files}));
  std::vector<Lane> lanes;
  for (int64_t i = 0; i < lane_count; ++i) {
    std::vector<ExtentId> extents;
    for (int64_t e = 0; e < kExtentsPerLane; ++e) {
      GANTRY_ASSIGN_OR_RETURN(const ExtentId extent, file->AllocateExtent());
      extents.push_back(extent);
    }
    lanes.emplace_back(std::move(extents), std::span(memory.get() + i * kPieceBytes, kPieceBytes),
                       load.mix);
  }
  const Running running = {.file = *file, .backend = *backend, .sink = sink, .lanes = lanes};
  if (load.mix == IoMix::kReads) {
    GANTRY_RETURN_IF_ERROR(Run(running, [](const Lane& lane, int64_t) { return !lane.filled(); }));
  }
  return RunMeasured(running, load);
}

}  // namespace gantry
