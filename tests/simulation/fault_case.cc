#include "tests/simulation/fault_case.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "base/status_macros.h"
#include "base/strings.h"
#include "tests/simulation/spill_folders.h"
#include "tests/simulation/store_run.h"

namespace gantry {
namespace {

// Enough operations to last for any run.
constexpr int64_t kForEver = int64_t{1} << 40;
// Scenarios and healthy runs that a runner remembers.
constexpr size_t kKnownMax = 64;

OperationCounts CountsOf(const FaultPlan& plan) {
  OperationCounts counts{};
  for (int point = 0; point < kFaultPointCount; ++point) {
    counts[static_cast<size_t>(point)] = plan.operations(static_cast<FaultPoint>(point));
  }
  return counts;
}

// Whether one of the words is an E and at least two more capitals or digits. Not std::regex, which
// GCC 12 takes for uninitialized memory when it compiles for AddressSanitizer.
bool NamesAnErrno(std::string_view text) {
  const auto in_word = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  const auto in_name = [](unsigned char c) { return std::isupper(c) != 0 || std::isdigit(c) != 0; };
  for (auto begin = text.begin(); begin != text.end();) {
    begin = std::find_if(begin, text.end(), in_word);
    const auto end = std::find_if_not(begin, text.end(), in_word);
    if (end - begin >= 3 && *begin == 'E' && std::all_of(begin, end, in_name)) return true;
    begin = end;
  }
  return false;
}

}  // namespace

std::string Format(const FaultCase& c) {
  const Fault& f = c.fault;
  return StrCat(static_cast<int>(c.subject), ":", c.scenario_seed, ":", c.order_seed, ":",
                static_cast<int>(f.point), ":", f.first, ":", f.count, ":",
                static_cast<int>(f.effect), ":", f.error_number, ":", f.salt);
}

absl::StatusOr<FaultCase> ParseCase(std::string_view text) {
  unsigned long long scenario = 0, order = 0, salt = 0;
  long long first = 0, count = 0;
  int subject = 0, point = 0, effect = 0, error = 0;
  const std::string copy(text);
  const int read = std::sscanf(copy.c_str(), "%d:%llu:%llu:%d:%lld:%lld:%d:%d:%llu", &subject,
                               &scenario, &order, &point, &first, &count, &effect, &error, &salt);
  if (read != 9 || subject < 0 || subject > 1 || point < 0 || point >= kFaultPointCount ||
      effect < 0 || effect >= kFaultEffectCount) {
    return InvalidArgument("'", text, "' is no case: nine numbers with colons between them");
  }
  return FaultCase{.subject = static_cast<Subject>(subject),
                   .scenario_seed = scenario,
                   .order_seed = order,
                   .fault = {.point = static_cast<FaultPoint>(point),
                             .first = first,
                             .count = count,
                             .effect = static_cast<FaultEffect>(effect),
                             .error_number = error,
                             .salt = salt}};
}

std::string_view Name(CaseOutcome outcome) {
  static constexpr std::array<std::string_view, kCaseOutcomeCount> kNames = {
      "right", "resumed after an error", "not reached", "wrong"};
  return kNames[static_cast<size_t>(outcome)];
}

std::vector<Fault> FaultsAt(FaultPoint point) {
  std::vector<Fault> faults;
  const auto fails = [&](int error_number, int64_t count) {
    faults.push_back({.point = point, .count = count, .error_number = error_number});
  };
  const auto suffers = [&](FaultEffect effect, uint64_t salt) {
    faults.push_back({.point = point, .effect = effect, .salt = salt});
  };
  switch (point) {
    case FaultPoint::kOpen:
      fails(EMFILE, 1);
      fails(ENOSPC, 1);
      break;
    case FaultPoint::kRead:
      fails(EIO, 1);
      fails(EAGAIN, 3);
      fails(ENXIO, kForEver);
      suffers(FaultEffect::kShort, 5);
      suffers(FaultEffect::kFlipBit, 12'345);
      suffers(FaultEffect::kTruncate, 1);
      break;
    case FaultPoint::kWrite:
      fails(EIO, 1);
      fails(EINTR, 1);
      fails(ENOSPC, kForEver);
      suffers(FaultEffect::kShort, 5);
      suffers(FaultEffect::kShort, 0);
      suffers(FaultEffect::kFlipBit, 12'345);
      suffers(FaultEffect::kLoseWrite, 0);
      suffers(FaultEffect::kMisdirect, 0);
      suffers(FaultEffect::kTruncate, 0);
      break;
    case FaultPoint::kAllocate:
      fails(ENOSPC, 1);
      fails(EOPNOTSUPP, 1);
      break;
    case FaultPoint::kSlab:
    case FaultPoint::kAddresses:
    case FaultPoint::kMap:
    case FaultPoint::kUnmap:
      fails(ENOMEM, 1);
      fails(ENOMEM, kForEver);
      break;
    case FaultPoint::kCopyLane:
      fails(ENODEV, 1);
      break;
    case FaultPoint::kCopy:
      fails(EIO, 1);
      fails(ENODEV, kForEver);
      suffers(FaultEffect::kShort, 0);
      suffers(FaultEffect::kSlow, 0);
      break;
    case FaultPoint::kBackend:
      fails(EPERM, 1);
      suffers(FaultEffect::kVanish, 9);
      suffers(FaultEffect::kVanish, 40);
      break;
    case FaultPoint::kRequest:
      fails(EIO, 1);
      fails(ENODEV, kForEver);
      suffers(FaultEffect::kSlow, 0);
      break;
    case FaultPoint::kSync:
    case FaultPoint::kRename:
    case FaultPoint::kMakeDirectory:
    case FaultPoint::kUnlink:
      fails(EIO, 1);
      break;
  }
  return faults;
}

std::string ComplaintAbout(const absl::Status& status) {
  const std::string message(FromAbsl(status.message()));
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
      break;
    case absl::StatusCode::kInternal:
      // A write that moves nothing has no errno to name.
      if (!NamesAnErrno(message) && message.find("no more bytes") == std::string::npos &&
          message.find("nothing was written") == std::string::npos) {
        return "kInternal without an errno's name";
      }
      break;
    default:
      return StrCat("a fault must not end in ", absl::StatusCodeToString(status.code()));
  }
  if (message.size() < 12) return "the message says too little";
  if (message.find('\n') != std::string::npos) return "the message has several lines";
  return "";
}

absl::StatusOr<const CaseRunner::Known*> CaseRunner::Find(uint64_t seed) {
  const auto found = known_.find(seed);
  if (found != known_.end()) return &found->second;
  if (known_.size() >= kKnownMax) {
    known_.clear();
  }
  GANTRY_ASSIGN_OR_RETURN(Scenario scenario, DrawScenario(seed));
  GANTRY_ASSIGN_OR_RETURN(const Fingerprint expected, RunOracle(scenario));
  return &known_.emplace(seed, Known{std::move(scenario), expected}).first->second;
}

absl::StatusOr<OperationCounts> CaseRunner::Count(const Healthy& run) {
  const auto found = counts_.find(run);
  if (found != counts_.end()) return found->second;
  if (counts_.size() >= kKnownMax) counts_.clear();
  if (run.subject == Subject::kEngine) {
    GANTRY_ASSIGN_OR_RETURN(counts_[run], CountEngine(run));
    return counts_[run];
  }
  FaultPlan healthy({});
  const StoreRunResult result =
      RunStore({.seed = run.scenario_seed, .order_seed = run.order_seed, .faults = &healthy});
  GANTRY_RETURN_IF_ERROR(result.error);
  if (!result.wrong.empty()) return DataLoss("a healthy run: ", result.wrong);
  return counts_[run] = CountsOf(healthy);
}

absl::StatusOr<OperationCounts> CaseRunner::CountEngine(const Healthy& run) {
  GANTRY_ASSIGN_OR_RETURN(const Known* known, Find(run.scenario_seed));
  FaultPlan healthy({});
  const SpillFolders folder(1);
  const RunResult result = RunSimulated({.scenario = &known->scenario,
                                         .order_seed = run.order_seed,
                                         .faults = &healthy,
                                         .checkpoint_directory = folder.paths()[0]});
  GANTRY_RETURN_IF_ERROR(result.status);
  if (result.fingerprint != known->expected) {
    return DataLoss("a healthy run computed something else: ", Describe(known->scenario),
                    ", order ", run.order_seed);
  }
  return CountsOf(healthy);
}

std::string CaseRunner::DescribeRun(const FaultCase& fault_case) const {
  const std::string what = fault_case.subject == Subject::kEngine
                               ? gantry::Describe(known_.at(fault_case.scenario_seed).scenario)
                               : DescribeStoreRun(fault_case.scenario_seed);
  return StrCat(what, "; order ", fault_case.order_seed, "; ", gantry::Describe(fault_case.fault));
}

CaseReport CaseRunner::Run(const FaultCase& fault_case) {
  return fault_case.subject == Subject::kEngine ? RunEngine(fault_case) : RunStoreCase(fault_case);
}

CaseReport CaseRunner::RunStoreCase(const FaultCase& fault_case) {
  FaultPlan plan({fault_case.fault});
  const StoreRunResult result = RunStore(
      {.seed = fault_case.scenario_seed, .order_seed = fault_case.order_seed, .faults = &plan});
  if (!result.wrong.empty()) return {CaseOutcome::kWrong, result.wrong};
  if (result.error.ok()) {
    return {plan.struck() > 0 ? CaseOutcome::kRight : CaseOutcome::kNotReached, ""};
  }
  const std::string complaint = ComplaintAbout(result.error);
  if (!complaint.empty()) {
    return {CaseOutcome::kWrong, StrCat(complaint, ": ", result.error.ToString())};
  }
  return {CaseOutcome::kResumed, result.error.ToString()};
}

CaseReport CaseRunner::RunEngine(const FaultCase& fault_case) {
  const auto found = Find(fault_case.scenario_seed);
  if (!found.ok()) return {CaseOutcome::kWrong, StrCat("no scenario: ", found.status().ToString())};
  const Known& known = **found;
  const SpillFolders folder(1);
  FaultPlan plan({fault_case.fault});
  const RunResult result = RunSimulated({.scenario = &known.scenario,
                                         .order_seed = fault_case.order_seed,
                                         .faults = &plan,
                                         .checkpoint_directory = folder.paths()[0]});
  if (!result.left_behind.empty()) {
    return {CaseOutcome::kWrong, StrCat("left behind: ", result.left_behind)};
  }
  if (!result.status.ok()) {
    const std::string error = result.status.ToString();
    const std::string complaint = ComplaintAbout(result.status);
    if (!complaint.empty()) return {CaseOutcome::kWrong, StrCat(complaint, ": ", error)};
    SavedState checkpoint = result.checkpoint;
    if (known.scenario.checkpoint_on_disk) {
      // Saving may have failed at its very end: what counts is what is there.
      checkpoint.directory = folder.paths()[0];
      checkpoint.steps = known.scenario.checkpoint_after;
    }
    return Resume(fault_case, known, checkpoint, error);
  }
  if (result.fingerprint != known.expected) {
    return {CaseOutcome::kWrong, "the run said nothing and computed something else"};
  }
  if (plan.struck() == 0) return {CaseOutcome::kNotReached, ""};
  // A lie in the checkpoint shows only to who reads it.
  if (known.scenario.checkpoint_on_disk) {
    CaseReport report = Resume(fault_case, known, result.checkpoint, "no error");
    if (report.outcome == CaseOutcome::kWrong) return report;
  }
  return {CaseOutcome::kRight, ""};
}

CaseReport CaseRunner::Resume(const FaultCase& fault_case, const Known& known,
                              const SavedState& checkpoint, const std::string& error) {
  const auto run = [&](const SavedState* from) {
    FaultPlan healthy({});
    return RunSimulated({.scenario = &known.scenario,
                         .order_seed = fault_case.order_seed + 1,
                         .faults = &healthy,
                         .checkpoint_directory = {},
                         .resume = from});
  };
  RunResult resumed = run(&checkpoint);
  // None was saved, or what was is damaged, and says so: then from the beginning.
  const bool missing = absl::IsNotFound(resumed.status) || absl::IsDataLoss(resumed.status);
  if (missing && !checkpoint.directory.empty()) resumed = run(nullptr);
  if (!resumed.status.ok()) {
    return {CaseOutcome::kWrong,
            StrCat("after ", error, " the run did not resume: ", resumed.status.ToString())};
  }
  if (resumed.fingerprint != known.expected) {
    return {CaseOutcome::kWrong, StrCat("resumed to something else after ", error)};
  }
  return {CaseOutcome::kResumed, error};
}

}  // namespace gantry
