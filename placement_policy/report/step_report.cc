#include "placement_policy/report/step_report.h"

#include <cstddef>
#include <string>
#include <vector>

#include "base/strings.h"
#include "placement_policy/machine.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/simulator.h"

namespace gantry {
namespace {

constexpr size_t kNamesShown = 2;
constexpr size_t kNameBytesMax = 72;

// Cut between characters of UTF-8.
std::string Cut(const std::string& name) {
  if (name.size() <= kNameBytesMax) return name;
  size_t size = kNameBytesMax;
  while (size > 0 && (static_cast<unsigned char>(name[size]) & 0xc0) == 0x80) --size;
  return name.substr(0, size) + "…";
}

}  // namespace

StepFigures FiguresOf(const SimulatedStep& step, const Machine& machine) {
  StepFigures figures{
      .elapsed = step.elapsed, .compute = step.compute, .stalls = step.stalls, .steps = step.steps};
  for (size_t lane = 0; lane < figures.lanes.size(); ++lane) {
    const SimulatedLane shown = ShownLane(machine, static_cast<SimulatedLane>(lane));
    LaneFigures& sum = figures.lanes[static_cast<size_t>(shown)];
    sum.busy += step.busy[lane];
    sum.bytes += step.bytes[lane];
    sum.moves += step.moves[lane];
  }
  return figures;
}

std::string JoinTensorNames(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kNamesShown; ++i) {
    text += StrCat(i == 0 ? "" : ", ", Cut(names[i]));
  }
  if (names.size() > kNamesShown) text += StrCat(" and ", names.size() - kNamesShown, " more");
  return text;
}

}  // namespace gantry
