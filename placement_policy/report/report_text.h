// Figures in words.
#ifndef GANTRY_PLACEMENT_POLICY_REPORT_REPORT_TEXT_H_
#define GANTRY_PLACEMENT_POLICY_REPORT_REPORT_TEXT_H_

#include <string>

#include "base/clock.h"

namespace gantry {

// "1.23 s", "45.6 ms", "7.89 µs", "12 ns"; three digits.
std::string TimeText(Nanoseconds time);
// With so many digits behind the point.
std::string Fixed(double value, int digits);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_REPORT_REPORT_TEXT_H_
