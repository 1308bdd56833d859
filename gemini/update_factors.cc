// Adafactor's passes over the gradients between their norm and their update: the part of
// UpdateQueue that feeds the factors.
#include <optional>
#include <utility>
#include <vector>

#include "gemini/optimizer_step.h"
#include "gemini/update_queue.h"
#include "offload/adafactor.h"

namespace gantry {

// Whether a pass may read the gradient of a chunk that waits for its update.
bool UpdateQueue::MayFactor(ChunkId chunk, Job::Kind pass) const {
  if (at(chunk).phase != GradientPhase::kNormed) return false;
  const StepContext& step = *at(chunk).step;
  if (step.decided && step.decision.skip) return false;
  if (pass == Job::Kind::kObserve) return factors_.MayObserve(chunk);
  return step.decided && factors_.MayMeasure(chunk);
}

// The pass that ends a chunk's waiting sooner goes first.
std::optional<UpdateQueue::FactorPass> UpdateQueue::FindFactorPass() const {
  if (!factors_.active()) return std::nullopt;
  for (const auto& [order, c] : to_update_) {
    const ChunkId chunk(c);
    if (MayFactor(chunk, Job::Kind::kMeasure) && GradientArrived(chunk)) {
      return FactorPass{.kind = Job::Kind::kMeasure, .chunk = chunk};
    }
  }
  for (const ChunkId chunk : factors_.NextToObserve(1)) {
    if (MayFactor(chunk, Job::Kind::kObserve) && GradientArrived(chunk)) {
      return FactorPass{.kind = Job::Kind::kObserve, .chunk = chunk};
    }
  }
  return std::nullopt;
}

// Whether a pass could go on if its gradient were there.
bool UpdateQueue::FactorsWait() const {
  if (!factors_.active()) return false;
  for (const ChunkId chunk : factors_.NextToObserve(1)) {
    if (MayFactor(chunk, Job::Kind::kObserve)) return true;
  }
  for (const auto& [order, c] : to_update_) {
    if (MayFactor(ChunkId(c), Job::Kind::kMeasure)) return true;
  }
  return false;
}

void UpdateQueue::AddFactorWants(int64_t window, std::vector<Want>& wants) const {
  if (!factors_.active()) return;
  int64_t measured = 0;
  for (const auto& [order, c] : to_update_) {
    if (measured == window) break;
    if (!MayFactor(ChunkId(c), Job::Kind::kMeasure)) continue;
    ++measured;
    wants.push_back(WantGradient(ChunkId(c)));
  }
  for (const ChunkId chunk : factors_.NextToObserve(window)) {
    const ChunkGradient& gradient = at(chunk);
    if (gradient.phase != GradientPhase::kNormed) continue;
    if (gradient.step->decided && gradient.step->decision.skip) continue;
    wants.push_back(WantGradient(chunk));
  }
}

void UpdateQueue::RunFactorPass(const Job& job) {
  const BlockId id{StateKind::kGradient, job.chunk};
  const DType dtype = manager_.layout().dtype_of(id);
  for (const TensorSlice& slice : manager_.layout().SlicesIn(job.chunk)) {
    AdafactorFactors& factors = factors_.of(slice.tensor);
    if (job.kind == Job::Kind::kMeasure && factors.observed()) {
      factors.UpdateFactors(HyperOf(job.step->hyper, OptionsOf(slice.tensor)), job.gradient_factor);
    }
    ForEachPart(slice, [&](int64_t begin, int64_t count) {
      const int64_t in_tensor = slice.tensor_begin + begin - slice.chunk_begin;
      const ConstElements gradient{Address(id, begin), dtype};
      if (job.kind == Job::Kind::kObserve) {
        factors.ObserveGradient(in_tensor, count, gradient, team_);
      } else {
        factors.MeasureUpdate(in_tensor, count, gradient, team_);
      }
    });
  }
}

}  // namespace gantry
