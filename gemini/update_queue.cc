#include "gemini/update_queue.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/status_macros.h"
#include "gemini/optimizer_step.h"
#include "offload/eight_bit_states.h"
#include "offload/gradient_norm.h"
#include "offload/optimizer.h"

namespace gantry {
namespace {

// Chunks whose blocks are wanted at once: one being updated, one arriving, two under way.
constexpr int64_t kUpdateWindow = 4;

}  // namespace

UpdateQueue::UpdateQueue(Options options)
    : manager_(*options.manager),
      mover_(*options.mover),
      team_(options.team),
      tensors_(std::move(options.tensors)),
      update_tiers_(std::move(options.update_tiers)),
      update_order_(options.order),
      on_updated_(std::move(options.on_updated)),
      eight_bit_(manager_.layout()),
      factors_(manager_.layout()) {
  GANTRY_CHECK(!factors_.active() || update_order_ == UpdateOrder::kExact);
  const ChunkLayout& layout = manager_.layout();
  chunks_.resize(static_cast<size_t>(layout.chunk_count()));
  int64_t segments = 0;
  for (int64_t c = 0; c < layout.chunk_count(); ++c) {
    const ChunkId chunk(c);
    at(chunk).order = c;
    // Chunks that only fill a group up to its data-parallel degree never get a gradient.
    const std::span<const TensorSlice> slices = layout.SlicesIn(chunk);
    if (slices.empty() || !layout.HasBlock({StateKind::kGradient, chunk})) continue;
    ++trainable_chunks_;
    // Only segments that carry elements count, so that the sum does not depend on chunk size.
    const int64_t end = slices.back().chunk_begin + slices.back().elements;
    at(chunk).first_segment = segments;
    at(chunk).segments = SegmentCount(end);
    segments += at(chunk).segments;
  }
  partials_.assign(static_cast<size_t>(segments), 0.0);
}

void UpdateQueue::BeginStep(const OptimizerStep& hyper, int64_t start_clock,
                            std::span<const int64_t> order) {
  // shared: updates of this step may run during the next one.
  current_ = std::make_shared<StepContext>();
  current_->hyper = hyper;
  current_->start_clock = start_clock;
  if (!WaitsForNorm(hyper)) {
    current_->decided = true;
    current_->decision = {.gradient_norm = 0.0,
                          .clip_factor = 1.0,
                          .gradient_factor = static_cast<float>(1.0 / hyper.loss_scale),
                          .skip = false};
  }
  // Gradients that a step which was given up had begun: their bytes will be overwritten or zeroed.
  for (ChunkGradient& gradient : chunks_) {
    if (gradient.phase == GradientPhase::kAccumulating) gradient.step = current_;
  }
  // Orders are fixed while chunks are queued by them.
  if (pending_ > 0) return;
  factors_.Restart();
  for (size_t c = 0; c < order.size(); ++c) chunks_[c].order = order[c];
}

void UpdateQueue::SetUpdateTier(ChunkId chunk, Tier tier) {
  GANTRY_CHECK(at(chunk).phase == GradientPhase::kNone) << chunk;
  update_tiers_[static_cast<size_t>(chunk.value())] = tier;
}

void UpdateQueue::OnGradientBegun(ChunkId chunk) {
  ChunkGradient& gradient = at(chunk);
  GANTRY_CHECK(gradient.phase == GradientPhase::kNone) << chunk;
  gradient.phase = GradientPhase::kAccumulating;
  gradient.step = current_;
}

void UpdateQueue::OnGradientComplete(ChunkId chunk) {
  ChunkGradient& gradient = at(chunk);
  GANTRY_CHECK(gradient.phase == GradientPhase::kAccumulating) << chunk;
  gradient.phase = GradientPhase::kComplete;
  ++pending_;
  to_norm_.emplace(gradient.order, chunk.value());
}

StepDecision UpdateQueue::DecideStep() {
  GANTRY_CHECK(NormsComplete());
  const StepDecision decision = Decide(current_->hyper, partials_);
  if (current_->decided) {
    // Updates did not wait: only the norm is news.
    current_->decision.gradient_norm = decision.gradient_norm;
  } else {
    current_->decision = decision;
    current_->decided = true;
  }
  return current_->decision;
}

absl::Status UpdateQueue::SkipStep() {
  GANTRY_CHECK(current_->decided && current_->decision.skip);
  for (auto it = to_update_.begin(); it != to_update_.end();) {
    const ChunkId chunk(it->second);
    const StepContext& step = *at(chunk).step;
    const BlockIndex block = Index(StateKind::kGradient, chunk);
    if (!step.decided || !step.decision.skip || !mover_.Idle(block)) {
      ++it;
      continue;
    }
    it = to_update_.erase(it);
    GANTRY_RETURN_IF_ERROR(mover_.Forget(block));
    EndGradient(chunk);
  }
  return absl::OkStatus();
}

void UpdateQueue::EndGradient(ChunkId chunk) {
  manager_.state(chunk).Transition(ChunkState::kHold, -1);
  at(chunk).phase = GradientPhase::kNone;
  at(chunk).step = nullptr;
  --pending_;
  factors_.OnGradientEnded(chunk);
}

std::vector<BlockIndex> UpdateQueue::WrittenBlocks(ChunkId chunk) const {
  std::vector<BlockIndex> blocks;
  for (const StateKind kind : {StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance}) {
    if (manager_.layout().HasBlock({kind, chunk})) blocks.push_back(Index(kind, chunk));
  }
  // Where the parameter is the master or a part of it, it must be there with its content.
  if (manager_.layout().UpdateReadsParameter(chunk)) {
    blocks.push_back(Index(StateKind::kParameter, chunk));
  }
  return blocks;
}

// All blocks of a chunk: the gradient is used up, the others are written.
std::vector<BlockIndex> UpdateQueue::UpdatedBlocks(ChunkId chunk) const {
  std::vector<BlockIndex> blocks = WrittenBlocks(chunk);
  blocks.push_back(Index(StateKind::kGradient, chunk));
  if (!manager_.layout().UpdateReadsParameter(chunk)) {
    blocks.push_back(Index(StateKind::kParameter, chunk));
  }
  return blocks;
}

std::vector<Want> UpdateQueue::Wants() {
  std::vector<Want> wants;
  int64_t count = 0;
  for (const auto& [order, c] : to_norm_) {
    if (count++ == kUpdateWindow) break;
    wants.push_back(WantGradient(ChunkId(c)));
  }
  for (const auto& [order, c] : to_restore_) {
    for (const BlockIndex block : RestoredBlocks(ChunkId(c))) {
      const bool parameter = manager_.IdOf(block).kind == StateKind::kParameter;
      wants.push_back({.block = block,
                       .tier = update_tier(ChunkId(c)),
                       .source = parameter ? Want::Source::kNothing : Want::Source::kContent});
    }
  }
  RefreshWindow();
  for (const ChunkId chunk : window_) AddWants(chunk, wants);
  AddFactorWants(kUpdateWindow, wants);
  return wants;
}

void UpdateQueue::RefreshWindow() {
  std::erase_if(window_, [&](ChunkId chunk) {
    return !to_update_.contains({at(chunk).order, chunk.value()}) || !MayUpdate(chunk);
  });
  for (const auto& [order, c] : to_update_) {
    if (std::ssize(window_) >= kUpdateWindow) return;
    const ChunkId chunk(c);
    if (std::ranges::find(window_, chunk) != window_.end() || !MayUpdate(chunk)) continue;
    window_.push_back(chunk);
  }
}

void UpdateQueue::AddWants(ChunkId chunk, std::vector<Want>& wants) const {
  const Tier tier = update_tier(chunk);
  bool arrived = true;
  const auto want = [&](BlockIndex block) {
    wants.push_back({.block = block, .tier = tier});
    arrived = arrived && manager_.copy(block, tier).phase == CopyPhase::kValid;
  };
  want(Index(StateKind::kGradient, chunk));
  for (const BlockIndex block : WrittenBlocks(chunk)) want(block);
  // A parameter beside its master is overwritten whole: it needs room, not content. Its room is
  // taken last, since until the update it holds undefined bytes.
  if (arrived && !manager_.layout().UpdateReadsParameter(chunk)) {
    wants.push_back({.block = Index(StateKind::kParameter, chunk),
                     .tier = tier,
                     .source = Want::Source::kNothing});
  }
}

bool UpdateQueue::OnlyUndecidedLeft() const {
  if (running_ > 0 || !to_norm_.empty() || !to_restore_.empty() || FactorsWait()) return false;
  for (const auto& [order, c] : to_update_) {
    if (MayUpdate(ChunkId(c))) return false;
  }
  for (const auto& [order, c] : tentative_) {
    if (at(ChunkId(c)).step->decided) return false;
  }
  return true;
}

bool UpdateQueue::GradientArrived(ChunkId chunk) const {
  return manager_.copy(Index(StateKind::kGradient, chunk), update_tier(chunk)).phase ==
         CopyPhase::kValid;
}

bool UpdateQueue::UpdateReady(ChunkId chunk) const {
  return MayUpdate(chunk) && AllWritable(UpdatedBlocks(chunk), update_tier(chunk));
}

bool UpdateQueue::AllWritable(std::span<const BlockIndex> blocks, Tier tier) const {
  for (const BlockIndex block : blocks) {
    if (!mover_.Writable(block, tier)) return false;
  }
  return true;
}

bool UpdateQueue::HasRunnableJob() const {
  for (const auto& [order, c] : to_norm_) {
    if (GradientArrived(ChunkId(c))) return true;
  }
  for (const auto& [order, c] : to_restore_) {
    if (RestoreReady(ChunkId(c))) return true;
  }
  for (const auto& [order, c] : to_update_) {
    if (UpdateReady(ChunkId(c))) return true;
  }
  return FindFactorPass().has_value();
}

absl::StatusOr<std::optional<UpdateQueue::Job>> UpdateQueue::TakeJob() {
  for (auto it = to_norm_.begin(); it != to_norm_.end(); ++it) {
    const ChunkId chunk(it->second);
    if (!GradientArrived(chunk)) continue;
    to_norm_.erase(it);
    return BeginPass(Job::Kind::kNorm, chunk);
  }
  for (auto it = to_restore_.begin(); it != to_restore_.end(); ++it) {
    const ChunkId chunk(it->second);
    if (!RestoreReady(chunk)) continue;
    to_restore_.erase(it);
    return BeginRestore(chunk);
  }
  for (auto it = to_update_.begin(); it != to_update_.end(); ++it) {
    const ChunkId chunk(it->second);
    if (!UpdateReady(chunk)) continue;
    to_update_.erase(it);
    return BeginUpdate(chunk);
  }
  if (const std::optional<FactorPass> pass = FindFactorPass(); pass.has_value()) {
    to_update_.erase({at(pass->chunk).order, pass->chunk.value()});
    return BeginPass(pass->kind, pass->chunk);
  }
  return std::nullopt;
}

// A job that reads the gradient and leaves it.
UpdateQueue::Job UpdateQueue::BeginPass(Job::Kind kind, ChunkId chunk) {
  ChunkGradient& gradient = at(chunk);
  gradient.phase = kind == Job::Kind::kNorm ? GradientPhase::kNorming : GradientPhase::kFactoring;
  BeginRead(Index(StateKind::kGradient, chunk), update_tier(chunk));
  ++running_;
  Job job{.kind = kind, .chunk = chunk, .step = gradient.step};
  if (kind == Job::Kind::kMeasure) job.gradient_factor = gradient.step->decision.gradient_factor;
  return job;
}

void UpdateQueue::EndPass(const Job& job) {
  --manager_.copy(Index(StateKind::kGradient, job.chunk), update_tier(job.chunk)).pins;
  if (job.kind == Job::Kind::kNorm) ++job.step->chunks_normed;
  if (job.kind == Job::Kind::kObserve) factors_.OnObserved(job.chunk);
  if (job.kind == Job::Kind::kMeasure) factors_.OnMeasured(job.chunk);
  at(job.chunk).phase = GradientPhase::kNormed;
  to_update_.emplace(at(job.chunk).order, job.chunk.value());
}

void UpdateQueue::BeginRead(BlockIndex block, Tier tier) {
  mover_.CancelEviction(block, tier);
  ++manager_.copy(block, tier).pins;
}

absl::StatusOr<UpdateQueue::Job> UpdateQueue::BeginUpdate(ChunkId chunk) {
  ChunkGradient& gradient = at(chunk);
  gradient.phase = GradientPhase::kUpdating;
  const Tier tier = update_tier(chunk);
  const bool tentative = !gradient.step->decided;
  const std::vector<BlockIndex> states = WrittenBlocks(chunk);
  for (const BlockIndex block : UpdatedBlocks(chunk)) {
    const bool aside = tentative && std::find(states.begin(), states.end(), block) != states.end();
    GANTRY_RETURN_IF_ERROR(aside ? mover_.BeginTentativeWrite(block, tier)
                                 : mover_.BeginWrite(block, tier));
  }
  if (manager_.layout().HasEightBitMoments(chunk)) {
    if (tentative) eight_bit_.SetScalesAside(chunk);
    eight_bit_.Settle(chunk, Codes(chunk));
  }
  ++running_;
  if (tentative) {
    ++tentative_running_;
    ++speculated_;
  }
  return Job{.kind = Job::Kind::kUpdate,
             .chunk = chunk,
             .tentative = tentative,
             .gradient_factor = tentative ? AssumedFactor(gradient.step->hyper)
                                          : gradient.step->decision.gradient_factor,
             .step = gradient.step};
}

void UpdateQueue::RunJob(const Job& job) {
  switch (job.kind) {
    case Job::Kind::kNorm:
      return RunNorm(job.chunk);
    case Job::Kind::kObserve:
    case Job::Kind::kMeasure:
      return RunFactorPass(job);
    case Job::Kind::kUpdate:
      return RunUpdate(job);
    case Job::Kind::kRestore:
      return RunRestore(job.chunk);
  }
}

void UpdateQueue::RunNorm(ChunkId chunk) {
  const ChunkGradient& gradient = at(chunk);
  const BlockId id{StateKind::kGradient, chunk};
  const DType dtype = manager_.layout().dtype_of(id);
  const int64_t per_part = manager_.layout().slot_bytes().count() / SizeOf(dtype);
  const std::span<double> partials = std::span(partials_).subspan(
      static_cast<size_t>(gradient.first_segment), static_cast<size_t>(gradient.segments));
  const int64_t segments_per_part = per_part / kNormSegmentElements;
  for (int64_t first = 0, part = 0; first < gradient.segments; first += segments_per_part, ++part) {
    const int64_t segments = std::min(segments_per_part, gradient.segments - first);
    const auto* data =
        manager_.Part(manager_.IndexOf(id), update_tier(chunk), static_cast<int>(part));
    // Padding is zero, so whole segments may be summed. A non-finite partial tells by itself.
    static_cast<void>(SegmentSumSquares(
        {data, dtype}, segments * kNormSegmentElements,
        partials.subspan(static_cast<size_t>(first), static_cast<size_t>(segments)), team_));
  }
}

void UpdateQueue::RunUpdate(const Job& job) {
  if (manager_.layout().HasEightBitMoments(job.chunk)) {
    UpdateEightBitChunk(job);
    return;
  }
  for (const TensorSlice& slice : manager_.layout().SlicesIn(job.chunk)) UpdateSlice(job, slice);
}

std::byte* UpdateQueue::Address(BlockId block, int64_t element) const {
  const int64_t bytes = element * manager_.layout().element_bytes(block);
  const int64_t slot = manager_.layout().slot_bytes().count();
  const auto part = static_cast<int>(bytes / slot);
  return manager_.Part(manager_.IndexOf(block), update_tier(block.chunk), part) + bytes % slot;
}

uint8_t* UpdateQueue::Codes(ChunkId chunk) const {
  return reinterpret_cast<uint8_t*>(Address({StateKind::kMomentum, chunk}, 0));
}

// Half a chunk at a time, as 4-byte blocks lie in two slots; blocks of codes do not cross its
// middle.
void UpdateQueue::UpdateEightBitChunk(const Job& job) {
  const int64_t half = manager_.layout().chunk_elements() / 2;
  for (const int64_t first : {int64_t{0}, half}) {
    std::vector<EightBitSlice> slices;
    for (const TensorSlice& slice : manager_.layout().SlicesIn(job.chunk)) {
      const int64_t begin = std::max(slice.chunk_begin, first);
      const int64_t end = std::min(slice.chunk_begin + slice.elements, first + half);
      if (begin >= end) continue;
      slices.push_back({.begin = begin - first,
                        .count = end - begin,
                        .hyper = HyperOf(job.step->hyper, OptionsOf(slice.tensor))});
    }
    if (slices.empty()) continue;
    const OptimizerSlice arrays = SliceAt(job.chunk, first, half);
    const EightBitRange range{
        .count = half,
        .codes = Codes(job.chunk) + first * kCodeBytesPerElement,
        .scales = eight_bit_.scales(job.chunk) + first / kQuantizationBlockElements,
        .master = arrays.master,
        .gradient = arrays.gradient,
        .parameter = arrays.parameter};
    UpdateEightBit(range, slices, job.gradient_factor, team_);
  }
}

void UpdateQueue::UpdateSlice(const Job& job, const TensorSlice& slice) {
  const OptimizerHyper hyper = HyperOf(job.step->hyper, OptionsOf(slice.tensor));
  ForEachPart(slice, [&](int64_t begin, int64_t count) {
    const OptimizerSlice arrays = SliceAt(job.chunk, begin, count);
    if (factors_.active()) {
      const int64_t in_tensor = slice.tensor_begin + begin - slice.chunk_begin;
      factors_.of(slice.tensor).Update(in_tensor, arrays, team_);
    } else {
      gantry::UpdateSlice(arrays, hyper, job.gradient_factor, team_);
    }
  });
}

// The chunk's elements [begin, begin + count), which lie on one side of its middle. Moments in
// eight bits are none of the arrays.
OptimizerSlice UpdateQueue::SliceAt(ChunkId chunk, int64_t begin, int64_t count) const {
  const ChunkLayout& layout = manager_.layout();
  const auto floats = [&](StateKind kind) -> float* {
    const BlockId block{kind, chunk};
    if (!layout.HasBlock(block) || layout.element_bytes(block) != sizeof(float)) return nullptr;
    return reinterpret_cast<float*>(Address(block, begin));
  };
  OptimizerSlice slice{.count = count,
                       .momentum = floats(StateKind::kMomentum),
                       .variance = floats(StateKind::kVariance),
                       .gradient = {Address({StateKind::kGradient, chunk}, begin),
                                    layout.dtype_of({StateKind::kGradient, chunk})},
                       .parameter = std::nullopt};
  if (!layout.HasBlock({StateKind::kMaster, chunk})) {
    slice.master = floats(StateKind::kParameter);
    return slice;
  }
  slice.parameter = Elements{Address({StateKind::kParameter, chunk}, begin),
                             layout.dtype_of({StateKind::kParameter, chunk})};
  slice.master = floats(StateKind::kMaster);
  if (layout.SplitsMaster(chunk)) {
    slice.low_half = reinterpret_cast<uint16_t*>(Address({StateKind::kMaster, chunk}, begin));
  }
  return slice;
}

absl::Status UpdateQueue::FinishJob(const Job& job) {
  ChunkGradient& gradient = at(job.chunk);
  const Tier tier = update_tier(job.chunk);
  const BlockIndex gradient_block = Index(StateKind::kGradient, job.chunk);
  --running_;
  const bool updates = job.kind == Job::Kind::kUpdate;
  if (!updates && job.kind != Job::Kind::kRestore) {
    EndPass(job);
    return absl::OkStatus();
  }
  if (!updates) {
    EndRestore(job.chunk);
    EndGradient(job.chunk);
    return on_updated_(job.chunk, job.step->start_clock);
  }
  for (const BlockIndex block : UpdatedBlocks(job.chunk)) mover_.EndWrite(block, tier);
  if (job.tentative) {
    gradient.phase = GradientPhase::kTentative;
    --tentative_running_;
    tentative_.emplace(gradient.order, job.chunk.value());
    return on_updated_(job.chunk, job.step->start_clock);
  }
  GANTRY_RETURN_IF_ERROR(mover_.Forget(gradient_block));
  EndGradient(job.chunk);
  return on_updated_(job.chunk, job.step->start_clock);
}

}  // namespace gantry
