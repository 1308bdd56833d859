#include "benches/suite/store_load.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
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

constexpr size_t kCacheLineBytes = 64;

enum class Direction : uint8_t { kRead, kWrite };

void Touch(std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += kCacheLineBytes) {
    static_cast<void>(*static_cast<const volatile std::byte*>(&bytes[i]));
  }
}

// The loop runs in the completions: each starts the next request, so that the number under way
// stays the same without another thread's wake-up.
class BlockStoreLoad final : public StoreLoad, private StoreSink {
 public:
  explicit BlockStoreLoad(const StoreLoadOptions& options)
      : options_(options),
        buffers_(static_cast<size_t>(options.buffers == 0 ? options.requests : options.buffers)) {}

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
  void Start(Nanoseconds now) GANTRY_REQUIRES(mutex_);
  std::span<std::byte> Buffer(size_t index) const {
    const auto size = static_cast<size_t>(options_.block_bytes.count());
    return memory_.bytes().subspan(index * size, size);
  }

  const StoreLoadOptions options_;
  const size_t buffers_;
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
  std::vector<Request> requests_ GANTRY_GUARDED_BY(mutex_);  // per buffer
  std::deque<size_t> free_ GANTRY_GUARDED_BY(mutex_);        // buffers, next to be used first
  absl::Status status_ GANTRY_GUARDED_BY(mutex_);
  LoadResult result_ GANTRY_GUARDED_BY(mutex_);

  std::unique_ptr<BlockStore> store_;  // destroyed first: it calls back into the fields above
};

absl::Status BlockStoreLoad::Open() {
  GANTRY_CHECK(options_.clock != nullptr && options_.logger != nullptr);
  GANTRY_CHECK(options_.requests >= 1 && options_.blocks >= 4 * options_.requests)
      << options_.requests << " requests on " << options_.blocks << " blocks";
  GANTRY_CHECK_GE(buffers_, static_cast<size_t>(options_.requests));
  GANTRY_ASSIGN_OR_RETURN(
      memory_, HugeMemory::Create(options_.block_bytes * static_cast<int64_t>(buffers_)));
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
    requests_.resize(buffers_);
    for (size_t buffer = 0; buffer < buffers_; ++buffer) free_.push_back(buffer);
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
  for (int i = 0; i < options_.requests && HasMore(begin_); ++i) Start(options_.clock->Now());
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

void BlockStoreLoad::Start(Nanoseconds now) {
  const Direction direction = NextDirection();
  int64_t& next = direction == Direction::kRead ? next_read_ : next_write_;
  // A block that is still under way from before is passed over: there are four times as many.
  while (busy_[static_cast<size_t>(next)] != 0) next = (next + 1) % options_.blocks;
  const int64_t block = next;
  next = (next + 1) % options_.blocks;
  busy_[static_cast<size_t>(block)] = 1;
  const size_t index = free_.front();
  free_.pop_front();
  requests_[index] = {.direction = direction, .block = block, .begin = now};
  ++started_;
  ++under_way_;
  const std::span<std::byte> buffer = Buffer(index);
  const ExtentId extent = extents_[static_cast<size_t>(block)];
  if (direction == Direction::kRead) {
    store_->Read(
        {.extent = extent, .buffer = buffer, .verification = run_.verification, .tag = index});
  } else {
    store_->Write({.extent = extent, .buffer = buffer, .tag = index});
  }
}

void BlockStoreLoad::OnStoreComplete(uint64_t tag, absl::Status status) {
  MutexLock lock(mutex_);
  const auto index = static_cast<size_t>(tag);
  const Request& request = requests_[index];
  if (run_.use == ReadUse::kTouch && request.direction == Direction::kRead) Touch(Buffer(index));
  const Nanoseconds now = options_.clock->Now();
  busy_[static_cast<size_t>(request.block)] = 0;
  status_.Update(status);
  const int64_t bytes = options_.block_bytes.count();
  (request.direction == Direction::kRead ? result_.bytes_read : result_.bytes_written) += bytes;
  result_.nanoseconds.push_back(static_cast<double>(now - request.begin));
  end_ = now;
  --under_way_;
  free_.push_back(index);
  if (HasMore(now)) {
    Start(now);
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
