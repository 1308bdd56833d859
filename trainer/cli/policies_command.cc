#include "trainer/cli/policies_command.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benches/policies/policy_benchmark.h"
#include "benches/policies/policy_page.h"
#include "benches/policies/policy_suite.h"
#include "benches/policies/policy_summary.h"
#include "benches/suite/machine.h"
#include "benches/suite/report.h"
#include "trainer/cli/console.h"
#include "trainer/cli/interrupt.h"
#include "trainer/cli/planning_inputs.h"

namespace gantry {
namespace {

constexpr int kThreadsMax = 1024;
constexpr int64_t kTokensMax = int64_t{1} << 24;
const std::array<std::string, 12> kOptionNames = {
    "trace",    "machine", "machines", "models", "budgets", "tokens",
    "policies", "quick",   "json",     "html",   "threads", "wait-for-norm"};

struct PoliciesRequest {
  PolicySuite suite;
  OutputFormat format = OutputFormat::kText;
  std::string page;  // where the page goes; empty: nowhere
  int threads = 0;
};

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// The parts of --name=A,B,C; nothing when it is not there. Errors: kInvalidArgument, also for an
// empty part and for one that is there twice.
absl::StatusOr<std::optional<std::vector<std::string>>> TakeList(Arguments& arguments,
                                                                 std::string_view name) {
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> text, TakeValue(arguments, name));
  if (!text.has_value()) return std::optional<std::vector<std::string>>();
  std::vector<std::string> parts = Split(*text);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) return InvalidArgument("--", name, "=", *text, ": a name is missing");
    if (std::find(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i), parts[i]) !=
        parts.begin() + static_cast<std::ptrdiff_t>(i)) {
      return InvalidArgument("--", name, "=", *text, ": '", parts[i], "' is there twice");
    }
  }
  return std::optional(std::move(parts));
}

template <typename Number>
std::optional<Number> ParseNumber(const std::string& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

absl::Status TakeModels(FileCalls& files, Arguments& arguments, PolicySuite& suite) {
  GANTRY_ASSIGN_OR_RETURN(const auto names, TakeList(arguments, "models"));
  GANTRY_ASSIGN_OR_RETURN(const auto traces, TakeList(arguments, "trace"));
  if (!names.has_value() && !traces.has_value()) return absl::OkStatus();
  suite.models.clear();
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    GANTRY_ASSIGN_OR_RETURN(ModelShape shape, LoadModelShape(files, name));
    suite.models.push_back({.name = name, .step = std::move(shape)});
  }
  for (const std::string& path : traces.value_or(std::vector<std::string>())) {
    GANTRY_ASSIGN_OR_RETURN(Trace trace, LoadTrace(files, path));
    suite.models.push_back({.name = std::filesystem::path(path).stem(), .step = std::move(trace)});
  }
  return absl::OkStatus();
}

absl::Status TakeMachines(FileCalls& files, Arguments& arguments, PolicySuite& suite) {
  // One is as good as several.
  for (Option& option : arguments.options) {
    if (option.name == "machines") option.name = "machine";
  }
  GANTRY_ASSIGN_OR_RETURN(const auto names, TakeList(arguments, "machine"));
  if (!names.has_value()) return absl::OkStatus();
  suite.machines.clear();
  for (const std::string& name : *names) {
    GANTRY_ASSIGN_OR_RETURN(Hardware hardware, LoadHardware(files, name));
    const bool is_file = name.find('/') != std::string::npos || name.ends_with(".json");
    suite.machines.push_back({.name = is_file ? std::filesystem::path(name).stem().string() : name,
                              .hardware = std::move(hardware)});
  }
  return absl::OkStatus();
}

absl::Status TakeSizes(Arguments& arguments, PolicySuite& suite) {
  GANTRY_ASSIGN_OR_RETURN(const auto budgets, TakeList(arguments, "budgets"));
  if (budgets.has_value()) {
    suite.budgets.clear();
    for (const std::string& text : *budgets) {
      const std::optional<double> share = ParseNumber<double>(text);
      if (!share.has_value() || !(*share >= 0.005 && *share <= 4.0)) {
        return InvalidArgument("--budgets: '", text,
                               "': expected a share of the training state from 0.005 to 4");
      }
      suite.budgets.push_back(*share);
    }
  }
  GANTRY_ASSIGN_OR_RETURN(const auto tokens, TakeList(arguments, "tokens"));
  if (!tokens.has_value()) return absl::OkStatus();
  suite.tokens.clear();
  for (const std::string& text : *tokens) {
    const std::optional<int64_t> count = ParseNumber<int64_t>(text);
    if (!count.has_value() || *count < 1 || *count > kTokensMax) {
      return InvalidArgument("--tokens: '", text, "': expected tokens of a step, 1 to ",
                             kTokensMax);
    }
    suite.tokens.push_back(*count);
  }
  return absl::OkStatus();
}

absl::Status TakePolicies(Arguments& arguments, PolicySuite& suite) {
  GANTRY_ASSIGN_OR_RETURN(const auto policies, TakeList(arguments, "policies"));
  if (!policies.has_value()) return absl::OkStatus();
  std::vector<std::string> known;
  for (const std::string_view name : SuitePolicyNames()) known.emplace_back(name);
  for (const std::string& name : *policies) {
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string nearest = NearestName(name, known.data(), known.size());
    return InvalidArgument("--policies: '", name, "' is no policy",
                           nearest.empty() ? "" : StrCat(", did you mean '", nearest, "'?"));
  }
  suite.policies = *policies;
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

absl::StatusOr<PoliciesRequest> ParseRequest(FileCalls& files, Arguments arguments) {
  PoliciesRequest request;
  GANTRY_ASSIGN_OR_RETURN(request.format, TakeOutputFormat(arguments));
  GANTRY_ASSIGN_OR_RETURN(const bool quick, TakeFlag(arguments, "quick"));
  request.suite = DefaultPolicySuite(quick ? SuiteEffort::kQuick : SuiteEffort::kFull);
  GANTRY_ASSIGN_OR_RETURN(request.suite.wait_for_norm, TakeFlag(arguments, "wait-for-norm"));
  const size_t asked = arguments.options.size();
  GANTRY_RETURN_IF_ERROR(TakeModels(files, arguments, request.suite));
  GANTRY_RETURN_IF_ERROR(TakeMachines(files, arguments, request.suite));
  if (arguments.options.size() != asked) {
    // Who asks about a model or a machine does not ask about these.
    request.suite.random_problems_per_kind =
        DefaultPolicySuite(SuiteEffort::kQuick).random_problems_per_kind;
  }
  GANTRY_RETURN_IF_ERROR(TakeSizes(arguments, request.suite));
  GANTRY_RETURN_IF_ERROR(TakePolicies(arguments, request.suite));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> page, TakeValue(arguments, "html"));
  request.page = page.value_or("");
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> threads,
                          TakeValue(arguments, "threads"));
  if (threads.has_value()) {
    const std::optional<int> count = ParseNumber<int>(*threads);
    if (!count.has_value() || *count < 1 || *count > kThreadsMax) {
      return InvalidArgument("--threads=", *threads, ": expected 1 to ", kThreadsMax);
    }
    request.threads = *count;
  }
  GANTRY_RETURN_IF_ERROR(ExpectKnownOptions(arguments));
  return request;
}

// A bar where that is a terminal, else a line for every tenth.
void TellProgress(Console& console, int64_t done, int64_t all, std::string_view name) {
  if (console.progress() == Console::Progress::kBar) {
    constexpr int64_t kWidth = 30;
    const auto filled = static_cast<size_t>(kWidth * done / all);
    console.Bar(StrCat("policies [", std::string(filled, '#'),
                       std::string(static_cast<size_t>(kWidth) - filled, ' '), "] ", done, "/", all,
                       " ", name));
  } else if (done * 10 / all != (done - 1) * 10 / all) {
    console.Line(StrCat("policies: ", done, " of ", all, " cases"));
  }
}

MachineDescription Facts(const PolicySuite& suite) {
  MachineDescription facts = DescribeMachine();
  facts.Add("simulated", true);
  facts.Add("norm", suite.wait_for_norm ? std::string("updates wait for the step's gradient norm")
                                        : std::string("updates do not wait for the gradient norm"));
  return facts;
}

}  // namespace

CommandResult PoliciesCommand(Arguments arguments, const CommandContext& context) {
  absl::StatusOr<PoliciesRequest> request = ParseRequest(*context.files, std::move(arguments));
  if (!request.ok()) return UsageError(request.status());
  Console* const console = context.console;
  const PolicySuite& suite = request->suite;
  const absl::StatusOr<PolicyResults> results = RunPolicySuite(
      suite, {.threads = request->threads,
              .stop = context.stop,
              .progress = [console](int64_t done, int64_t all, std::string_view name) {
                TellProgress(*console, done, all, name);
              }});
  if (console->progress() == Console::Progress::kBar) console->ClearBar();
  if (absl::IsCancelled(results.status())) {
    return {.exit_code = kExitInterrupted, .status = absl::OkStatus()};
  }
  if (!results.ok()) return Failure(results.status());
  if (!request->page.empty()) {
    absl::Status written = MakeParentDirectories(*context.files, request->page);
    if (written.ok()) {
      const std::string page = PoliciesPage(suite, results->outcomes, results->summary);
      written = WriteFileAtomically(*context.files, request->page, std::as_bytes(std::span(page)));
    }
    if (!written.ok()) return Failure(written);
    console->Line(StrCat("policies: wrote ", request->page));
  }
  if (request->format == OutputFormat::kText) {
    console->Out(PoliciesText(suite, results->outcomes, results->summary));
    return {};
  }
  BenchReport report{.bench = std::string(kPoliciesBenchmark),
                     .machine = Facts(suite),
                     .rows = CaseRows(suite, results->outcomes)};
  report.rows.insert(report.rows.end(), results->summary.begin(), results->summary.end());
  console->Out(BenchJson(report));
  return {};
}

}  // namespace gantry
