#include "device/slot_pool.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr int8_t kFree = -1;
constexpr std::array<MemoryTag, kMemoryTagCount> kTags = {
    MemoryTag::kParameter, MemoryTag::kGradient, MemoryTag::kOptimizer, MemoryTag::kActivation,
    MemoryTag::kStaging};

size_t Index(MemoryTag tag) { return static_cast<size_t>(tag); }

void CountOut(MemoryTag tag, PoolUsage& usage) {
  int64_t& used = usage.used_by_tag[Index(tag)];
  ++used;
  usage.peak_by_tag[Index(tag)] = std::max(usage.peak_by_tag[Index(tag)], used);
}

}  // namespace

std::string_view Name(MemoryTag tag) {
  switch (tag) {
    case MemoryTag::kParameter:
      return "param";
    case MemoryTag::kGradient:
      return "grad";
    case MemoryTag::kOptimizer:
      return "optimizer";
    case MemoryTag::kActivation:
      return "activation";
    case MemoryTag::kStaging:
      return "staging";
  }
  GANTRY_CHECK(false) << "memory tag " << static_cast<int>(tag);
  return "";
}

std::string PoolUsage::ToString() const {
  std::string text;
  for (const MemoryTag tag : kTags) {
    text += StrCat(text.empty() ? "" : ", ", Name(tag), " ", used_by_tag[Index(tag)]);
  }
  return StrCat(text, " of ", slots_total, " slots of ", slot_bytes);
}

SlotPool::SlotPool(Slab* slab)
    : slab_(slab),
      tag_of_slot_(static_cast<size_t>(slab->slot_count()), kFree),
      usage_{.slot_bytes = slab->slot_bytes(),
             .slots_total = slab->slot_count(),
             .slots_used = 0,
             .slots_peak = 0,
             .used_by_tag = {},
             .peak_by_tag = {}} {
  free_.reserve(tag_of_slot_.size());
  // Ascending order is a heap with the least slot in front.
  for (int64_t slot = 0; slot < slab->slot_count(); ++slot) free_.emplace_back(slot);
}

SlotPool::~SlotPool() {
  MutexLock lock(mutex_);
  GANTRY_CHECK_EQ(usage_.slots_used, 0)
      << "a slot pool was destroyed with slots out: " << usage_.ToString();
}

std::optional<SlotId> SlotPool::TryAcquire(MemoryTag tag) {
  MutexLock lock(mutex_);
  if (free_.empty()) return std::nullopt;
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const SlotId slot = free_.back();
  free_.pop_back();
  tag_of_slot_[static_cast<size_t>(slot.value())] = static_cast<int8_t>(tag);
  ++usage_.slots_used;
  usage_.slots_peak = std::max(usage_.slots_peak, usage_.slots_used);
  CountOut(tag, usage_);
  return slot;
}

void SlotPool::Release(SlotId slot) {
  MutexLock lock(mutex_);
  GANTRY_CHECK(slot.value() >= 0 && slot.value() < usage_.slots_total)
      << slot << " of " << usage_.slots_total << " slots";
  int8_t& tag = tag_of_slot_[static_cast<size_t>(slot.value())];
  GANTRY_CHECK_NE(tag, kFree) << slot << " was released but is not out: " << usage_.ToString();
  --usage_.used_by_tag[static_cast<size_t>(tag)];
  --usage_.slots_used;
  tag = kFree;
  free_.push_back(slot);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

void SlotPool::Retag(SlotId slot, MemoryTag tag) {
  MutexLock lock(mutex_);
  GANTRY_CHECK(slot.value() >= 0 && slot.value() < usage_.slots_total)
      << slot << " of " << usage_.slots_total << " slots";
  int8_t& old_tag = tag_of_slot_[static_cast<size_t>(slot.value())];
  GANTRY_CHECK_NE(old_tag, kFree) << slot << " was retagged but is not out: " << usage_.ToString();
  --usage_.used_by_tag[static_cast<size_t>(old_tag)];
  old_tag = static_cast<int8_t>(tag);
  CountOut(tag, usage_);
}

PoolUsage SlotPool::usage() const {
  MutexLock lock(mutex_);
  return usage_;
}

int64_t SlotPool::free_slots() const {
  MutexLock lock(mutex_);
  return usage_.slots_total - usage_.slots_used;
}

}  // namespace gantry
