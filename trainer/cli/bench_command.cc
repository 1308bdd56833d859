#include "trainer/cli/bench_command.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benches/policies/policy_benchmark.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/benchmarks.h"
#include "benches/suite/report.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"
#include "trainer/cli/console.h"
#include "trainer/cli/interrupt.h"
#include "trainer/cli/policies_command.h"

namespace gantry {
namespace {

const std::array<std::string, 11> kOptionNames = {
    "dir",      "only", "fio",   "pairs",   "seconds",
    "size",     "json", "quick", "threads", "model-parameters",
    "drive-tbw"};

struct BenchRequest {
  std::string name;
  BenchOptions options;
  OutputFormat format = OutputFormat::kText;
};

// The number behind --name. Errors: kInvalidArgument.
template <typename Number>
absl::Status TakeNumber(Arguments& arguments, std::string_view name, Number& number) {
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> text, TakeValue(arguments, name));
  if (!text.has_value()) return absl::OkStatus();
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, number);
  if (error != std::errc() || stop != end || !(number > 0)) {
    return InvalidArgument("--", name, "=", *text, ": expected a number that is more than 0");
  }
  return absl::OkStatus();
}

absl::Status ExpectKnownOptions(const Arguments& arguments) {
  for (const Option& option : arguments.options) {
    const std::string nearest = NearestName(option.name, kOptionNames.data(), kOptionNames.size());
    return InvalidArgument("unknown option '--", option.name, "'",
                           nearest.empty() ? std::string("; `gantry help bench` lists all")
                                           : StrCat(", did you mean '--", nearest, "'?"));
  }
  return ExpectNothingElse(arguments);
}

absl::StatusOr<std::string> TakeName(Arguments& arguments) {
  const std::vector<std::string> names = BenchmarkNames();
  if (arguments.words.empty()) {
    std::string list;
    for (const std::string& name : names) list += StrCat(list.empty() ? "" : ", ", name);
    list += StrCat(", ", kPoliciesBenchmark);
    return InvalidArgument("name a benchmark: gantry bench NAME, one of ", list);
  }
  std::string name = arguments.words[0];
  arguments.words.erase(arguments.words.begin());
  for (const std::string& known : names) {
    if (name == known) return name;
  }
  const std::string policies(kPoliciesBenchmark);
  if (!NearestName(name, &policies, 1).empty()) {
    return InvalidArgument("unknown benchmark '", name, "', did you mean '", policies, "'?");
  }
  return UnknownBenchmark(name);
}

absl::StatusOr<BenchRequest> ParseRequest(Arguments arguments) {
  BenchRequest request;
  BenchOptions& options = request.options;
  GANTRY_ASSIGN_OR_RETURN(request.name, TakeName(arguments));
  GANTRY_ASSIGN_OR_RETURN(request.format, TakeOutputFormat(arguments));
  GANTRY_ASSIGN_OR_RETURN(const bool quick, TakeFlag(arguments, "quick"));
  if (quick) options.effort = BenchEffort::kQuick;
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> directory, TakeValue(arguments, "dir"));
  if (directory.has_value()) options.directory = *directory;
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> only, TakeValue(arguments, "only"));
  if (only.has_value()) options.only = *only;
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> fio, TakeValue(arguments, "fio"));
  if (fio.has_value()) options.fio = *fio;
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> size, TakeValue(arguments, "size"));
  if (size.has_value()) {
    const absl::StatusOr<Bytes> bytes = ParseBytes(*size);
    if (!bytes.ok() || *bytes <= Bytes::Zero()) {
      return InvalidArgument("--size=", *size, ": expected a size like 256MiB that is more than 0");
    }
    options.size = *bytes;
  }
  double seconds = 0.0;
  GANTRY_RETURN_IF_ERROR(TakeNumber(arguments, "pairs", options.pairs));
  GANTRY_RETURN_IF_ERROR(TakeNumber(arguments, "seconds", seconds));
  GANTRY_RETURN_IF_ERROR(TakeNumber(arguments, "threads", options.threads));
  GANTRY_RETURN_IF_ERROR(TakeNumber(arguments, "model-parameters", options.model_parameters));
  GANTRY_RETURN_IF_ERROR(TakeNumber(arguments, "drive-tbw", options.drive_terabytes));
  constexpr double kSecondsMax = 3600.0;
  if (seconds > kSecondsMax) return InvalidArgument("--seconds: at most ", kSecondsMax);
  options.turn = static_cast<Nanoseconds>(std::ceil(seconds * 1e9));
  GANTRY_RETURN_IF_ERROR(ExpectKnownOptions(arguments));
  return request;
}

}  // namespace

CommandResult BenchCommand(Arguments arguments, const CommandContext& context) {
  // Takes options of its own.
  if (!arguments.words.empty() && arguments.words[0] == kPoliciesBenchmark) {
    arguments.words.erase(arguments.words.begin());
    return PoliciesCommand(std::move(arguments), context);
  }
  absl::StatusOr<BenchRequest> request = ParseRequest(std::move(arguments));
  if (!request.ok()) return UsageError(request.status());
  Console* const console = context.console;
  MonotonicClock clock;
  ConsoleLogger logger(console);
  BenchOptions& options = request->options;
  options.files = context.files;
  options.clock = &clock;
  options.logger = &logger;
  options.stop = context.stop;
  options.progress = [console](std::string_view line) { console->Line(line); };
  const absl::Status valid = ValidateBenchOptions(options);
  if (!valid.ok()) return UsageError(valid);
  const absl::StatusOr<BenchReport> report = RunBenchmark(request->name, options);
  if (absl::IsCancelled(report.status())) {
    return {.exit_code = kExitInterrupted, .status = absl::OkStatus()};
  }
  if (!report.ok()) return Failure(report.status());
  console->Out(request->format == OutputFormat::kJson ? BenchJson(*report) : BenchText(*report));
  return {};
}

}  // namespace gantry
