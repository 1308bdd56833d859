// fio, the yardstick of file I/O, run as a child: one job on one file, its figures read from the
// JSON it prints. Thread-safe.
#ifndef GANTRY_BENCHES_SUITE_FIO_H_
#define GANTRY_BENCHES_SUITE_FIO_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"

namespace gantry {

// What the requests of a load do. kMixed: as many reads as writes, on different parts of the file.
enum class LoadMix { kRead, kWrite, kMixed };
std::string_view Name(LoadMix mix);  // "read", "write", "mixed"

enum class FileAccess { kDirect, kBuffered };

// Registered: the file and the buffers are made known to the ring once, where the limit on locked
// memory allows it.
enum class FioBuffers { kRegistered, kPlain };

struct FioJob {
  std::string program;  // a path, or a name that PATH finds
  std::string file;     // made when it is not there
  Bytes file_bytes;
  Bytes block_bytes;
  int queue_depth;
  LoadMix mix;
  FileAccess access;
  FioBuffers buffers;
  Nanoseconds duration;  // 0: once over the file
};

struct FioResult {
  int64_t bytes = 0;
  double seconds = 0.0;      // that the job ran, without fio's start
  double cpu_seconds = 0.0;  // of the job's thread
  // Completion latencies of reads, in nanoseconds; 0 when nothing was read.
  double latency_median = 0.0;
  double latency_99 = 0.0;
  double latency_99_9 = 0.0;

  double bytes_per_second() const { return static_cast<double>(bytes) / seconds; }
};

// Runs the job, io_uring as engine, and blocks until it ended. fio gets what makes it fast: buffers
// on 2 MiB pages (with small ones a request of 1 MiB has 256 parts, which halves its speed on some
// drives) that it leaves as they are. Errors: kNotFound when there is no
// such program; kInternal with what fio said otherwise.
absl::StatusOr<FioResult> RunFio(const FioJob& job);

// What fio's JSON report of one job says. Errors: kInternal when it is none.
absl::StatusOr<FioResult> ParseFioReport(std::string_view text);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_FIO_H_
