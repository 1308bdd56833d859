// Updates before the decision, and what becomes of them: the speculative part of UpdateQueue.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "gemini/update_queue.h"

namespace gantry {

// Whether the chunk's update may run by now: decided, or tentatively.
bool UpdateQueue::MayUpdate(ChunkId chunk) const {
  const StepContext& step = *at(chunk).step;
  if (step.decided) return !step.decision.skip && factors_.MayUpdate(chunk);
  if (update_order_ != UpdateOrder::kSpeculative || !FiniteNorm(chunk)) return false;
  if (eight_bit_.HasWritten(chunk)) return false;  // the file's version lacks it
  for (const BlockIndex block : WrittenBlocks(chunk)) {
    if (!manager_.CanSetAside(block)) return false;
  }
  return true;
}

// A chunk whose own gradient skips the step or turns it to NaN is no candidate.
bool UpdateQueue::FiniteNorm(ChunkId chunk) const {
  const ChunkGradient& gradient = at(chunk);
  const auto partials = std::span(partials_).subspan(static_cast<size_t>(gradient.first_segment),
                                                     static_cast<size_t>(gradient.segments));
  return std::all_of(partials.begin(), partials.end(), [](double p) { return std::isfinite(p); });
}

absl::Status UpdateQueue::SettleTentative() {
  for (auto it = tentative_.begin(); it != tentative_.end();) {
    const ChunkId chunk(it->second);
    bool idle = at(chunk).step->decided && mover_.Idle(Index(StateKind::kGradient, chunk));
    for (const BlockIndex block : WrittenBlocks(chunk)) idle = idle && mover_.Idle(block);
    if (!idle) {
      ++it;
      continue;
    }
    it = tentative_.erase(it);
    GANTRY_RETURN_IF_ERROR(SettleChunk(chunk));
  }
  return absl::OkStatus();
}

absl::Status UpdateQueue::SettleChunk(ChunkId chunk) {
  ChunkGradient& gradient = at(chunk);
  const StepDecision& decision = gradient.step->decision;
  const BlockIndex gradient_block = Index(StateKind::kGradient, chunk);
  if (!decision.skip && decision.gradient_factor == AssumedFactor(gradient.step->hyper)) {
    for (const BlockIndex block : WrittenBlocks(chunk)) mover_.KeepVersion(block);
    eight_bit_.KeepScales(chunk);
    const int64_t start_clock = gradient.step->start_clock;
    GANTRY_RETURN_IF_ERROR(mover_.Forget(gradient_block));
    EndGradient(chunk);
    return on_updated_(chunk, start_clock);
  }
  ++taken_back_;
  for (const BlockIndex block : WrittenBlocks(chunk)) {
    GANTRY_RETURN_IF_ERROR(mover_.TakeBack(block));
  }
  eight_bit_.TakeScalesBack(chunk);
  if (!decision.skip) {
    gradient.phase = GradientPhase::kNormed;
    to_update_.emplace(gradient.order, chunk.value());
    return absl::OkStatus();
  }
  GANTRY_RETURN_IF_ERROR(mover_.Forget(gradient_block));
  if (RestoredBlocks(chunk).empty()) {
    EndGradient(chunk);
    return absl::OkStatus();
  }
  gradient.phase = GradientPhase::kRestoring;
  to_restore_.emplace(gradient.order, chunk.value());
  return absl::OkStatus();
}

// The master and the 16-bit parameter that was rounded from another one; nothing where the
// parameter itself was set aside.
std::vector<BlockIndex> UpdateQueue::RestoredBlocks(ChunkId chunk) const {
  if (manager_.layout().UpdateReadsParameter(chunk)) return {};
  return {Index(StateKind::kMaster, chunk), Index(StateKind::kParameter, chunk)};
}

bool UpdateQueue::RestoreReady(ChunkId chunk) const {
  const Tier tier = update_tier(chunk);
  return manager_.copy(Index(StateKind::kMaster, chunk), tier).phase == CopyPhase::kValid &&
         mover_.Writable(Index(StateKind::kParameter, chunk), tier);
}

// The master is only read: what the files hold of it stays good.
absl::StatusOr<UpdateQueue::Job> UpdateQueue::BeginRestore(ChunkId chunk) {
  const Tier tier = update_tier(chunk);
  GANTRY_RETURN_IF_ERROR(mover_.BeginWrite(Index(StateKind::kParameter, chunk), tier));
  BeginRead(Index(StateKind::kMaster, chunk), tier);
  ++running_;
  return Job{.kind = Job::Kind::kRestore, .chunk = chunk, .step = at(chunk).step};
}

void UpdateQueue::EndRestore(ChunkId chunk) {
  const Tier tier = update_tier(chunk);
  --manager_.copy(Index(StateKind::kMaster, chunk), tier).pins;
  mover_.EndWrite(Index(StateKind::kParameter, chunk), tier);
}

void UpdateQueue::RunRestore(ChunkId chunk) {
  const ChunkLayout& layout = manager_.layout();
  const Tier tier = update_tier(chunk);
  const BlockIndex master = Index(StateKind::kMaster, chunk);
  const BlockIndex parameter = Index(StateKind::kParameter, chunk);
  const DType dtype = layout.dtype_of({StateKind::kParameter, chunk});
  const int64_t half = layout.chunk_elements() / 2;
  for (int part = 0; part < 2; ++part) {
    const std::byte* from = manager_.Part(master, tier, part);
    std::byte* to = manager_.Part(parameter, tier, 0);
    for (int64_t i = 0; i < half; ++i) {
      StoreElement(dtype, to, part * half + i, LoadElement(DType::kF32, from, i));
    }
  }
}

}  // namespace gantry
