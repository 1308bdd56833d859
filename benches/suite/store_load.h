// Loads the file tier as fio loads a file: blocks read, written, or both at once, a fixed number of
// requests under way, for a time or a number of blocks.
//
// The calls block; one thread makes them. Owns its files (in a directory of its own inside the one
// given, removed with it) and its buffers.
#ifndef GANTRY_BENCHES_SUITE_STORE_LOAD_H_
#define GANTRY_BENCHES_SUITE_STORE_LOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "benches/suite/fio.h"
#include "nvme/block_store.h"
#include "nvme/create_io_backend.h"

namespace gantry {

struct StoreLoadOptions {
  std::string directory;
  Bytes block_bytes;  // positive multiple of 4 KiB
  int64_t blocks;     // in the file; at least 4
  int queue_depth;    // pieces of at most 1 MiB that the kernel holds at once
  int requests;       // blocks under way, at most a quarter of `blocks`
  int buffers = 0;    // blocks of memory that take turns, at least `requests`; 0: that many
  Verification verification = Verification::kEveryRead;
  IoPreference io = IoPreference::kAuto;
  // Outlive the load.
  FileCalls* files;
  Clock* clock;
  Logger* logger;
};

// What becomes of the bytes that were read: nothing, or the thread that gets them reads a byte of
// each cache line, the least that whoever uses them does.
enum class ReadUse { kNone, kTouch };

struct LoadRun {
  LoadMix mix;
  Nanoseconds duration = 0;  // no block is started later; 0: no such end
  int64_t blocks = 0;        // at most so many; 0: no such end
  Verification verification = Verification::kEveryRead;  // of its reads, as in StoreRead
  ReadUse use = ReadUse::kNone;
};

struct LoadResult {
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  double seconds = 0.0;                  // from the first submission to the last completion
  double cpu_seconds = 0.0;              // of the whole process
  std::vector<double> nanoseconds = {};  // of each block, submission to completion

  int64_t bytes() const { return bytes_read + bytes_written; }
  double bytes_per_second() const { return static_cast<double>(bytes()) / seconds; }
};

// How the file is used.
struct StoreFacts {
  std::string backend;
  std::string ring_flags;
  bool fixed_memory;
  FileAccess access;
};

class StoreLoad {
 public:
  virtual ~StoreLoad() = default;
  // Preallocates the file and writes every block once. Errors: those of the file tier.
  static absl::StatusOr<std::unique_ptr<StoreLoad>> Create(const StoreLoadOptions& options);

  // Blocks go in order, each direction by itself, over and over; writes begin half a file behind
  // reads. Errors: the first that a request meets. REQUIRES: `run` has an end.
  virtual absl::StatusOr<LoadResult> Run(const LoadRun& run) = 0;
  virtual StoreFacts facts() const = 0;
};

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_STORE_LOAD_H_
