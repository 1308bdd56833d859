// What layers save between their passes: kept, made again, or in blocks that move.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/engine_impl.h"

namespace gantry {
namespace {

bool Wants(const StepRecord& record, LayerSaving saving) {
  return std::ranges::any_of(
      record.layers, [saving](const StepRecord::Layer& layer) { return layer.wanted == saving; });
}

}  // namespace

// Whether there is a tier for activations to move to.
bool EngineImpl::CanMoveActivations() const {
  return options_.device->topology() == DeviceTopology::kDiscrete ||
         !options_.spill_directories.empty();
}

void EngineImpl::KeepDryRecord(const std::string& key, StepRecord record) {
  const bool again = std::ranges::any_of(record.layers, [](const StepRecord::Layer& layer) {
    return layer.wanted == LayerSaving::kPlanned && layer.saving == LayerSaving::kRecompute;
  });
  DryRecords& records = dry_records_[key];
  if (again) {
    records.again = std::move(record);
  } else {
    records = {.kept = std::move(record), .again = std::nullopt};
  }
}

// How planned layers may be saved before there is a plan, the best first.
std::vector<LayerSaving> EngineImpl::LayerCandidates() const {
  bool any = false;
  bool again = true;
  for (const auto& [key, records] : dry_records_) {
    if (!Wants(records.kept, LayerSaving::kPlanned)) continue;
    any = true;
    again = again && records.again.has_value();
  }
  std::vector<LayerSaving> candidates = {LayerSaving::kKeep};
  if (any && again) candidates.push_back(LayerSaving::kRecompute);
  if (any && CanMoveActivations()) candidates.push_back(LayerSaving::kMove);
  return candidates;
}

absl::StatusOr<CompiledPlan> EngineImpl::CompilePlan(const DryRecords& records,
                                                     LayerSaving planned) const {
  CompiledPlan plan;
  plan.records = &records;
  plan.saved = LayOutSaved(records.kept, layout_->slot_bytes());
  if (!CanMoveActivations()) {
    for (SavedMemory::Pass& pass : plan.saved.passes) pass.blocks = 0;
    plan.saved.blocks = 0;
  }
  plan.step = CompileStep(records.kept, *layout_);
  IndexPlan(plan);
  std::vector<LayerSaving> savings;
  for (const StepRecord::Layer& layer : records.kept.layers) {
    savings.push_back(layer.wanted == LayerSaving::kPlanned ? planned : layer.wanted);
  }
  GANTRY_RETURN_IF_ERROR(Recompile(plan, std::move(savings)));
  return plan;
}

// Makes the plan's step one whose layers are saved so; what cannot move is kept.
absl::Status EngineImpl::Recompile(CompiledPlan& plan, std::vector<LayerSaving> savings) const {
  if (savings == plan.savings) return absl::OkStatus();
  CompiledStep& kept = plan.kept == nullptr ? plan.step : *plan.kept;
  bool other = false;
  for (size_t p = 0; p < savings.size(); ++p) {
    const bool movable = plan.saved.passes[p].blocks > 0 && kept.layers[p].used >= 0;
    if (savings[p] == LayerSaving::kMove && !movable) savings[p] = LayerSaving::kKeep;
    other = other || savings[p] != plan.records->kept.layers[p].saving;
  }
  if (other) {
    const DryRecords& records = *plan.records;
    GANTRY_ASSIGN_OR_RETURN(
        const StepRecord record,
        ComposeRecord(records.kept, records.again.has_value() ? &*records.again : nullptr,
                      plan.saved, savings));
    CompiledStep step = CompileStep(record, *layout_, &plan.saved);
    for (size_t m = 0; m < step.origins.size(); ++m) {
      step.trace.moments[m].compute =
          kept.trace.moments[static_cast<size_t>(step.origins[m])].compute;
    }
    if (plan.kept == nullptr) plan.kept = std::make_unique<CompiledStep>(std::move(plan.step));
    plan.step = std::move(step);
  } else if (plan.kept != nullptr) {
    plan.step = std::move(*plan.kept);
    plan.kept = nullptr;
  }
  plan.savings = std::move(savings);
  IndexPlan(plan);
  return absl::OkStatus();
}

LayerSaving EngineImpl::DecideSaving(int64_t pass, int32_t layer, LayerSaving wanted) {
  if (wanted == LayerSaving::kKeep || wanted == LayerSaving::kRecompute) return wanted;
  if (dry_run()) {
    return wanted == LayerSaving::kPlanned ? step_->dry_layers : LayerSaving::kKeep;
  }
  MutexLock lock(mutex_);
  // A step that nobody rehearsed keeps what it saves.
  if (plan_ == nullptr || plan_->records == nullptr) return LayerSaving::kKeep;
  const std::vector<StepRecord::Layer>& known = plan_->records->kept.layers;
  const auto p = static_cast<size_t>(pass);
  if (p >= known.size() || known[p].layer != layer || known[p].wanted != wanted) {
    return LayerSaving::kKeep;
  }
  return plan_->savings[p];
}

absl::StatusOr<LayerPass> EngineImpl::BeginLayer(int32_t layer, LayerSaving wanted) {
  GANTRY_CHECK(step_.has_value() && step_->optimizer.has_value() && micro_batch_ > 0)
      << "layer " << layer << " outside a training step";
  GANTRY_CHECK(layers_.open < 0 && layers_.backward < 0)
      << "a pass of layer " << layer << " within another";
  const auto number = static_cast<int64_t>(layers_.passes.size());
  const LayerPass pass{.number = number, .saving = DecideSaving(number, layer, wanted)};
  tracer_.OnBeginLayer({.layer = layer, .wanted = wanted, .saving = pass.saving});
  layers_.passes.push_back({.saving = pass.saving});
  layers_.open = number;
  if (pass.saving != LayerSaving::kMove) return pass;
  Overlap();
  MutexLock lock(mutex_);
  GANTRY_RETURN_IF_ERROR(failure_);
  CollectLayerNeeds(number, Need::Mode::kCreate);
  // Of an earlier layer in the same place transfers may still be reading.
  const auto in_use = [this](const Need& need) {
    return std::ranges::find(used_up_, need.block) != used_up_.end();
  };
  while (std::ranges::any_of(layer_needs_, in_use)) {
    GANTRY_RETURN_IF_ERROR(WaitForChange("activations on their way", "a layer"));
  }
  GANTRY_RETURN_IF_ERROR(Pin(Tier::kDevice, layer_needs_, "what a layer saves"));
  LayerPasses::Pass& open = layers_.passes.back();
  open.pinned = true;
  open.in_blocks = true;
  for (const Need& need : layer_needs_) mover_->SetKey(need.block, NextKey(need.block));
  return pass;
}

absl::Status EngineImpl::EndLayer(const LayerPass& pass, const std::byte* output) {
  GANTRY_CHECK_EQ(layers_.open, pass.number)
      << "the end of a layer's pass that is not the open one";
  layers_.open = -1;
  if (tracer_.recording()) {
    tracer_.OnEndLayer(pass.number, output == nullptr ? -1 : arena_->OffsetOf(output));
  }
  if (pass.saving != LayerSaving::kMove) return absl::OkStatus();
  MutexLock lock(mutex_);
  GANTRY_RETURN_IF_ERROR(failure_);
  CollectLayerNeeds(pass.number, Need::Mode::kCreate);
  layers_.passes[static_cast<size_t>(pass.number)].pinned = false;
  Unpin(Tier::kDevice, layer_needs_);
  for (const Need& need : layer_needs_) mover_->SetKey(need.block, NextKey(need.block));
  if (settled_) return absl::OkStatus();
  NoteLeaving(layer_needs_);
  DropLeaving(layer_needs_);
  return failure_;
}

absl::Status EngineImpl::BeginLayerBackward(const LayerPass& pass) {
  GANTRY_CHECK(layers_.open < 0 && layers_.backward < 0)
      << "the backward pass of layer pass " << pass.number << " within another";
  layers_.backward = pass.number;
  tracer_.OnBeginLayerBackward(pass.number);
  if (pass.saving != LayerSaving::kMove) return absl::OkStatus();
  Overlap();
  MutexLock lock(mutex_);
  GANTRY_RETURN_IF_ERROR(failure_);
  CollectLayerNeeds(pass.number, Need::Mode::kRead);
  GANTRY_RETURN_IF_ERROR(Pin(Tier::kDevice, layer_needs_, "what a layer saved"));
  layers_.passes[static_cast<size_t>(pass.number)].pinned = true;
  return absl::OkStatus();
}

absl::Status EngineImpl::EndLayerBackward(const LayerPass& pass) {
  GANTRY_CHECK_EQ(layers_.backward, pass.number) << "the end of another backward pass";
  layers_.backward = -1;
  tracer_.OnEndLayerBackward(pass.number);
  if (pass.saving != LayerSaving::kMove) return absl::OkStatus();
  GANTRY_CHECK_EQ(layers_.passes[static_cast<size_t>(pass.number)].live, 0)
      << "what a layer saved outlives its backward pass";
  MutexLock lock(mutex_);
  GANTRY_RETURN_IF_ERROR(failure_);
  CollectLayerNeeds(pass.number, Need::Mode::kRead);
  layers_.passes[static_cast<size_t>(pass.number)].pinned = false;
  Unpin(Tier::kDevice, layer_needs_);
  return ForgetSaved(pass.number);
}

void EngineImpl::CollectLayerNeeds(int64_t pass, Need::Mode mode) {
  const SavedMemory::Pass& saved = layers_.saved->passes[static_cast<size_t>(pass)];
  layer_needs_.clear();
  for (int64_t i = 0; i < saved.blocks; ++i) {
    layer_needs_.push_back({.block = manager_->ActivationBlock(saved.first_block + i),
                            .mode = mode,
                            .chunk = kNoChunk});
  }
}

// The pass's blocks have no content any more: at once, or when the last transfer has read them.
absl::Status EngineImpl::ForgetSaved(int64_t pass) {
  layers_.passes[static_cast<size_t>(pass)].in_blocks = false;
  for (const Need& need : layer_needs_) {
    mover_->SetResidency(need.block, Tier::kDevice, Residency::kFloating);
    leaves_[static_cast<size_t>(need.block)] = 0;
    used_up_.push_back(need.block);
  }
  if (!settled_) RefreshLookAhead();  // without them
  return ForgetUsedUp();
}

absl::Status EngineImpl::ForgetUsedUp() {
  absl::Status status;
  std::erase_if(used_up_, [&](BlockIndex block) GANTRY_NO_THREAD_SAFETY_ANALYSIS {
    if (!status.ok() || !mover_->Idle(block)) return false;
    status = mover_->Forget(block);
    return status.ok();
  });
  if (!status.ok()) Fail(status);
  return status;
}

// Counts the step's passes. Of a step that was given up, nothing that its layers saved is needed.
void EngineImpl::EndLayers() {
  if (!layers_.passes.empty()) layer_counts_ = {};
  for (const LayerPasses::Pass& pass : layers_.passes) {
    layer_counts_.kept += pass.saving == LayerSaving::kKeep;
    layer_counts_.recomputed += pass.saving == LayerSaving::kRecompute;
    layer_counts_.moved += pass.saving == LayerSaving::kMove;
  }
  for (int64_t p = 0; p < std::ssize(layers_.passes); ++p) {
    LayerPasses::Pass& pass = layers_.passes[static_cast<size_t>(p)];
    if (!pass.in_blocks) continue;
    CollectLayerNeeds(p, p == layers_.open ? Need::Mode::kCreate : Need::Mode::kRead);
    if (std::exchange(pass.pinned, false)) Unpin(Tier::kDevice, layer_needs_);
    static_cast<void>(ForgetSaved(p));  // the next call returns an error
  }
  layers_ = {};
}

std::byte* EngineImpl::OnAllocate(int64_t bytes) {
  if (layers_.open < 0) return nullptr;
  LayerPasses::Pass& pass = layers_.passes[static_cast<size_t>(layers_.open)];
  if (!pass.in_blocks) return nullptr;
  const SavedMemory::Pass& saved = layers_.saved->passes[static_cast<size_t>(layers_.open)];
  const size_t allocation = pass.allocations++;
  // A layer that allocates otherwise than in its dry run keeps that in the arena.
  if (allocation >= saved.allocations.size() || saved.allocations[allocation].bytes != bytes ||
      saved.allocations[allocation].offset < 0) {
    return nullptr;
  }
  ++pass.live;
  return manager_->Home(manager_->ActivationBlock(saved.first_block)) +
         saved.allocations[allocation].offset;
}

void EngineImpl::OnFree(const std::byte* data, int64_t bytes) {
  static_cast<void>(bytes);
  const int64_t block =
      (data - manager_->Home(manager_->ActivationBlock(0))) / layout_->slot_bytes().count();
  const auto is_in = [&](int64_t pass) {
    const SavedMemory::Pass& saved = layers_.saved->passes[static_cast<size_t>(pass)];
    return layers_.passes[static_cast<size_t>(pass)].in_blocks && block >= saved.first_block &&
           block < saved.first_block + saved.blocks;
  };
  int64_t pass = layers_.backward;
  if (pass < 0 || !is_in(pass)) {
    pass = std::ssize(layers_.passes) - 1;
    while (pass >= 0 && !is_in(pass)) --pass;
  }
  if (pass >= 0) --layers_.passes[static_cast<size_t>(pass)].live;  // else of a step given up
}

}  // namespace gantry
