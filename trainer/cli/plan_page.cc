#include "trainer/cli/plan_page.h"

#include <cstdint>
#include <iterator>
#include <string>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/hardware.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/report/chunk_names.h"
#include "placement_policy/report/plan_certificate.h"
#include "placement_policy/report/simulated_timeline.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/report/step_timeline.h"
#include "placement_policy/synthetic_trace.h"
#include "trainer/cli/plan_forecast.h"

namespace gantry {
namespace {

std::string Subtitle(const PlanSettings& settings, const Hardware& hardware,
                     const Forecast& forecast) {
  const SyntheticOptions& step = settings.step;
  std::string text =
      StrCat("Simulated by gantry plan: ", Name(settings.shape.family), ", ", settings.shape.layers,
             " layers of width ", settings.shape.width, "; ", hardware.device, "; steps of ",
             step.micro_batches, " x ", step.sequences, " x ", step.sequence_length, " tokens",
             forecast.step.way.recomputation == Recomputation::kFull ? ", recomputing in full" : "",
             step.lora_rank > 0 ? StrCat(", LoRA of rank ", step.lora_rank) : std::string(), ".");
  return text;
}

}  // namespace

absl::StatusOr<StepReport> PlanStepReport(const PlanSettings& settings, const Hardware& hardware,
                                          const Forecast& forecast) {
  const StepForecast& step = forecast.step;
  const int64_t share = settings.zero_stage > 0 ? settings.ranks : 1;
  StepReport report{
      .title = StrCat(settings.model_name, " on ", hardware.name),
      .subtitle = Subtitle(settings, hardware, forecast),
      .certificate = PlanCertificate(step.input.trace, step.input.machine, step.decision),
      .simulated = FiguresOf(step.decision.predicted, step.input.machine)};
  GANTRY_ASSIGN_OR_RETURN(report.simulated_timeline,
                          SimulatedTimeline({.trace = &step.input.trace,
                                             .machine = &step.input.machine,
                                             .decision = &step.decision,
                                             .file_bytes = hardware.file_bytes * share}));
  for (const TierCurve& tier : report.simulated_timeline->tiers) {
    report.tiers.push_back({.name = tier.name,
                            .budget = tier.budget,
                            .simulated_peak = PeakOf(tier, step.input.machine.slot_bytes)});
  }
  // Chunks are cut so that one of 2-byte elements fills a slot.
  report.chunk_names =
      SyntheticChunkNames(settings.shape, step.input.machine.slot_bytes.count() / 2,
                          std::ssize(step.input.trace.chunks));
  report.notes.push_back(
      "The timeline is one step of many that are alike. Figures in the tables are means over "
      "them.");
  if (settings.ranks > 1) {
    report.notes.push_back(StrCat("The ", settings.ranks,
                                  " ranks are simulated as one machine, with the host memory, "
                                  "update rate and files of all of them for what they divide."));
  }
  return report;
}

}  // namespace gantry
