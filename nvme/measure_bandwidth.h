// How fast a directory's drive is for what the file tier does: a short, real load of reads, of
// writes, or of both half and half, of 1 MiB each.
#ifndef GANTRY_NVME_MEASURE_BANDWIDTH_H_
#define GANTRY_NVME_MEASURE_BANDWIDTH_H_

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "nvme/block_file.h"
#include "nvme/create_io_backend.h"
#include "nvme/run_directory.h"

namespace gantry {

// What is read was written before, outside the measured time.
enum class IoMix { kReadsAndWrites, kReads, kWrites };

struct BandwidthLoad {
  const RunDirectory* directory;
  IoBackendFactory make_io;  // not empty; its completions must not need the calling thread
  IoPreference io = IoPreference::kAuto;
  IoMix mix = IoMix::kReadsAndWrites;
  int queue_depth = 16;  // requests under way at any time
  BlockFile::DirectIo direct_io = BlockFile::DirectIo::kWherePossible;
  Bytes file_bytes_max;  // of the scratch file, which is gone afterwards; at least 4 MiB are used
  Nanoseconds duration;  // no request starts later
  Bytes bytes_max;       // nor after so many bytes
  Clock* clock;
  FileCalls* files;
  Logger* logger;
};

// Bytes per second, or 1 when the clock has not moved. Blocks for about `duration`.
// Errors: those of BlockFile::Create, of the factory and of the requests.
absl::StatusOr<double> MeasureBandwidth(const BandwidthLoad& load);

}  // namespace gantry

#endif  // GANTRY_NVME_MEASURE_BANDWIDTH_H_
