// `gantry bench io`: the file tier beside fio on the same drive.
#ifndef GANTRY_BENCHES_SUITE_IO_BENCHMARK_H_
#define GANTRY_BENCHES_SUITE_IO_BENCHMARK_H_

#include <vector>

#include "absl/status/statusor.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/report.h"

namespace gantry {

// Rows read, write, mixed (GB/s beside fio with requests of the same size, as many under way);
// read_latency_*; cpu_*; checksum; read_bs_*_qd_*; and what a model's training means for the drive.
// Blocks. Errors: those of the file tier; kCancelled. Where fio does not run, the rows say so.
absl::StatusOr<BenchReport> RunIoBenchmark(const BenchOptions& options);

struct Wear {
  std::string_view prefix;             // of the rows' names
  double bytes_written_per_parameter;  // and step
};
// Rows bytes_written_per_step and drive_life_steps for the model and the drive of `options`.
std::vector<BenchRow> WearRows(const Wear& wear, const BenchOptions& options);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_IO_BENCHMARK_H_
