// Host AdamW against the memory bound, per instruction set and team size.
//
// The bound is an in-place read-modify-write kernel that moves the same 28 bytes an element over
// the same arrays with next to no arithmetic: AdamW never streams, so STREAM's figures are no
// ceiling. Each iteration times both in turn, since the machine's bandwidth drifts; read
// `of_bound`, the ratio, and not the absolute figures. Arrays are 256 MiB in all, several times a
// last-level cache, on 2 MiB pages, touched beforehand, and start at different offsets in their 4
// KiB pages, as arrays in slots do not: that made no difference where it was tried.
//
// Optimizer/... are the other kinds and state formats, timed in turn with AdamW over f32 states:
// read `other_over_this`, how much faster.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benches/offload/adam_bench.cc"
#include <hwy/foreach_target.h>  // includes this file again, once per target
#include <hwy/highway.h>

#include <cstdint>

#include "base/dtype.h"
#include "offload/elements_simd-inl.h"
#include "offload/optimizer.h"

HWY_BEFORE_NAMESPACE();
namespace gantry {
namespace HWY_NAMESPACE {

// Reads the slice's bf16 gradient and writes `parameter`. REQUIRES: end - begin a multiple of 16.
void ReadModifyWrite(const OptimizerSlice& slice, BFloat16* parameter, int64_t begin, int64_t end) {
  const hn::CappedTag<float, 16> d;
  const auto* gradient = static_cast<const BFloat16*>(slice.gradient.data);
  for (int64_t i = begin; i < end; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto g = LoadElements(d, gradient + i);
    const auto p = hn::Add(hn::LoadU(d, slice.master + i), g);
    hn::StoreU(p, d, slice.master + i);
    hn::StoreU(hn::Add(hn::LoadU(d, slice.momentum + i), g), d, slice.momentum + i);
    hn::StoreU(hn::Add(hn::LoadU(d, slice.variance + i), g), d, slice.variance + i);
    StoreElements(d, p, parameter + i);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace gantry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benchmark/benchmark.h"
#include "offload/adafactor.h"
#include "offload/dispatch_targets.h"
#include "offload/eight_bit_states.h"
#include "offload/elements.h"
#include "offload/gradient_norm.h"

namespace gantry {
namespace {

HWY_EXPORT(ReadModifyWrite);

constexpr int64_t kElements = int64_t{16} << 20;
constexpr int64_t kBytesPerElement = 28;
constexpr int64_t kTaskElements = int64_t{32} * 1024;
constexpr OptimizerHyper kHyper = {.kind = OptimizerKind::kAdamW,
                                   .learning_rate = 1e-4,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .epsilon = 1e-8,
                                   .weight_decay = 0.01,
                                   .step = 10};

// Owns the arrays of one slice in one anonymous mapping.
class Arrays {
 public:
  // Errors: kResourceExhausted and others from mmap.
  static absl::StatusOr<std::unique_ptr<Arrays>> Create() {
    void* base =
        mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return ErrnoStatus(errno, "mmap of the benchmark's arrays");
    // Only advice: without huge pages the figures are lower, not wrong.
    static_cast<void>(madvise(base, kMappedBytes, MADV_HUGEPAGE));
    return std::unique_ptr<Arrays>(new Arrays(static_cast<std::byte*>(base)));
  }
  ~Arrays() { munmap(base_, kMappedBytes); }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  // Sets every element, so that each run starts from the same touched memory.
  void Fill() {
    const OptimizerSlice slice = Slice();
    const BFloat16 gradient(0.01f);
    auto* gradients = static_cast<BFloat16*>(Array(3));
    BFloat16* const parameters = Parameters();
    for (int64_t i = 0; i < kElements; ++i) {
      slice.master[i] = 0.5f;
      slice.momentum[i] = 1e-3f;
      slice.variance[i] = 1e-5f;
      gradients[i] = gradient;
      parameters[i] = BFloat16();
    }
  }

  OptimizerSlice Slice() {
    return {.count = kElements,
            .master = Floats(0),
            .momentum = Floats(1),
            .variance = Floats(2),
            .gradient = {.data = Array(3), .dtype = DType::kBF16},
            .parameter = Elements{.data = Parameters(), .dtype = DType::kBF16}};
  }
  BFloat16* Parameters() { return static_cast<BFloat16*>(Array(4)); }

 private:
  static constexpr int64_t kSlotBytes = kElements * 4 + (int64_t{2} << 20);
  static constexpr int64_t kMappedBytes = 5 * kSlotBytes;
  static constexpr int64_t kStaggerBytes = 832;  // a fifth of 4 KiB, in whole cache lines

  explicit Arrays(std::byte* base) : base_(base) {}
  void* Array(int64_t index) { return base_ + index * (kSlotBytes + kStaggerBytes); }
  float* Floats(int64_t index) { return static_cast<float*>(Array(index)); }

  std::byte* base_;
};

// Time and traffic of one of the two kernels.
struct Meter {
  Nanoseconds spent = 0;

  template <typename Work>
  Nanoseconds Time(Work&& work) {
    const MonotonicClock clock;
    const Nanoseconds begin = clock.Now();
    work();
    const Nanoseconds taken = clock.Now() - begin;
    spent += taken;
    return taken;
  }
  // Bytes per nanosecond are GB/s.
  double GigabytesPerSecond(int64_t bytes) const {
    return static_cast<double>(bytes) / static_cast<double>(spent);
  }
};

void BenchAdamW(benchmark::State& state, Arrays& arrays, ThreadTeam& team, int64_t target) {
  const ScopedDispatchTarget scope(target);
  arrays.Fill();
  const OptimizerSlice slice = arrays.Slice();
  Meter adam;
  Meter bound;
  for (auto _ : state) {
    bound.Time([&] {
      team.For({.count = kElements, .grain = kTaskElements}, [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(ReadModifyWrite)(slice, arrays.Parameters(), begin, end);
      });
    });
    const Nanoseconds taken = adam.Time([&] { UpdateSlice(slice, kHyper, 1.0f, &team); });
    state.SetIterationTime(static_cast<double>(taken) * 1e-9);
  }
  const int64_t bytes = state.iterations() * kElements * kBytesPerElement;
  state.counters["adamw_GBps"] = adam.GigabytesPerSecond(bytes);
  state.counters["bound_GBps"] = bound.GigabytesPerSecond(bytes);
  state.counters["of_bound"] = static_cast<double>(bound.spent) / static_cast<double>(adam.spent);
  state.SetItemsProcessed(state.iterations() * kElements);
}

// Reads the 2 bytes of each gradient, once from memory.
void BenchSumSquares(benchmark::State& state, Arrays& arrays, ThreadTeam& team, int64_t target) {
  const ScopedDispatchTarget scope(target);
  arrays.Fill();
  const ConstElements gradient = arrays.Slice().gradient;
  std::vector<double> partials(SegmentCount(kElements));
  for (auto _ : state) {
    GANTRY_CHECK(SegmentSumSquares(gradient, kElements, partials, &team));
    benchmark::DoNotOptimize(partials.data());
  }
  state.SetBytesProcessed(state.iterations() * kElements * 2);
}

// One way to update the arrays' slice.
using Update = std::function<void(Arrays&, ThreadTeam&)>;
struct Variant {
  const char* name;
  Update update;
  Update other;  // timed in turn with it
};

void UpdateKind(Arrays& arrays, ThreadTeam& team, OptimizerKind kind) {
  OptimizerHyper hyper = kHyper;
  hyper.kind = kind;
  OptimizerSlice slice = arrays.Slice();
  if (!StatesOf(kind).variance) slice.variance = nullptr;
  UpdateSlice(slice, hyper, 1.0f, &team);
}

// The low halves lie where the master lay.
void UpdateSplit(Arrays& arrays, ThreadTeam& team) {
  OptimizerSlice slice = arrays.Slice();
  slice.low_half = reinterpret_cast<uint16_t*>(slice.master);
  slice.master = nullptr;
  UpdateSlice(slice, kHyper, 1.0f, &team);
}

// The codes lie where the momentum lay, their scales where the variance lay.
void UpdateCodes(Arrays& arrays, ThreadTeam& team, OptimizerKind kind) {
  const OptimizerSlice slice = arrays.Slice();
  EightBitSlice all = {.begin = 0, .count = kElements, .hyper = kHyper};
  all.hyper.kind = kind;
  UpdateEightBit({.count = kElements,
                  .codes = reinterpret_cast<uint8_t*>(slice.momentum),
                  .scales = reinterpret_cast<EightBitScales*>(slice.variance),
                  .master = slice.master,
                  .gradient = slice.gradient,
                  .parameter = slice.parameter},
                 std::span(&all, 1), 1.0f, &team);
}

// All passes of a step over one square matrix.
void UpdateFactored(Arrays& arrays, ThreadTeam& team) {
  constexpr int64_t kSide = 4096;
  static_assert(kSide * kSide == kElements);
  OptimizerHyper hyper = kHyper;
  hyper.kind = OptimizerKind::kAdafactor;
  OptimizerSlice slice = arrays.Slice();
  slice.momentum = slice.variance = nullptr;
  const int64_t shape[] = {kSide, kSide};
  AdafactorFactors factors(shape, 0);
  factors.ObserveGradient(0, kElements, slice.gradient, &team);
  factors.UpdateFactors(hyper, 1.0f);
  factors.MeasureUpdate(0, kElements, slice.gradient, &team);
  factors.Update(0, slice, &team);
}

std::vector<Variant> Variants() {
  const auto kind = [](OptimizerKind each) {
    return [each](Arrays& arrays, ThreadTeam& team) { UpdateKind(arrays, team, each); };
  };
  const auto codes = [](OptimizerKind each) {
    return [each](Arrays& arrays, ThreadTeam& team) { UpdateCodes(arrays, team, each); };
  };
  const auto adamw = kind(OptimizerKind::kAdamW);
  return {{"adam", kind(OptimizerKind::kAdam), adamw},
          {"sgd", kind(OptimizerKind::kSgd), adamw},
          {"lion", kind(OptimizerKind::kLion), adamw},
          {"adafactor", UpdateFactored, adamw},
          {"adamw_split_master", UpdateSplit, adamw},
          {"adamw_eight_bit", codes(OptimizerKind::kAdamW), adamw},
          {"lion_eight_bit", codes(OptimizerKind::kLion), adamw}};
}

void BenchVariant(benchmark::State& state, Arrays& arrays, ThreadTeam& team,
                  const Variant& variant) {
  Meter update;
  Meter other;
  for (auto _ : state) {
    arrays.Fill();
    other.Time([&] { variant.other(arrays, team); });
    arrays.Fill();
    const Nanoseconds taken = update.Time([&] { variant.update(arrays, team); });
    state.SetIterationTime(static_cast<double>(taken) * 1e-9);
  }
  state.counters["other_over_this"] =
      static_cast<double>(other.spent) / static_cast<double>(update.spent);
  state.SetItemsProcessed(state.iterations() * kElements);
}

absl::Status RunAll() {
  GANTRY_ASSIGN_OR_RETURN(const auto arrays, Arrays::Create());
  std::vector<std::unique_ptr<ThreadTeam>> teams;
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  for (const int threads : std::set<int>{1, processors}) {
    GANTRY_ASSIGN_OR_RETURN(auto team, ThreadTeam::Create({.threads = threads}));
    teams.push_back(std::move(team));
  }
  for (const auto& team : teams) {
    for (const int64_t target : DispatchTargets()) {
      const std::string suffix =
          StrCat("/bf16/", DispatchTargetName(target), "/threads:", team->threads());
      benchmark::RegisterBenchmark(("AdamW" + suffix).c_str(), BenchAdamW, std::ref(*arrays),
                                   std::ref(*team), target)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
      benchmark::RegisterBenchmark(("SegmentSumSquares" + suffix).c_str(), BenchSumSquares,
                                   std::ref(*arrays), std::ref(*team), target)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  const std::vector<Variant> variants = Variants();
  for (const Variant& variant : variants) {
    benchmark::RegisterBenchmark(StrCat("Optimizer/", variant.name).c_str(), BenchVariant,
                                 std::ref(*arrays), std::ref(*teams.back()), std::cref(variant))
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return absl::OkStatus();
}

}  // namespace
}  // namespace gantry

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  const absl::Status status = gantry::RunAll();
  if (status.ok()) return 0;
  std::fprintf(stderr, "adam_bench: %s\n", status.ToString().c_str());
  return 1;
}

#endif  // HWY_ONCE
