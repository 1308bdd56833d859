#include "benches/suite/store_load.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benches/suite/fio.h"
#include "benches/suite/huge_memory.h"
#include "benches/suite/process_usage.h"
#include "nvme/block_store.h"
#include "nvme/extent_id.h"

namespace gantry {
namespace {

enum class Direction : uint8_t { kRead, kWrite };

// The loop runs in the completions: each starts the next request, so that the number under way
// stays the same without another thread's wake-up.
class BlockStoreLoad final : public StoreLoad, private StoreSink {
 public:
  explicit BlockStoreLoad(const StoreLoadOptions& options) : options_(options) {}

  absl::Status Open();
  absl::StatusOr<LoadResult> Run(const LoadRun& run) override;
  StoreFacts facts() const override {
    const StripeReport stripe = store_->Describe().front();
    return {.backend = stripe.backend,
            .ring_flags = stripe.ring_flags,
            .fixed_memory = stripe.fixed_memory,
            .access = stripe.direct_io ? FileAccess::kDirect : FileAccess::kBuffered};
  }

 private:
  struct Request {
    Direction direction;
    int64_t block;
    Nanoseconds begin;
  };

  void OnStoreComplete(uint64_t tag, absl::Status status) override;
  bool HasMore(Nanoseconds now) const GANTRY_REQUIRES(mutex_);
  Direction NextDirection() GANTRY_REQUIRES(mutex_);
  void Start(size_t slot, Nanoseconds now) GANTRY_REQUIRES(mutex_);

  const StoreLoadOptions options_;
  HugeMemory memory_;
  std::span<std::byte> fixed_memory_;
  std::vector<ExtentId> extents_;

  Mutex mutex_;
  CondVar ended_;
  LoadRun run_ GANTRY_GUARDED_BY(mutex_) = {.mix = LoadMix::kRead};
  Nanoseconds begin_ GANTRY_GUARDED_BY(mutex_) = 0;
  Nanoseconds end_ GANTRY_GUARDED_BY(mutex_) = 0;  // of the last completion
  int64_t started_ GANTRY_GUARDED_BY(mutex_) = 0;
  int64_t under_way_ GANTRY_GUARDED_BY(mutex_) = 0;
  int64_t next_read_ GANTRY_GUARDED_BY(mutex_) = 0;
  int64_t next_write_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::vector<char> busy_ GANTRY_GUARDED_BY(mutex_);         // per block: a request is under way
  std::vector<Request> requests_ GANTRY_GUARDED_BY(mutex_);  // per slot of memory
  absl::Status status_ GANTRY_GUARDED_BY(mutex_);
  LoadResult result_ GANTRY_GUARDED_BY(mutex_);

  std::unique_ptr<BlockStore> store_;  // destroyed first: it calls back into the fields above
};

absl::Status BlockStoreLoad::Open() {
  GANTRY_CHECK(options_.clock != nullptr && options_.logger != nullptr);
  GANTRY_CHECK(options_.requests >= 1 && options_.blocks >= 4 * options_.requests)
      << options_.requests << " requests on " << options_.blocks << " blocks";
  GANTRY_ASSIGN_OR_RETURN(memory_, HugeMemory::Create(options_.block_bytes * options_.requests));
  // Bytes that no drive can compress.
  const Random random({.seed = 1, .stream = 0});
  const std::span<std::byte> bytes = memory_.bytes();
  fixed_memory_ = bytes;
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t word = random.Bits(i);
    for (size_t b = 0; b < 8; ++b) bytes[i + b] = static_cast<std::byte>(word >> (8 * b));
  }
  GANTRY_ASSIGN_OR_RETURN(store_, BlockStore::Create({.directories = {options_.directory},
                                                      .extent_bytes = options_.block_bytes,
                                                      .extent_count = options_.blocks,
                                                      .verification = options_.verification,
                                                      .io = options_.io,
                                                      .queue_depth = options_.queue_depth,
                                                      .fixed_memory = {&fixed_memory_, 1},
                                                      .sink = this,
                                                      .files = options_.files,
                                                      .clock = options_.clock,
                                                      .logger = options_.logger}));
  for (int64_t i = 0; i < options_.blocks; ++i) {
    GANTRY_ASSIGN_OR_RETURN(const ExtentId extent, store_->AllocateExtent());
    extents_.push_back(extent);
  }
  {
    MutexLock lock(mutex_);
    busy_.assign(static_cast<size_t>(options_.blocks), 0);
    requests_.resize(static_cast<size_t>(options_.requests));
  }
  return Run({.mix = LoadMix::kWrite, .blocks = options_.blocks}).status();
}

absl::StatusOr<LoadResult> BlockStoreLoad::Run(const LoadRun& run) {
  GANTRY_CHECK(run.duration > 0 || run.blocks > 0) << "the load has no end";
  const double cpu_before = ProcessCpuSeconds();
  MutexLock lock(mutex_);
  run_ = run;
  result_ = {};
  status_ = absl::OkStatus();
  started_ = 0;
  next_read_ = 0;
  next_write_ = run.mix == LoadMix::kMixed ? options_.blocks / 2 : 0;
  begin_ = options_.clock->Now();
  end_ = begin_;
  for (size_t slot = 0; slot < requests_.size() && HasMore(begin_); ++slot) {
    Start(slot, options_.clock->Now());
  }
  while (under_way_ > 0) ended_.Wait(mutex_);
  GANTRY_RETURN_IF_ERROR(status_);
  result_.seconds = static_cast<double>(end_ - begin_) * 1e-9;
  result_.cpu_seconds = ProcessCpuSeconds() - cpu_before;
  return std::move(result_);
}

bool BlockStoreLoad::HasMore(Nanoseconds now) const {
  if (!status_.ok()) return false;
  if (run_.blocks > 0 && started_ >= run_.blocks) return false;
  return run_.duration == 0 || now - begin_ < run_.duration;
}

Direction BlockStoreLoad::NextDirection() {
  switch (run_.mix) {
    case LoadMix::kRead:
      return Direction::kRead;
    case LoadMix::kWrite:
      return Direction::kWrite;
    case LoadMix::kMixed:
      break;
  }
  return started_ % 2 == 0 ? Direction::kRead : Direction::kWrite;
}

void BlockStoreLoad::Start(size_t slot, Nanoseconds now) {
  const Direction direction = NextDirection();
  int64_t& next = direction == Direction::kRead ? next_read_ : next_write_;
  // A block that is still under way from before is passed over: there are four times as many.
  while (busy_[static_cast<size_t>(next)] != 0) next = (next + 1) % options_.blocks;
  const int64_t block = next;
  next = (next + 1) % options_.blocks;
  busy_[static_cast<size_t>(block)] = 1;
  requests_[slot] = {.direction = direction, .block = block, .begin = now};
  ++started_;
  ++under_way_;
  const auto size = static_cast<size_t>(options_.block_bytes.count());
  const std::span<std::byte> buffer = memory_.bytes().subspan(slot * size, size);
  const ExtentId extent = extents_[static_cast<size_t>(block)];
  if (direction == Direction::kRead) {
    store_->Read(
        {.extent = extent, .buffer = buffer, .verification = run_.verification, .tag = slot});
  } else {
    store_->Write({.extent = extent, .buffer = buffer, .tag = slot});
  }
}

void BlockStoreLoad::OnStoreComplete(uint64_t tag, absl::Status status) {
  MutexLock lock(mutex_);
  const Nanoseconds now = options_.clock->Now();
  const auto slot = static_cast<size_t>(tag);
  const Request& request = requests_[slot];
  busy_[static_cast<size_t>(request.block)] = 0;
  status_.Update(status);
  const int64_t bytes = options_.block_bytes.count();
  (request.direction == Direction::kRead ? result_.bytes_read : result_.bytes_written) += bytes;
  result_.nanoseconds.push_back(static_cast<double>(now - request.begin));
  end_ = now;
  --under_way_;
  if (HasMore(now)) {
    Start(slot, now);
  } else if (under_way_ == 0) {
    ended_.NotifyAll();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreLoad>> StoreLoad::Create(const StoreLoadOptions& options) {
  auto load = std::make_unique<BlockStoreLoad>(options);
  GANTRY_RETURN_IF_ERROR(load->Open());
  return load;
}

}  // namespace gantry
