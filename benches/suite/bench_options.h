// What every benchmark of the suite is run with. Plain data.
#ifndef GANTRY_BENCHES_SUITE_BENCH_OPTIONS_H_
#define GANTRY_BENCHES_SUITE_BENCH_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "nvme/create_io_backend.h"
#include "trainer/booster/stop_source.h"

namespace gantry {

// kQuick: shorter measurements on less data, and no sweep over block sizes: shows that the
// benchmark works, not how fast the machine is.
enum class BenchEffort { kFull, kQuick };

struct BenchOptions {
  std::string directory = ".";  // whose drive is measured
  BenchEffort effort = BenchEffort::kFull;
  int pairs = 0;            // rounds of an interleaved comparison, without warm-up; 0: by effort
  Nanoseconds turn = 0;     // of one measurement that ends by time; 0: by effort
  Bytes size = Bytes(0);    // data each benchmark works on; 0: its own choice by effort
  int threads = 0;          // of compute; 0: all processors
  std::string only;         // of `train`: measures cases whose names contain it
  std::string fio = "fio";  // program beside which `io` is measured
  IoPreference io = IoPreference::kAuto;
  double model_parameters = 7e9;  // of the model whose wear of the drive is computed
  double drive_terabytes = 600;   // that the drive may be written (TBW), in 10^12 bytes

  // Outlive the benchmark.
  FileCalls* files = nullptr;
  Clock* clock = nullptr;
  Logger* logger = nullptr;
  const StopSource* stop = nullptr;                     // null: runs to its end
  std::function<void(std::string_view)> progress = {};  // a line about what is being measured

  int rounds() const;
  Nanoseconds turn_time() const;
  int compute_threads() const;
  // `size`, or the benchmark's own choice.
  Bytes SizeOr(Bytes full, Bytes quick) const;
  void Tell(std::string_view line) const;
};

// Errors: kInvalidArgument, naming the field.
absl::Status ValidateBenchOptions(const BenchOptions& options);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_BENCH_OPTIONS_H_
