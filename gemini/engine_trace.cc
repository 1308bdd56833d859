#include "gemini/engine_trace.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/strings.h"
#include "base/tier.h"

namespace gantry {

void EngineTrace::BeginOperator(std::string_view name, Phase phase, ChunkManager& manager) {
  if (sink_ == nullptr) return;
  name_ = name;
  track_ = phase == Phase::kBackward ? "compute backward" : "compute forward";
  begin_ = clock_->Now();
  Memory(manager);
}

void EngineTrace::EndOperator(Nanoseconds end) {
  if (sink_ == nullptr || begin_ < 0) return;
  sink_->Slice(track_, name_, std::min(begin_, end), end);
  begin_ = -1;
}

void EngineTrace::Stall(std::string_view cause, Nanoseconds begin, Nanoseconds end) {
  if (sink_ != nullptr) sink_->Slice("stall", cause, begin, end);
}

void EngineTrace::Memory(ChunkManager& manager) {
  if (sink_ == nullptr) return;
  const Nanoseconds now = clock_->Now();
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    if (tier == Tier::kHost && manager.unified()) continue;
    const PoolUsage usage = manager.pool(tier).usage();
    for (int tag = 0; tag < kMemoryTagCount; ++tag) {
      const auto t = static_cast<size_t>(tag);
      const int64_t slots = usage.used_by_tag[t];
      if (std::exchange(slots_[static_cast<size_t>(tier)][t], slots) == slots) continue;
      sink_->Counter(StrCat(Name(tier), " ", Name(static_cast<MemoryTag>(tag)), " bytes"), now,
                     slots * usage.slot_bytes.count());
    }
  }
}

}  // namespace gantry
