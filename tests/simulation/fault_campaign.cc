// The fault campaign as a program: many random cases, or one again.
//
//   fault_campaign --cases=100000 --seed=7 --workers=2
//   fault_campaign --first=35100 --cases=50 --seed=7    (these of them)
//   fault_campaign --replay=0:7:0:2:3:1:1:28:0
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/strings.h"
#include "tests/simulation/campaign.h"
#include "tests/simulation/fault_case.h"

namespace gantry {
namespace {

struct Arguments {
  int64_t first = 0;
  int64_t cases = 100'000;
  int64_t seed = 1;
  int64_t workers = 2;
  std::string replay;
};

bool ReadNumber(std::string_view text, int64_t least, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= least;
}

bool ReadArgument(std::string_view word, Arguments& arguments) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = word.substr(equals + 1);
  if (name == "--first") return ReadNumber(value, 0, arguments.first);
  if (name == "--cases") return ReadNumber(value, 1, arguments.cases);
  if (name == "--seed") return ReadNumber(value, 1, arguments.seed);
  if (name == "--workers")
    return ReadNumber(value, 1, arguments.workers) && arguments.workers <= 64;
  arguments.replay = value;
  return name == "--replay";
}

int Replay(const std::string& text) {
  const absl::StatusOr<FaultCase> fault_case = ParseCase(text);
  if (!fault_case.ok()) {
    std::cerr << fault_case.status().ToString() << "\n";
    return 2;
  }
  CaseRunner runner;
  const auto counts = runner.Count({.subject = fault_case->subject,
                                    .scenario_seed = fault_case->scenario_seed,
                                    .order_seed = fault_case->order_seed});
  if (!counts.ok()) {
    std::cerr << counts.status().ToString() << "\n";
    return 1;
  }
  std::cout << runner.DescribeRun(*fault_case) << std::endl;
  const CaseReport report = runner.Run(*fault_case);
  std::cout << Name(report.outcome) << ": " << report.message << "\n";
  return report.outcome == CaseOutcome::kWrong ? 1 : 0;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    if (ReadArgument(argv[i], arguments)) continue;
    std::cerr << "usage: fault_campaign [--first=N] [--cases=N] [--seed=N] [--workers=N]\n"
                 "                      [--replay=CASE]\n";
    return 2;
  }
  if (!arguments.replay.empty()) return Replay(arguments.replay);
  std::cout << "fault campaign: " << arguments.cases << " cases from " << arguments.first
            << " on, seed " << arguments.seed << std::endl;
  const auto seed = static_cast<uint64_t>(arguments.seed);
  const CampaignResult result =
      RunCampaign({.first = arguments.first,
                   .cases = arguments.cases,
                   .make = [seed](CaseRunner& runner,
                                  int64_t index) { return RandomCase(runner, seed, index); },
                   .workers = static_cast<int>(arguments.workers),
                   .cases_together = 50,
                   .progress_every = std::max<int64_t>(arguments.cases / 20, 1)});
  for (const std::string& failure : result.failures) std::cout << "failed: " << failure << "\n";
  std::cout << "fault campaign: " << result.ToString() << "\n";
  return result.failures.empty() && result.cases() == arguments.cases ? 0 : 1;
}

}  // namespace
}  // namespace gantry

int main(int argc, char** argv) { return gantry::Main(argc, argv); }
