#include "tests/simulation/scenario.h"

#include <string_view>

#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/fault_plan.h"
#include "chunk/chunk_layout.h"
#include "gemini/layer_activations.h"
#include "tests/simulation/simulated_run.h"

namespace gantry {
namespace {

// Draws in sequence from the numbers of one seed.
class Dice {
 public:
  Dice(uint64_t seed, uint64_t stream) : random_({.seed = seed, .stream = stream}) {}
  int64_t Below(int64_t bound) { return random_.Below(bound, index_++); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  double Uniform() { return random_.Uniform(index_++); }

 private:
  Random random_;
  uint64_t index_ = 0;
};

void DrawModel(Dice& dice, Scenario& scenario) {
  scenario.model.layers = 2 + dice.Below(4);
  scenario.model.layer_elements = 9'001 + dice.Below(30'000);
  scenario.model.tied_elements = 5'011 + dice.Below(30'000);
  scenario.model.frozen_elements = 1'003 + dice.Below(40'000);
  scenario.model.activation_bytes = 1'000 + dice.Below(70'000);
  scenario.model.dtype = dice.OneIn(4) ? DType::kF32 : DType::kBF16;
  scenario.model.micro_batches = dice.OneIn(3) ? 2 : 1;
  scenario.gradient_dtype =
      scenario.model.micro_batches > 1 || dice.OneIn(3) ? DType::kF32 : DType::kBF16;
  OptimizerStep& hyper = scenario.hyper;
  hyper.weight_decay = dice.OneIn(2) ? 0.01 : 0.0;
  // Off, always clipping, never clipping.
  constexpr double kNorms[] = {0.0, 0.5, 0.5, 1e6};
  hyper.max_gradient_norm = kNorms[dice.Below(std::size(kNorms))];
  if (dice.OneIn(3)) hyper.loss_scale = 8.0;
  // Without clipping, updates then run in the backward pass.
  if (dice.OneIn(2)) hyper.non_finite = OptimizerStep::NonFinite::kUpdateAnyway;
  scenario.steps = 2 + dice.Below(2);
  const bool skips = hyper.non_finite == OptimizerStep::NonFinite::kSkipStep && dice.OneIn(4);
  if (skips) scenario.model.infinite_step = 1 + dice.Below(scenario.steps);
  scenario.evaluates = dice.OneIn(4);
  scenario.checkpoint_after = 1;
  scenario.checkpoint_on_disk = dice.OneIn(2);
  scenario.spill_directories = 1 + static_cast<int>(dice.Below(2));
}

void DrawMachine(Dice& dice, Scenario& scenario) {
  constexpr std::string_view kPolicies[] = {"auto", "auto", "lru", "cpu", "static", "device"};
  scenario.topology = dice.OneIn(4) ? DeviceTopology::kUnified : DeviceTopology::kDiscrete;
  scenario.files = !dice.OneIn(5);
  scenario.policy = kPolicies[dice.Below(std::size(kPolicies))];
  scenario.fractions = {.offload_parameters = dice.Uniform(),
                        .offload_optimizer = dice.Uniform(),
                        .spill_optimizer = scenario.files ? dice.Uniform() : 0.0};
  if (scenario.files && dice.OneIn(3)) scenario.update_order = UpdateOrder::kSpeculative;
  scenario.look_ahead = dice.Below(10);
  scenario.chunk_elements = kChunkGranularityElements * (1 + dice.Below(2));
  scenario.lane_bandwidth = int64_t{100'000'000} << dice.Below(8);
  scenario.lane_latency = dice.Below(50'000);
  scenario.drive_bandwidth = int64_t{100'000'000} << dice.Below(7);
  scenario.drive_latency = dice.Below(200'000);
  scenario.queue_depth = 1 + static_cast<int>(dice.Below(16));
}

void DrawOptimizer(Dice& dice, Scenario& scenario) {
  constexpr OptimizerKind kKinds[] = {OptimizerKind::kAdamW, OptimizerKind::kAdamW,
                                      OptimizerKind::kAdam, OptimizerKind::kSgd,
                                      OptimizerKind::kLion};
  constexpr StateFormat kFormats[] = {StateFormat::kF32, StateFormat::kSplitMaster,
                                      StateFormat::kEightBit};
  scenario.hyper.kind = kKinds[dice.Below(std::size(kKinds))];
  scenario.state_format = kFormats[dice.Below(std::size(kFormats))];
  if (!CheckSupported(scenario.hyper.kind, scenario.state_format).ok()) {
    scenario.state_format = StateFormat::kF32;
  }
}

// What came later draws from numbers of its own, so that the other seeds keep their meaning.
void DrawAdafactor(Dice& dice, Scenario& scenario) {
  if (scenario.update_order == UpdateOrder::kSpeculative || !dice.OneIn(4)) return;
  scenario.hyper.kind = OptimizerKind::kAdafactor;
  scenario.state_format = StateFormat::kF32;
  scenario.model.rows = dice.OneIn(4) ? 0 : 1 + dice.Below(dice.OneIn(2) ? 3 : 300);
}

// Layers that keep, compute again or move what they save, or leave that to the engine.
void DrawLayers(Dice& dice, Scenario& scenario) {
  constexpr LayerSaving kSavings[] = {LayerSaving::kKeep, LayerSaving::kRecompute,
                                      LayerSaving::kMove, LayerSaving::kPlanned};
  if (dice.OneIn(2)) return;
  for (int64_t i = 1 + dice.Below(4); i > 0; --i) {
    scenario.model.savings.push_back(kSavings[dice.Below(std::size(kSavings))]);
  }
}

// Plans need two steps that are timed, and one that changed for good needs four more. What may
// change is what the least budgets allow in any case.
void DrawPlanned(Dice& dice, Scenario& scenario) {
  scenario.policy = "planned";
  scenario.steps = 4 + dice.Below(5);
  if (dice.OneIn(2)) return;
  scenario.varies_from = 2 + dice.Below(scenario.steps - 2);
  const int64_t layer = dice.Below(scenario.model.layers);
  if (dice.OneIn(2)) {
    scenario.variation.skipped_layer = layer;
  } else {
    scenario.variation.constant_layer = layer;
  }
}

// By trial: the least budget of one tier depends on the other, and on the policy.
absl::Status FindLeastBudgets(Scenario& scenario) {
  constexpr int64_t kAmple = 300;
  scenario.host_slots = kAmple;
  const auto find = [&](int64_t& slots) -> absl::Status {
    absl::Status tried;
    for (slots = 2; slots <= kAmple; ++slots) {
      tried = TrySeal(scenario);
      if (!absl::IsResourceExhausted(tried)) return tried;
    }
    return tried;
  };
  GANTRY_RETURN_IF_ERROR(find(scenario.device_slots));
  return scenario.topology == DeviceTopology::kDiscrete ? find(scenario.host_slots)
                                                        : absl::OkStatus();
}

}  // namespace

absl::StatusOr<Scenario> DrawScenario(uint64_t seed) {
  const bool planned = (seed & kPlannedSeeds) != 0;
  const uint64_t base = seed & ~kPlannedSeeds;
  Dice dice(base, 17);
  Scenario scenario;
  scenario.seed = seed;
  DrawModel(dice, scenario);
  DrawMachine(dice, scenario);
  DrawOptimizer(dice, scenario);
  Dice more(base, 18);
  DrawAdafactor(more, scenario);
  Dice plans(base, 19);
  if (planned) DrawPlanned(plans, scenario);
  Dice layers(base, 21);
  DrawLayers(layers, scenario);
  GANTRY_RETURN_IF_ERROR(FindLeastBudgets(scenario));
  const int64_t slack = dice.OneIn(3) ? 0 : dice.OneIn(4) ? 60 : 12;
  scenario.device_slots += dice.Below(slack + 1);
  scenario.host_slots += dice.Below(slack + 1);
  // A plan wants buffers beside what must be in host memory; now and then there are none.
  if (planned && !plans.OneIn(4)) scenario.host_slots += 40;
  return scenario;
}

absl::StatusOr<Scenario> WithLeastRoom(Scenario scenario) {
  scenario.topology = DeviceTopology::kDiscrete;
  scenario.files = false;
  scenario.policy = "static";
  scenario.fractions.spill_optimizer = 0.0;
  scenario.update_order = UpdateOrder::kExact;
  GANTRY_RETURN_IF_ERROR(FindLeastBudgets(scenario));
  return scenario;
}

namespace {

// As letters: kept, run again, moved, planned.
std::string SavingsOf(const ToyModel::Options& model) {
  std::string text = model.savings.empty() ? "" : ", saved as ";
  for (const LayerSaving saving : model.savings) text += "krmp"[static_cast<int>(saving)];
  return text;
}

}  // namespace

std::string Describe(const Scenario& s) {
  return StrCat("seed ", s.seed, ": ",
                s.topology == DeviceTopology::kUnified ? "unified" : "discrete", ", device ",
                s.device_slots, " and host ", s.host_slots, " slots, ",
                s.files ? StrCat("files in ", s.spill_directories, " directories") : "no files",
                ", policy ", s.policy, ", look-ahead ", s.look_ahead, ", chunk ", s.chunk_elements,
                ", ", Name(s.hyper.kind), " with ", Name(s.state_format), " states, ",
                s.model.layers, " layers of ", s.model.layer_elements, ", ", Name(s.model.dtype),
                " with ", Name(s.gradient_dtype), " gradients, ", s.model.micro_batches,
                " micro-batches", SavingsOf(s.model), ", clip ", s.hyper.max_gradient_norm, ", ",
                s.steps, " steps", s.varies_from > 0 ? StrCat(", others from ", s.varies_from) : "",
                ", checkpoint ", s.checkpoint_on_disk ? "on disk" : "in memory");
}

}  // namespace gantry
