#include "placement_policy/report/report_text.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>

#include "base/clock.h"

namespace gantry {

std::string Fixed(double value, int digits) {
  std::array<char, 400> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, value);
  return {buffer.data(), static_cast<size_t>(length)};
}

std::string TimeText(Nanoseconds time) {
  const auto value = static_cast<double>(time);
  const double size = std::abs(value);
  const auto digits = [](double scaled) {
    return Fixed(scaled, std::abs(scaled) >= 99.95 ? 0 : std::abs(scaled) >= 9.995 ? 1 : 2);
  };
  if (size >= 1e9) return digits(value * 1e-9) + " s";
  if (size >= 1e6) return digits(value * 1e-6) + " ms";
  if (size >= 1e3) return digits(value * 1e-3) + " µs";
  return Fixed(value, 0) + " ns";
}

}  // namespace gantry
