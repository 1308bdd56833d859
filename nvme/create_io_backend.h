// Chooses the I/O backend by one real request: io_uring where it works, threads where it does not
// (containers forbid it by seccomp, administrators by kernel.io_uring_disabled).
//
//   GANTRY_ASSIGN_OR_RETURN(auto backend, CreateIoBackend({.sink = &engine,
//                                                          .directory = run->path(),
//                                                          .logger = logger,
//                                                          .files = &posix}));
#ifndef GANTRY_NVME_CREATE_IO_BACKEND_H_
#define GANTRY_NVME_CREATE_IO_BACKEND_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "nvme/io_backend.h"

namespace gantry {

enum class IoPreference {
  kAuto,     // io_uring, else threads with one log line that says why
  kIoUring,  // io_uring or an error
  kThreads,
};

struct IoBackendOptions {
  IoSink* sink;          // outlives the backend
  int queue_depth = 16;  // pieces of 1 MiB in flight; threads: at most 16 of them
  IoPreference preference = IoPreference::kAuto;
  std::string directory;  // where the trial file is written, read and removed
  Logger* logger;         // outlives the call
  FileCalls* files;       // the thread backend's system calls; outlives the backend
  // Registered with the ring where that is allowed: the first stay open as long as the backend,
  // see IoRing for the second.
  std::span<const int> fixed_files = {};
  std::span<const std::span<std::byte>> fixed_memory = {};
};

// How a backend is made; tests give one that fails on demand or runs on virtual time.
using IoBackendFactory =
    std::function<absl::StatusOr<std::unique_ptr<IoBackend>>(const IoBackendOptions&)>;

// Blocks for a write and a read of 4 KiB in a temporary file of `directory`.
// Errors: those of creating a file there; those of the backend asked for; kDataLoss when what was
// read is not what was written; kInvalidArgument for a number out of range.
absl::StatusOr<std::unique_ptr<IoBackend>> CreateIoBackend(const IoBackendOptions& options);

}  // namespace gantry

#endif  // GANTRY_NVME_CREATE_IO_BACKEND_H_
