#include "device/activation_arena.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr int64_t kUnmapped = -1;

}  // namespace

ArenaBuffer::ArenaBuffer(ArenaBuffer&& other) noexcept
    : arena_(std::exchange(other.arena_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

ArenaBuffer& ArenaBuffer::operator=(ArenaBuffer&& other) noexcept {
  ArenaBuffer taken(std::move(other));
  std::swap(arena_, taken.arena_);
  std::swap(data_, taken.data_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

ArenaBuffer::~ArenaBuffer() {
  if (arena_ != nullptr) arena_->Free(data_, bytes_);
}

ActivationArena::ActivationArena(std::unique_ptr<AddressSpace> space, Bytes slot_bytes,
                                 SlotSource* source)
    : space_(std::move(space)),
      slot_bytes_(slot_bytes.count()),
      source_(source),
      free_ranges_(slot_bytes_ * space_->page_count()),
      live_on_page_(static_cast<size_t>(space_->page_count()), 0),
      slot_of_page_(static_cast<size_t>(space_->page_count()), kUnmapped) {
  GANTRY_CHECK(slot_bytes_ > 0 && slot_bytes_ % FreeRanges::kAlignment == 0)
      << "slots of " << slot_bytes;
}

ActivationArena::~ActivationArena() {
  {
    MutexLock lock(mutex_);
    GANTRY_CHECK_EQ(allocations_, 0) << "an arena was destroyed under live allocations";
  }
  Trim(0);
  // Where unmapping failed, the slots go with the addresses: the space takes what it can from them.
  space_.reset();
  for (const int64_t slot : slot_of_page_) {
    if (slot != kUnmapped) source_->ReleaseActivationSlot(SlotId(slot));
  }
}

absl::StatusOr<ArenaBuffer> ActivationArena::Allocate(int64_t bytes) {
  GANTRY_CHECK_GE(bytes, 0) << "bytes to allocate";
  int64_t offset = 0;
  Mode mode = Mode::kBacked;
  ArenaObserver* observer = nullptr;
  if (bytes > 0) {
    if (std::byte* elsewhere = Detour(bytes); elsewhere != nullptr) {
      return ArenaBuffer(this, elsewhere, bytes);
    }
  }
  {
    MutexLock lock(mutex_);
    if (bytes == 0) {
      ++allocations_;
      return ArenaBuffer(this, space_->base(), 0);
    }
    GANTRY_ASSIGN_OR_RETURN(offset, TakeFreeRange(bytes));
    CountIn(offset, bytes);
    mode = mode_;
    observer = observer_;
  }
  // The pages count as live from here on, so that no Trim takes them.
  if (mode == Mode::kBacked) {
    absl::Status status = MapPages(PagesOf(offset, bytes));
    if (!status.ok()) {
      MutexLock lock(mutex_);
      CountOut(offset, bytes);
      free_ranges_.Return(offset, bytes);
      return status;
    }
  }
  if (observer != nullptr) observer->OnAllocate(offset, bytes);
  return ArenaBuffer(this, space_->base() + offset, bytes);
}

std::byte* ActivationArena::Detour(int64_t bytes) {
  ArenaDetour* detour = nullptr;
  {
    MutexLock lock(mutex_);
    detour = detour_;
  }
  std::byte* elsewhere = detour == nullptr ? nullptr : detour->OnAllocate(bytes);
  if (elsewhere == nullptr) return nullptr;
  MutexLock lock(mutex_);
  ++allocations_;
  return elsewhere;
}

void ActivationArena::Free(const std::byte* data, int64_t bytes) {
  const int64_t offset = data - space_->base();
  const bool elsewhere = offset < 0 || offset >= slot_bytes_ * space_->page_count();
  ArenaObserver* observer = nullptr;
  ArenaDetour* detour = nullptr;
  {
    MutexLock lock(mutex_);
    if (bytes == 0) {
      --allocations_;
      return;
    }
    if (elsewhere) {
      --allocations_;
      detour = detour_;
    }
  }
  if (elsewhere) return detour->OnFree(data, bytes);
  {
    MutexLock lock(mutex_);
    CountOut(offset, bytes);
    free_ranges_.Return(offset, bytes);
    observer = observer_;
  }
  if (observer != nullptr) observer->OnFree(offset, bytes);
}

void ActivationArena::SetMode(Mode mode) {
  MutexLock lock(mutex_);
  GANTRY_CHECK_EQ(allocations_, 0) << "the mode of an arena changed under live allocations";
  mode_ = mode;
}

void ActivationArena::SetObserver(ArenaObserver* observer) {
  MutexLock lock(mutex_);
  observer_ = observer;
}

void ActivationArena::SetDetour(ArenaDetour* detour) {
  MutexLock lock(mutex_);
  detour_ = detour;
}

int64_t ActivationArena::Trim(int64_t keep) {
  GANTRY_CHECK_GE(keep, 0) << "slots to keep";
  int64_t given_back = 0;
  while (true) {
    // One page at a time, so that the compute thread never waits for more than one move.
    std::optional<SlotId> slot;
    {
      MutexLock lock(mutex_);
      if (mapped_ > keep) slot = UnmapIdlePage();
    }
    if (!slot.has_value()) return given_back;
    source_->ReleaseActivationSlot(*slot);
    ++given_back;
  }
}

int64_t ActivationArena::mapped_slots() const {
  MutexLock lock(mutex_);
  return mapped_;
}

int64_t ActivationArena::live_slots() const {
  MutexLock lock(mutex_);
  return live_pages_;
}

ActivationArena::PageRange ActivationArena::PagesOf(int64_t offset, int64_t bytes) const {
  return {.first = offset / slot_bytes_, .last = (offset + bytes - 1) / slot_bytes_};
}

absl::StatusOr<int64_t> ActivationArena::TakeFreeRange(int64_t bytes) {
  const std::optional<int64_t> offset = free_ranges_.Take(bytes);
  if (offset.has_value()) return *offset;
  return ResourceExhausted(
      "no range of ", Bytes(bytes), " in the ", Bytes(slot_bytes_ * space_->page_count()),
      " of activation addresses: the largest free one has ", Bytes(free_ranges_.largest()), ", ",
      allocations_, " allocations are alive on ", live_pages_, " slots");
}

int64_t ActivationArena::OffsetOf(const std::byte* data) const { return data - space_->base(); }

void ActivationArena::CountIn(int64_t offset, int64_t bytes) {
  const PageRange pages = PagesOf(offset, bytes);
  for (int64_t page = pages.first; page <= pages.last; ++page) {
    if (live_on_page_[static_cast<size_t>(page)]++ == 0) ++live_pages_;
  }
  ++allocations_;
}

void ActivationArena::CountOut(int64_t offset, int64_t bytes) {
  const PageRange pages = PagesOf(offset, bytes);
  for (int64_t page = pages.first; page <= pages.last; ++page) {
    int64_t& live = live_on_page_[static_cast<size_t>(page)];
    GANTRY_CHECK_GT(live, 0) << "page " << page << " of an allocation at " << offset;
    if (--live == 0) --live_pages_;
  }
  --allocations_;
}

absl::Status ActivationArena::MapPages(PageRange pages) {
  std::vector<int64_t> added;
  for (int64_t page = pages.first; page <= pages.last; ++page) {
    {
      MutexLock lock(mutex_);
      if (slot_of_page_[static_cast<size_t>(page)] != kUnmapped) continue;
    }
    absl::Status status = MapPage(page);
    if (status.ok()) {
      added.push_back(page);
      continue;
    }
    for (const int64_t undo : added) {
      std::optional<SlotId> slot;
      {
        MutexLock lock(mutex_);
        slot = UnmapPage(undo);
      }
      if (slot.has_value()) source_->ReleaseActivationSlot(*slot);
    }
    return status;
  }
  return absl::OkStatus();
}

absl::Status ActivationArena::MapPage(int64_t page) {
  GANTRY_ASSIGN_OR_RETURN(const SlotId slot, AcquireSlot());
  absl::Status status = space_->Map(page, slot);
  if (!status.ok()) {
    source_->ReleaseActivationSlot(slot);
    return status;
  }
  MutexLock lock(mutex_);
  slot_of_page_[static_cast<size_t>(page)] = slot.value();
  ++mapped_;
  return absl::OkStatus();
}

absl::StatusOr<SlotId> ActivationArena::AcquireSlot() {
  absl::StatusOr<SlotId> slot = source_->AcquireActivationSlot();
  if (slot.ok() || slot.status().code() != absl::StatusCode::kResourceExhausted) return slot;
  MutexLock lock(mutex_);
  const std::optional<SlotId> idle = UnmapIdlePage();
  if (idle.has_value()) return *idle;
  return slot;
}

std::optional<SlotId> ActivationArena::UnmapIdlePage() {
  for (int64_t page = space_->page_count() - 1; page >= 0; --page) {
    if (slot_of_page_[static_cast<size_t>(page)] != kUnmapped &&
        live_on_page_[static_cast<size_t>(page)] == 0) {
      return UnmapPage(page);
    }
  }
  return std::nullopt;
}

std::optional<SlotId> ActivationArena::UnmapPage(int64_t page) {
  int64_t& entry = slot_of_page_[static_cast<size_t>(page)];
  if (!space_->Unmap(page).ok()) return std::nullopt;
  --mapped_;
  return SlotId(std::exchange(entry, kUnmapped));
}

}  // namespace gantry
