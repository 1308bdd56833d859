#include "tests/simulation/campaign.h"

#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iostream>
#include <map>
#include <new>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "tests/simulation/scenario.h"

namespace gantry {
namespace {

constexpr int kWorkersMax = 64;
constexpr int64_t kFailuresMax = 20;
constexpr size_t kTextBytes = 2048;
// Of one case: beyond either it hangs. Processor time, since machines are loaded and stop at times;
// and time on the clock, for one that waits for what never comes.
constexpr time_t kProcessorSecondsMax = 60;
constexpr unsigned kSecondsMax = 270;
constexpr int64_t kCasesOfAScenario = 50;

// What children and parent share.
struct Shared {
  std::atomic<int64_t> next;  // case that nobody has taken yet
  std::array<std::atomic<int64_t>, kCaseOutcomeCount> outcomes;
  std::atomic<int64_t> failures;
  std::array<std::array<char, kTextBytes>, kFailuresMax> failure_texts;
  struct Worker {
    std::atomic<int64_t> index;  // of the case that it runs
    std::atomic<int64_t> end;    // of the cases that it took
    std::array<char, kTextBytes> text;
  };
  std::array<Worker, kWorkersMax> workers;
};

// Memory that stays one through forks.
class SharedMemory {
 public:
  SharedMemory()
      : pointer_(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                      -1, 0)) {
    GANTRY_CHECK(pointer_ != MAP_FAILED);
    shared_ = new (pointer_) Shared{};
  }
  ~SharedMemory() { munmap(pointer_, sizeof(Shared)); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  Shared* get() { return shared_; }

 private:
  void* pointer_;
  Shared* shared_;
};

void Put(std::array<char, kTextBytes>& to, const std::string& text) {
  const size_t size = std::min(text.size(), kTextBytes - 1);
  std::memcpy(to.data(), text.data(), size);
  to[size] = '\0';
}

void AddFailure(Shared& shared, const std::string& text) {
  const int64_t at = shared.failures.fetch_add(1);
  if (at < kFailuresMax) Put(shared.failure_texts[static_cast<size_t>(at)], text);
}

// Kills this process after so much time. 0: no limit.
void LimitTime(time_t processor_seconds, unsigned seconds) {
  const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = processor_seconds, .tv_usec = 0}};
  GANTRY_CHECK_EQ(setitimer(ITIMER_PROF, &limit, nullptr), 0);
  alarm(seconds);
}

CaseRunner::Healthy HealthyOf(const FaultCase& fault_case) {
  return {.subject = fault_case.subject,
          .scenario_seed = fault_case.scenario_seed,
          .order_seed = fault_case.order_seed};
}

std::string WhatItIs(const CaseRunner& runner, const FaultCase& fault_case) {
  return StrCat("--replay=", Format(fault_case), " (", runner.DescribeRun(fault_case), ")");
}

void RunOne(const CampaignOptions& options, CaseRunner& runner, Shared& shared,
            Shared::Worker& worker, int64_t index) {
  worker.index = index;
  Put(worker.text, StrCat("case ", index, ", while it was made"));
  LimitTime(kProcessorSecondsMax, kSecondsMax);
  const auto fault_case = options.make(runner, index);
  CaseReport report{CaseOutcome::kWrong, ""};
  std::string what = StrCat("case ", index);
  if (fault_case.ok()) {
    // So that the scenario is known.
    const auto counts = runner.Count(HealthyOf(*fault_case));
    if (counts.ok()) what = WhatItIs(runner, *fault_case);
    Put(worker.text, what);
    report = counts.ok() ? runner.Run(*fault_case)
                         : CaseReport{CaseOutcome::kWrong, counts.status().ToString()};
  } else {
    report.message = fault_case.status().ToString();
  }
  LimitTime(0, 0);
  ++shared.outcomes[static_cast<size_t>(report.outcome)];
  if (report.outcome == CaseOutcome::kWrong) AddFailure(shared, StrCat(report.message, ": ", what));
}

[[noreturn]] void RunChild(const CampaignOptions& options, Shared& shared, size_t number) {
  Shared::Worker& worker = shared.workers[number];
  CaseRunner runner;
  const int64_t end = options.first + options.cases;
  while (shared.failures < kFailuresMax) {
    // First what is left of the block of a child that died.
    int64_t index = worker.index + 1;
    if (index >= worker.end) {
      index = shared.next.fetch_add(options.cases_together);
      worker.end = std::min(index + options.cases_together, end);
      if (index >= end) break;
    }
    for (; index < worker.end && shared.failures < kFailuresMax; ++index) {
      RunOne(options, runner, shared, worker, index);
      const bool tell = options.progress_every > 0 && (index + 1) % options.progress_every == 0;
      if (tell) std::cerr << "case " << index + 1 << " of " << end << std::endl;
    }
  }
  std::cout.flush();
  _exit(0);
}

pid_t Fork(const CampaignOptions& options, Shared& shared, size_t number) {
  std::cout.flush();
  const pid_t child = fork();
  GANTRY_CHECK_GE(child, 0) << "fork";
  if (child == 0) RunChild(options, shared, number);
  return child;
}

}  // namespace

int64_t CampaignResult::cases() const {
  return std::accumulate(outcomes.begin(), outcomes.end(), died);
}

std::string CampaignResult::ToString() const {
  std::string text = StrCat(cases(), " cases:");
  for (int outcome = 0; outcome < kCaseOutcomeCount; ++outcome) {
    text += StrCat(" ", outcomes[static_cast<size_t>(outcome)], " ",
                   Name(static_cast<CaseOutcome>(outcome)), ",");
  }
  return text + StrCat(" ", died, " died");
}

CampaignResult RunCampaign(const CampaignOptions& options) {
  GANTRY_CHECK(options.workers >= 1 && options.workers <= kWorkersMax) << options.workers;
  SharedMemory memory;
  Shared& shared = *memory.get();
  shared.next = options.first;
  CampaignResult result;
  std::map<pid_t, size_t> children;
  for (size_t number = 0; number < static_cast<size_t>(options.workers); ++number) {
    shared.workers[number].index = options.first - 1;
    children.emplace(Fork(options, shared, number), number);
  }
  while (!children.empty()) {
    int state = 0;
    const pid_t child = wait(&state);
    const auto found = children.find(child);
    if (found == children.end()) continue;
    const size_t number = found->second;
    children.erase(found);
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0) continue;
    ++result.died;
    const std::string how = WIFSIGNALED(state) ? StrCat("signal ", WTERMSIG(state), " (",
                                                        strsignal(WTERMSIG(state)), ")")
                                               : StrCat("exit code ", WEXITSTATUS(state));
    AddFailure(shared, StrCat("died of ", how, ": ", shared.workers[number].text.data()));
    children.emplace(Fork(options, shared, number), number);
  }
  for (size_t outcome = 0; outcome < kCaseOutcomeCount; ++outcome) {
    result.outcomes[outcome] = shared.outcomes[outcome];
  }
  for (int64_t i = 0; i < std::min<int64_t>(shared.failures, kFailuresMax); ++i) {
    result.failures.emplace_back(shared.failure_texts[static_cast<size_t>(i)].data());
  }
  return result;
}

absl::StatusOr<std::vector<FaultCase>> AllCases(CaseRunner& runner, const CaseRunner::Healthy& run,
                                                int64_t per_fault) {
  std::vector<FaultCase> cases;
  GANTRY_ASSIGN_OR_RETURN(const OperationCounts counts, runner.Count(run));
  for (int point = 0; point < kFaultPointCount; ++point) {
    const int64_t operations = counts[static_cast<size_t>(point)];
    const int64_t tries = per_fault == 0 ? operations : std::min(operations, per_fault);
    for (Fault fault : FaultsAt(static_cast<FaultPoint>(point))) {
      for (int64_t i = 0; i < tries; ++i) {
        fault.first = i * operations / tries;
        cases.push_back({.subject = run.subject,
                         .scenario_seed = run.scenario_seed,
                         .order_seed = run.order_seed,
                         .fault = fault});
      }
    }
  }
  return cases;
}

absl::StatusOr<FaultCase> RandomCase(CaseRunner& runner, uint64_t seed, int64_t index) {
  const Random random({.seed = seed, .stream = 1 + static_cast<uint64_t>(index)});
  const int64_t scenario = index / kCasesOfAScenario;
  FaultCase fault_case{.subject = scenario % 5 == 4 ? Subject::kStore : Subject::kEngine,
                       .scenario_seed = seed * 1'000'000 + static_cast<uint64_t>(scenario),
                       .order_seed = static_cast<uint64_t>(random.Below(4, 0)) * 2};
  // One engine in four follows plans.
  if (scenario % 5 == 2) fault_case.scenario_seed |= kPlannedSeeds;
  GANTRY_ASSIGN_OR_RETURN(const OperationCounts counts, runner.Count(HealthyOf(fault_case)));
  uint64_t draw = 1;
  FaultPoint point = FaultPoint::kMap;
  do {
    point = static_cast<FaultPoint>(random.Below(kFaultPointCount, draw++));
  } while (counts[static_cast<size_t>(point)] == 0);
  const std::vector<Fault> faults = FaultsAt(point);
  Fault& fault = fault_case.fault;
  fault = faults[static_cast<size_t>(random.Below(static_cast<int64_t>(faults.size()), draw++))];
  fault.first = random.Below(counts[static_cast<size_t>(point)], draw++);
  if (fault.effect != FaultEffect::kFail) fault.salt = random.Bits(draw++) % 1'000'000;
  return fault_case;
}

}  // namespace gantry
