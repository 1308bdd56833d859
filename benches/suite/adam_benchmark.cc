#include "benches/suite/adam_benchmark.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/huge_memory.h"
#include "benches/suite/interleave.h"
#include "benches/suite/machine.h"
#include "benches/suite/read_modify_write.h"
#include "benches/suite/report.h"
#include "chunk/optimizer_states.h"
#include "offload/dispatch_targets.h"
#include "offload/eight_bit_states.h"
#include "offload/elements.h"
#include "offload/optimizer.h"

namespace gantry {
namespace {

constexpr int kArrays = 5;
// Arrays that begin at equal offsets in their 4 KiB pages would alias in the store buffer: a fifth
// of a page between them, in whole cache lines.
constexpr int64_t kStaggerBytes = 832;
constexpr int64_t kElementBytes = 16;  // of all five arrays
constexpr int64_t kGranule = int64_t{64} * 1024;

OptimizerHyper HyperOf(OptimizerKind kind) {
  return {.kind = kind, .learning_rate = 1e-4, .weight_decay = 0.01, .step = 10};
}

// Master, momentum, variance, gradient and parameter of one slice, in one mapping.
class StateArrays {
 public:
  static absl::StatusOr<StateArrays> Create(int64_t elements) {
    const int64_t bytes = elements * kElementBytes + kArrays * kStaggerBytes;
    GANTRY_ASSIGN_OR_RETURN(HugeMemory memory, HugeMemory::Create(Bytes(bytes)));
    return StateArrays(elements, std::move(memory));
  }

  int64_t elements() const { return elements_; }
  float* floats(int index) const { return reinterpret_cast<float*>(memory_.data() + At(index)); }
  // An array of floats that a format keeps in 16 bits instead.
  uint16_t* as_halves(int index) const { return reinterpret_cast<uint16_t*>(floats(index)); }
  uint16_t* gradient() const { return Halves(3); }
  uint16_t* parameter() const { return Halves(4); }
  ConstElements gradient_elements() const { return {.data = gradient(), .dtype = DType::kBF16}; }
  Elements parameter_elements() const { return {.data = parameter(), .dtype = DType::kBF16}; }

  // Values as in the middle of a run: none is subnormal, which would slow the arithmetic down.
  void Fill() {
    std::fill_n(floats(0), elements_, 0.5f);
    std::fill_n(floats(1), elements_, 1e-3f);
    std::fill_n(floats(2), elements_, 1e-5f);
    std::fill_n(gradient(), elements_, BFloat16(0.01f).bits);
    std::fill_n(parameter(), elements_, BFloat16(0.5f).bits);
  }

 private:
  StateArrays(int64_t elements, HugeMemory memory)
      : elements_(elements), memory_(std::move(memory)) {}
  // Three arrays of 4 bytes an element, then two of 2.
  int64_t At(int index) const {
    return index * kStaggerBytes + elements_ * (index <= 3 ? 4 * index : 14);
  }
  uint16_t* Halves(int index) const {
    return reinterpret_cast<uint16_t*>(memory_.data() + At(index));
  }

  int64_t elements_;
  HugeMemory memory_;
};

// One optimizer: its update, and a pass over the same memory.
struct Case {
  std::string name;
  std::function<void(ThreadTeam*)> update;
  UpdateArrays arrays;
};

// A kind with f32 states.
Case WholeCase(std::string_view name, OptimizerKind kind, const StateArrays& state) {
  const bool variance = StatesOf(kind).variance;
  const OptimizerSlice slice = {.count = state.elements(),
                                .master = state.floats(0),
                                .momentum = state.floats(1),
                                .variance = variance ? state.floats(2) : nullptr,
                                .gradient = state.gradient_elements(),
                                .parameter = state.parameter_elements()};
  return {.name = std::string(name),
          .update = [slice, hyper = HyperOf(kind)](
                        ThreadTeam* team) { UpdateSlice(slice, hyper, 1.0f, team); },
          .arrays = {.count = state.elements(),
                     .floats = {slice.master, slice.momentum, slice.variance},
                     .gradient = state.gradient(),
                     .parameter = state.parameter()}};
}

Case SplitMasterCase(const StateArrays& state) {
  const OptimizerSlice slice = {.count = state.elements(),
                                .low_half = state.as_halves(0),
                                .momentum = state.floats(1),
                                .variance = state.floats(2),
                                .gradient = state.gradient_elements(),
                                .parameter = state.parameter_elements()};
  return {.name = "optimizer_split_master",
          .update = [slice, hyper = HyperOf(OptimizerKind::kAdamW)](
                        ThreadTeam* team) { UpdateSlice(slice, hyper, 1.0f, team); },
          .arrays = {.count = state.elements(),
                     .floats = {slice.momentum, slice.variance},
                     .halves = {state.parameter(), slice.low_half},
                     .gradient = state.gradient()}};
}

// `scales` outlives the case: one for each block.
Case EightBitCase(const StateArrays& state, std::span<EightBitScales> scales) {
  const EightBitRange range = {.count = state.elements(),
                               .codes = reinterpret_cast<uint8_t*>(state.as_halves(1)),
                               .scales = scales.data(),
                               .master = state.floats(0),
                               .gradient = state.gradient_elements(),
                               .parameter = state.parameter_elements()};
  const EightBitSlice slice = {
      .begin = 0, .count = state.elements(), .hyper = HyperOf(OptimizerKind::kAdamW)};
  return {.name = "optimizer_eight_bit",
          .update = [range,
                     slice](ThreadTeam* team) { UpdateEightBit(range, {&slice, 1}, 1.0f, team); },
          .arrays = {.count = state.elements(),
                     .floats = {range.master},
                     .halves = {state.as_halves(1)},
                     .gradient = state.gradient(),
                     .parameter = state.parameter()}};
}

struct Duel {
  std::string name;
  const Case* optimizer;
  ThreadTeam* team;
  std::optional<int64_t> target;  // instruction set of the update; nothing: the best
};

absl::StatusOr<BenchRow> Compare(const Duel& duel, StateArrays& state,
                                 const BenchOptions& options) {
  options.Tell(StrCat("adam: ", duel.name));
  state.Fill();
  const UpdateArrays& arrays = duel.optimizer->arrays;
  // Parameters per second. Rows are many, and a pass is short.
  const auto speed = [&](const std::function<void()>& work) -> absl::StatusOr<double> {
    const Nanoseconds begin = options.clock->Now();
    Nanoseconds now = begin;
    int64_t count = 0;
    do {
      work();
      ++count;
      now = options.clock->Now();
    } while (now - begin < options.turn_time() / 8);
    return static_cast<double>(count * arrays.count) * 1e9 / static_cast<double>(now - begin);
  };
  const std::vector<Measurement> sides = {
      [&]() -> absl::StatusOr<double> {
        state.Fill();
        std::optional<ScopedDispatchTarget> scope;
        if (duel.target.has_value()) scope.emplace(*duel.target);
        return speed([&] { duel.optimizer->update(duel.team); });
      },
      [&]() -> absl::StatusOr<double> {
        state.Fill();
        return speed([&] { ReadModifyWrite(arrays, duel.team); });
      }};
  GANTRY_ASSIGN_OR_RETURN(const Samples samples,
                          Interleave(sides, {.rounds = options.rounds(), .stop = options.stop}));
  BenchRow row = ComparisonRow({.name = duel.name,
                                .unit = "parameters/s",
                                .better = Better::kHigher,
                                .values = samples[0],
                                .bounds = samples[1]});
  row.note = StrCat(arrays.bytes_per_element(), " bytes a parameter, ", duel.team->threads(),
                    duel.team->threads() == 1 ? " thread" : " threads", ", ",
                    *row.value * static_cast<double>(arrays.bytes_per_element()) * 1e-9, " GB/s");
  return row;
}

}  // namespace

absl::StatusOr<BenchReport> RunAdamBenchmark(const BenchOptions& options) {
  GANTRY_RETURN_IF_ERROR(ValidateBenchOptions(options));
  const Bytes size = options.SizeOr(256_MiB, 128_MiB);
  const int64_t elements = RoundUp(size.count() / kElementBytes, kGranule);
  BenchReport report{.bench = "adam", .machine = DescribeMachine(), .rows = {}};
  report.machine.Add("adam_parameters", elements);
  GANTRY_ASSIGN_OR_RETURN(StateArrays state, StateArrays::Create(elements));
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<ThreadTeam> one,
                          ThreadTeam::Create({.threads = 1}));
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<ThreadTeam> all,
                          ThreadTeam::Create({.threads = options.compute_threads()}));
  std::vector<EightBitScales> scales(static_cast<size_t>(elements / kQuantizationBlockElements),
                                     {.momentum = 0, .variance = 0});
  const std::vector<Case> cases = {WholeCase("adam", OptimizerKind::kAdamW, state),
                                   WholeCase("optimizer_adam", OptimizerKind::kAdam, state),
                                   WholeCase("optimizer_sgd", OptimizerKind::kSgd, state),
                                   WholeCase("optimizer_lion", OptimizerKind::kLion, state),
                                   SplitMasterCase(state),
                                   EightBitCase(state, scales)};
  std::vector<Duel> duels;
  for (const Case& item : cases) {
    duels.push_back({item.name, &item, all.get(), std::nullopt});
    if (options.effort == BenchEffort::kQuick && item.name != "adam") continue;
    duels.push_back({item.name + "_1_thread", &item, one.get(), std::nullopt});
  }
  const std::vector<int64_t> targets = DispatchTargets();
  for (size_t i = 1; i < targets.size(); ++i) {  // the first is what the rows above used
    if (options.effort == BenchEffort::kQuick) break;
    const std::string name = StrCat("adam_", DispatchTargetName(targets[i]), "_1_thread");
    duels.push_back({name, cases.data(), one.get(), targets[i]});
  }
  if (!targets.empty()) report.machine.Add("instruction_set", DispatchTargetName(targets[0]));
  for (const Duel& duel : duels) {
    GANTRY_ASSIGN_OR_RETURN(BenchRow row, Compare(duel, state, options));
    report.rows.push_back(std::move(row));
  }
  return report;
}

}  // namespace gantry
