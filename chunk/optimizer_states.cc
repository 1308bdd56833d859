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

absl::Status CheckSupported(OptimizerKind kind, StateFormat format) {
  if (kind == OptimizerKind::kAdafactor) {
    return InvalidArgument("the optimizer ", kind,
                           " keeps factors per tensor, which no chunk holds");
  }
  if (format == StateFormat::kSplitMaster && !StatesOf(kind).variance) {
    return InvalidArgument("states in the format ", format,
                           " need a variance, which the optimizer ", kind, " does not have");
  }
  return absl::OkStatus();
}

}  // namespace gantry
