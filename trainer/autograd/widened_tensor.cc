#include "trainer/autograd/widened_tensor.h"

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "device/activation_arena.h"
#include "gemini/parameter_store.h"

namespace gantry {
namespace {

constexpr int64_t kTaskElements = int64_t{1} << 15;

struct Halves {
  const std::byte* from;
  std::byte* to;
  int64_t count;
};

void Widen(ThreadTeam& team, const Halves& halves) {
  const auto* const from = reinterpret_cast<const Float16*>(halves.from);
  auto* const to = reinterpret_cast<float*>(halves.to);
  team.For({.count = halves.count, .grain = kTaskElements}, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = static_cast<float>(from[i]);
  });
}

void Narrow(ThreadTeam& team, const Halves& halves) {
  const auto* const from = reinterpret_cast<const float*>(halves.from);
  auto* const to = reinterpret_cast<Float16*>(halves.to);
  team.For({.count = halves.count, .grain = kTaskElements}, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = Float16(from[i]);
  });
}

}  // namespace

bool HasHalves(const LeasedTensor& tensor) {
  return (tensor.parameter != nullptr && tensor.dtype == DType::kF16) ||
         (tensor.gradient != nullptr && tensor.gradient_dtype == DType::kF16);
}

absl::StatusOr<WidenedTensor> WidenedTensor::Create(ActivationArena& arena,
                                                    const LeasedTensor& leased) {
  WidenedTensor widened(leased);
  const int64_t bytes = leased.elements * SizeOf(DType::kF32);
  if (leased.parameter != nullptr && leased.dtype == DType::kF16) {
    GANTRY_ASSIGN_OR_RETURN(widened.value_, arena.Allocate(bytes));
    widened.tensor_.parameter = widened.value_.data();
    widened.tensor_.dtype = DType::kF32;
  }
  if (leased.gradient != nullptr && leased.gradient_dtype == DType::kF16) {
    GANTRY_ASSIGN_OR_RETURN(widened.gradient_, arena.Allocate(bytes));
    widened.tensor_.gradient = widened.gradient_.data();
    widened.tensor_.gradient_dtype = DType::kF32;
  }
  return widened;
}

void WidenedTensor::Load(ThreadTeam& team) const {
  if (!value_.empty()) {
    Widen(team, {.from = leased_.parameter, .to = value_.data(), .count = leased_.elements});
  }
  if (!gradient_.empty() && leased_.gradient_content == GradientContent::kPartial) {
    Widen(team, {.from = leased_.gradient, .to = gradient_.data(), .count = leased_.elements});
  }
}

void WidenedTensor::Store(ThreadTeam& team) const {
  if (gradient_.empty()) return;
  Narrow(team, {.from = gradient_.data(), .to = leased_.gradient, .count = leased_.elements});
}

}  // namespace gantry
