#include "chunk/optimizer_states.h"

#include <array>
#include <cstddef>
#include <string>

#include "base/check.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr std::array<std::string_view, 5> kKindNames = {"adamw", "adam", "sgd", "lion",
                                                        "adafactor"};
constexpr std::array<std::string_view, 3> kFormatNames = {"f32", "split_master", "eight_bit"};

template <typename Enum, size_t n>
absl::StatusOr<Enum> Parse(std::string_view what, std::string_view name,
                           const std::array<std::string_view, n>& names) {
  std::string known;
  for (size_t i = 0; i < n; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
    known += StrCat(i == 0 ? "" : ", ", names[i]);
  }
  return InvalidArgument("'", name, "' is no ", what, "; known are ", known);
}

}  // namespace

std::string_view Name(OptimizerKind kind) {
  const auto index = static_cast<size_t>(kind);
  GANTRY_CHECK_LT(index, kKindNames.size());
  return kKindNames[index];
}

absl::StatusOr<OptimizerKind> ParseOptimizerKind(std::string_view name) {
  return Parse<OptimizerKind>("optimizer", name, kKindNames);
}

std::string_view Name(StateFormat format) {
  const auto index = static_cast<size_t>(format);
  GANTRY_CHECK_LT(index, kFormatNames.size());
  return kFormatNames[index];
}

absl::StatusOr<StateFormat> ParseStateFormat(std::string_view name) {
  return Parse<StateFormat>("format of optimizer states", name, kFormatNames);
}

OptimizerStates StatesOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kAdamW:
    case OptimizerKind::kAdam:
      return {.momentum = true, .variance = true};
    case OptimizerKind::kSgd:
    case OptimizerKind::kLion:
      return {.momentum = true, .variance = false};
    case OptimizerKind::kAdafactor:
      break;
  }
  return {.momentum = false, .variance = false};
}

FactorCounts FactorsOf(std::span<const int64_t> shape) {
  if (shape.size() < 2) return {.rows = 0, .columns = 0};
  int64_t rows = 1;
  for (const int64_t extent : shape.first(shape.size() - 1)) rows *= extent;
  return {.rows = rows, .columns = rows / shape[shape.size() - 2] * shape.back()};
}

int64_t StateElements(StateKind state, std::span<const int64_t> shape, OptimizerKind optimizer) {
  if (state == StateKind::kVariance && FactorsVariance(optimizer) && shape.size() >= 2) {
    const FactorCounts counts = FactorsOf(shape);
    return counts.rows + counts.columns;
  }
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

absl::Status CheckSupported(OptimizerKind kind, StateFormat format) {
  if (FactorsVariance(kind) && format == StateFormat::kEightBit) {
    return InvalidArgument("states in the format ", format, " are moments, and the optimizer ",
                           kind, " has none: it keeps factors in f32");
  }
  if (format == StateFormat::kSplitMaster && !StatesOf(kind).variance) {
    return InvalidArgument("states in the format ", format,
                           " need a variance, which the optimizer ", kind, " does not have");
  }
  return absl::OkStatus();
}

}  // namespace gantry
