#include "benches/suite/bench_options.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr int kRoundsFull = 5;
constexpr int kRoundsQuick = 2;
constexpr Nanoseconds kTurnFull = 1'000'000'000;
constexpr Nanoseconds kTurnQuick = 200'000'000;
constexpr int kPairsMax = 1000;

}  // namespace

int BenchOptions::rounds() const {
  if (pairs > 0) return pairs;
  return effort == BenchEffort::kQuick ? kRoundsQuick : kRoundsFull;
}

Nanoseconds BenchOptions::turn_time() const {
  if (turn > 0) return turn;
  return effort == BenchEffort::kQuick ? kTurnQuick : kTurnFull;
}

int BenchOptions::compute_threads() const {
  if (threads > 0) return threads;
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

Bytes BenchOptions::SizeOr(Bytes full, Bytes quick) const {
  if (size > Bytes::Zero()) return size;
  return effort == BenchEffort::kQuick ? quick : full;
}

void BenchOptions::Tell(std::string_view line) const {
  if (progress) progress(line);
}

absl::Status ValidateBenchOptions(const BenchOptions& options) {
  GANTRY_CHECK(options.files != nullptr && options.clock != nullptr && options.logger != nullptr);
  if (options.pairs < 0 || options.pairs > kPairsMax) {
    return InvalidArgument("pairs: must be 1 to ", kPairsMax, ", not ", options.pairs);
  }
  if (options.turn < 0) return InvalidArgument("seconds: must be more than 0");
  if (options.size < Bytes::Zero()) return InvalidArgument("size: must be more than 0");
  if (options.threads < 0 || options.threads > 1024) {
    return InvalidArgument("threads: must be 1 to 1024, not ", options.threads);
  }
  if (!std::isfinite(options.model_parameters) || options.model_parameters <= 0) {
    return InvalidArgument("model-parameters: must be more than 0");
  }
  if (!std::isfinite(options.drive_terabytes) || options.drive_terabytes <= 0) {
    return InvalidArgument("drive-tbw: must be more than 0");
  }
  return absl::OkStatus();
}

}  // namespace gantry
