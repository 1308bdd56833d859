#include "benches/suite/benchmarks.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benches/suite/accumulation_benchmark.h"
#include "benches/suite/adam_benchmark.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/io_benchmark.h"
#include "benches/suite/lease_benchmark.h"
#include "benches/suite/load_benchmark.h"
#include "benches/suite/machine.h"
#include "benches/suite/plan_benchmark.h"
#include "benches/suite/report.h"
#include "benches/suite/sweep_benchmark.h"
#include "benches/suite/train_benchmark.h"
#include "benches/suite/transfer_benchmark.h"

namespace gantry {
namespace {

constexpr std::string_view kAll = "all";

struct Entry {
  std::string_view name;
  absl::StatusOr<BenchReport> (*run)(const BenchOptions&);
};
// The sweep comes first: it looks at the memory of the process, which the others leave in pieces.
constexpr std::array<Entry, 8> kEntries = {
    Entry{"sweep", RunSweepBenchmark},       Entry{"io", RunIoBenchmark},
    Entry{"transfer", RunTransferBenchmark}, Entry{"adam", RunAdamBenchmark},
    Entry{"lease", RunLeaseBenchmark},       Entry{"accumulation", RunAccumulationBenchmark},
    Entry{"plan", RunPlanBenchmark},         Entry{"load", RunLoadBenchmark}};

// Not among all: it takes minutes.
constexpr std::string_view kTrain = "train";

absl::StatusOr<BenchReport> RunAll(const BenchOptions& options) {
  BenchReport all{.bench = std::string(kAll), .machine = {}, .rows = {}};
  for (const Entry& entry : kEntries) {
    GANTRY_ASSIGN_OR_RETURN(BenchReport report, entry.run(options));
    for (auto& [key, fact] : report.machine.facts) {
      if (all.machine.Find(key).empty()) all.machine.Add(key, std::move(fact));
    }
    std::move(report.rows.begin(), report.rows.end(), std::back_inserter(all.rows));
  }
  return all;
}

}  // namespace

std::vector<std::string> BenchmarkNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  names.emplace_back(kTrain);
  names.emplace_back(kAll);
  return names;
}

absl::StatusOr<BenchReport> RunBenchmark(std::string_view name, const BenchOptions& options) {
  if (name == kAll) return RunAll(options);
  if (name == kTrain) return RunTrainBenchmark(options);
  const auto* const entry = std::find_if(kEntries.begin(), kEntries.end(),
                                         [name](const Entry& e) { return e.name == name; });
  if (entry != kEntries.end()) return entry->run(options);
  return UnknownBenchmark(name);
}

absl::Status UnknownBenchmark(std::string_view name) {
  const std::vector<std::string> names = BenchmarkNames();
  const std::string nearest = NearestName(name, names.data(), names.size());
  return InvalidArgument("unknown benchmark '", name, "'",
                         nearest.empty() ? StrCat("; `gantry help bench` lists all")
                                         : StrCat(", did you mean '", nearest, "'?"));
}

}  // namespace gantry
