#include "chunk/block.h"

#include <array>

#include "base/check.h"

namespace gantry {

std::string_view Name(StateKind kind) {
  constexpr std::array<std::string_view, kStateKindCount> kNames = {
      "parameter", "gradient", "master", "momentum", "variance"};
  const auto index = static_cast<size_t>(kind);
  GANTRY_CHECK_LT(index, kNames.size());
  return kNames[index];
}

}  // namespace gantry
