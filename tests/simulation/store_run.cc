#include "tests/simulation/store_run.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/event_loop.h"
#include "base/log.h"
#include "base/random.h"
#include "base/strings.h"
#include "nvme/block_store.h"
#include "nvme/simulated_io.h"
#include "tests/simulation/spill_folders.h"

namespace gantry {
namespace {

struct Shape {
  int64_t directories;
  int64_t extent_bytes;
  int64_t extents;
  int64_t operations;
  int rings;
  int queue_depth;
  Nanoseconds latency;
};

Shape ShapeOf(uint64_t seed) {
  const Random random({.seed = seed, .stream = 23});
  // Less than a page of a piece, some pieces, and one more than two directories share evenly.
  constexpr int64_t kSizes[] = {4096, 65536, 65536, (int64_t{2} << 20) + 4096};
  const int64_t bytes = kSizes[random.Below(std::size(kSizes), 0)];
  return {.directories = 1 + random.Below(3, 1),
          .extent_bytes = bytes,
          .extents = 3 + random.Below(6, 2),
          .operations = bytes > kPieceBytes ? 40 : 120,
          .rings = 1 + static_cast<int>(random.Below(2, 3)),
          .queue_depth = 1 + static_cast<int>(random.Below(8, 4)),
          .latency = random.Below(200'000, 5)};
}

class AlignedMemory {
 public:
  explicit AlignedMemory(int64_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(bytes)))) {
    GANTRY_CHECK(data_ != nullptr) << bytes;
  }
  std::span<std::byte> span() const { return {data_.get(), static_cast<size_t>(bytes_)}; }

 private:
  struct Free {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  int64_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

// Bytes that differ in every word between any two versions.
void Fill(std::span<std::byte> bytes, uint64_t version) {
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = (version << 32) + i;
    std::memcpy(&bytes[i], &word, 8);
  }
}

bool Holds(std::span<const std::byte> bytes, uint64_t version) {
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, &bytes[i], 8);
    if (word != (version << 32) + i) return false;
  }
  return true;
}

class StoreScript final : public StoreSink {
 public:
  explicit StoreScript(const StoreRunOptions& options)
      : options_(options),
        shape_(ShapeOf(options.seed)),
        random_({.seed = options.seed, .stream = 24}),
        loop_({.clock = &clock_, .seed = options.order_seed}),
        folders_(static_cast<int>(shape_.directories)) {}

  StoreRunResult Run() {
    auto store = BlockStore::Create(StoreOptions());
    if (!store.ok()) {
      result_.error = store.status();
    } else {
      store_ = *std::move(store);
      for (int64_t i = 0; i < shape_.operations; ++i) {
        Act();
        loop_.RunSome();
      }
      while (!pending_.empty() && loop_.RunNext()) {
      }
      ReadAll();
      if (!pending_.empty()) result_.wrong = StrCat(pending_.size(), " requests never completed");
      store_.reset();
    }
    const bool healthy = options_.faults->struck() == 0;
    const std::string left =
        folders_.WhatIsLeft(healthy ? SpillFolders::Run::kHealthy : SpillFolders::Run::kFaulty);
    if (!left.empty()) result_.wrong = StrCat("left behind: ", left);
    result_.events = loop_.events_run();
    result_.end = clock_.Now();
    return std::move(result_);
  }

  void OnStoreComplete(uint64_t tag, absl::Status status) override {
    auto found = pending_.extract(tag);
    GANTRY_CHECK(!found.empty()) << "tag " << tag;
    const Pending& done = found.mapped();
    Extent& extent = extents_[done.extent];
    --extent.pending;
    if (done.version != 0) extent.writing = false;
    if (absl::IsCancelled(status)) return;
    if (!status.ok()) {
      // What a failed write left is unknown; a failed read changes nothing.
      if (done.version != 0) extent.version.reset();
      if (result_.error.ok()) result_.error = status;
      return;
    }
    if (done.version != 0) {
      extent.version = done.version;
      return;
    }
    ++result_.reads_compared;
    if (Holds(done.memory->span(), done.expected)) return;
    result_.wrong = StrCat("a read of ", done.extent, " gave other bytes than were written");
  }

 private:
  struct Extent {
    std::optional<uint64_t> version;  // that it holds; nothing: unknown
    int64_t pending = 0;
    bool writing = false;
  };
  struct Pending {
    ExtentId extent;
    std::unique_ptr<AlignedMemory> memory;
    uint64_t version = 0;   // of a write
    uint64_t expected = 0;  // by a read
  };

  BlockStore::Options StoreOptions() {
    return {.directories = folders_.paths(),
            .shares = std::vector<double>(static_cast<size_t>(shape_.directories), 1.0),
            .extent_bytes = Bytes(shape_.extent_bytes),
            .extent_count = shape_.extents,
            .rings_per_directory = shape_.rings,
            .make_io =
                [this](const IoBackendOptions& io) -> absl::StatusOr<std::unique_ptr<IoBackend>> {
              return SimulatedIo::Create({.clock = &clock_,
                                          .loop = &loop_,
                                          .faults = options_.faults,
                                          .sink = io.sink,
                                          .latency = shape_.latency,
                                          .bandwidth_bytes_per_second = 2'000'000'000,
                                          .queue_depth = shape_.queue_depth});
            },
            .sink = this,
            .files = options_.faults->files(),
            .clock = &clock_,
            .logger = &logger_};
  }

  int64_t Draw(int64_t bound) { return random_.Below(bound, draws_++); }
  IoPriority AnyPriority() { return static_cast<IoPriority>(Draw(kIoPriorityCount)); }

  void Act() {
    const int64_t what = Draw(20);
    if (what < 2 || extents_.empty()) return Allocate();
    auto any = std::next(extents_.begin(), Draw(static_cast<int64_t>(extents_.size())));
    const ExtentId id = any->first;
    Extent& extent = any->second;
    if (what < 3 && extent.pending == 0) {
      store_->FreeExtent(id);
      extents_.erase(any);
    } else if (what < 5 && next_tag_ > 0) {
      store_->Cancel(static_cast<uint64_t>(Draw(static_cast<int64_t>(next_tag_))));
    } else if (what < 7 && next_tag_ > 0) {
      store_->Promote(static_cast<uint64_t>(Draw(static_cast<int64_t>(next_tag_))), AnyPriority());
    } else if (what < 12 && extent.pending == 0) {
      Write(id);
    } else if (extent.version.has_value() && !extent.writing) {
      Read(id);
    }
  }

  void Allocate() {
    const auto extent = store_->AllocateExtent();
    if (extent.ok()) {
      extents_.emplace(*extent, Extent{});
    } else if (extents_.size() < static_cast<size_t>(shape_.extents)) {
      result_.wrong = StrCat("an extent was refused: ", extent.status().ToString());
    }
  }

  void Write(ExtentId id) {
    Extent& extent = extents_.at(id);
    ++extent.pending;
    extent.writing = true;
    Pending write{.extent = id,
                  .memory = std::make_unique<AlignedMemory>(shape_.extent_bytes),
                  .version = ++versions_};
    Fill(write.memory->span(), write.version);
    const StoreWrite request{
        .extent = id, .buffer = write.memory->span(), .priority = AnyPriority(), .tag = next_tag_};
    pending_.emplace(next_tag_++, std::move(write));
    store_->Write(request);
  }

  void Read(ExtentId id) {
    Extent& extent = extents_.at(id);
    ++extent.pending;
    Pending read{.extent = id,
                 .memory = std::make_unique<AlignedMemory>(shape_.extent_bytes),
                 .expected = *extent.version};
    const StoreRead request{
        .extent = id, .buffer = read.memory->span(), .priority = AnyPriority(), .tag = next_tag_};
    pending_.emplace(next_tag_++, std::move(read));
    store_->Read(request);
  }

  void ReadAll() {
    for (auto& [id, extent] : extents_) {
      if (extent.version.has_value() && !extent.writing) Read(id);
    }
    while (!pending_.empty() && loop_.RunNext()) {
    }
  }

  const StoreRunOptions options_;
  const Shape shape_;
  const Random random_;
  uint64_t draws_ = 0;
  VirtualClock clock_;
  EventLoop loop_;
  MemoryLogger logger_;
  SpillFolders folders_;
  std::map<ExtentId, Extent> extents_;
  std::map<uint64_t, Pending> pending_;
  uint64_t versions_ = 0;
  uint64_t next_tag_ = 0;
  StoreRunResult result_;
  std::unique_ptr<BlockStore> store_;  // last: its destructor calls back
};

}  // namespace

StoreRunResult RunStore(const StoreRunOptions& options) { return StoreScript(options).Run(); }

std::string DescribeStoreRun(uint64_t seed) {
  const Shape shape = ShapeOf(seed);
  return StrCat("block store, seed ", seed, ": ", shape.directories, " directories, ",
                shape.extents, " extents of ", shape.extent_bytes, " bytes, ", shape.rings,
                " rings of ", shape.queue_depth, ", ", shape.operations, " operations");
}

}  // namespace gantry
