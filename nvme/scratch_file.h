// Files that exist only as long as they are open: created exclusively, private to the user, and
// unlinked at once, so that a crash leaves nothing.
#ifndef GANTRY_NVME_SCRATCH_FILE_H_
#define GANTRY_NVME_SCRATCH_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "base/files.h"

namespace gantry {

struct ScratchFileName {
  int directory_fd;
  std::string directory;  // for messages
  std::string name;       // without '/'
};

// Creates `name` (0600, O_EXCL, O_NOFOLLOW, O_CLOEXEC, for reading and writing) with further open
// flags (O_DIRECT or 0), and unlinks it.
// Errors: as DirectoryError; kInvalidArgument when the file system refuses `open_flags`.
absl::StatusOr<FileDescriptor> CreateScratchFile(FileCalls& files, const ScratchFileName& file,
                                                 int open_flags);

// The same under a random name in `directory`.
absl::StatusOr<FileDescriptor> CreateScratchFile(FileCalls& files, const std::string& directory);

// Opens a directory for openat and flock. Errors: as DirectoryError.
absl::StatusOr<FileDescriptor> OpenDirectory(FileCalls& files, const std::string& directory);

// The error for a directory in which something could not be made, which says what to do about it:
// kNotFound (missing), kInvalidArgument (not a directory), kPermissionDenied (read-only or not
// ours), kResourceExhausted (full, with the bytes and file entries that are free), else kInternal.
absl::Status DirectoryError(int error_number, const std::string& directory);

// 16 hexadecimal digits from the system's random source. Errors: kInternal when it gives none.
absl::StatusOr<std::string> RandomName();

}  // namespace gantry

#endif  // GANTRY_NVME_SCRATCH_FILE_H_
