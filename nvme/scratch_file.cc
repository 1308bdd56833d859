#include "nvme/scratch_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <iomanip>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nvme/describe.h"

namespace gantry {

absl::StatusOr<FileDescriptor> CreateScratchFile(FileCalls& files, const ScratchFileName& file,
                                                 int open_flags) {
  GANTRY_CHECK(!file.name.empty() && file.name.find('/') == std::string::npos) << file.name;
  const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | open_flags;
  const int result =
      RetryInterrupted([&] { return files.Open(file.directory_fd, file.name, flags, 0600); });
  FileDescriptor fd(result);
  // A refused O_DIRECT leaves the new file behind on some file systems.
  if (fd.valid() || result == -EINVAL) {
    const int error = files.Unlink(file.directory_fd, file.name, 0);
    if (error != 0 && error != -ENOENT) return DirectoryError(-error, file.directory);
  }
  if (result == -EINVAL && open_flags != 0) {
    return InvalidArgument("'", file.directory, "' refuses files opened with flags ", open_flags);
  }
  if (!fd.valid()) return DirectoryError(-result, file.directory);
  return fd;
}

absl::StatusOr<FileDescriptor> CreateScratchFile(FileCalls& files, const std::string& directory) {
  GANTRY_ASSIGN_OR_RETURN(const FileDescriptor parent, OpenDirectory(files, directory));
  GANTRY_ASSIGN_OR_RETURN(const std::string random, RandomName());
  return CreateScratchFile(files,
                           {.directory_fd = parent.get(),
                            .directory = directory,
                            .name = StrCat("gantry-trial-", getpid(), "-", random)},
                           0);
}

absl::StatusOr<FileDescriptor> OpenDirectory(FileCalls& files, const std::string& directory) {
  const int fd =
      RetryInterrupted([&] { return files.Open(AT_FDCWD, directory, O_RDONLY | O_DIRECTORY, 0); });
  if (fd < 0) return DirectoryError(-fd, directory);
  return FileDescriptor(fd);
}

absl::Status DirectoryError(int error_number, const std::string& directory) {
  const std::string quoted = StrCat("spill directory '", directory, "'");
  switch (error_number) {
    case ENOENT:
      return NotFound(quoted, " does not exist: create it or name another one");
    case ENOTDIR:
      return InvalidArgument(quoted, " is not a directory: name a directory");
    case EROFS:
      return MakeStatus(absl::StatusCode::kPermissionDenied, quoted,
                        " is on a read-only file system: mount it writable or name another one");
    case EACCES:
    case EPERM:
      return MakeStatus(absl::StatusCode::kPermissionDenied, quoted, " may not be written by user ",
                        geteuid(), ": change its permissions or name another one");
    case ENOSPC:
    case EDQUOT: {
      struct statvfs space{};
      const bool known = statvfs(directory.c_str(), &space) == 0;
      return ResourceExhausted(quoted, " is full (",
                               known
                                   ? StrCat(uint64_t{space.f_bavail} * space.f_frsize,
                                            " bytes and ", space.f_favail, " file entries are free")
                                   : DescribeErrno(error_number),
                               error_number == EDQUOT ? "; your quota is used up" : "",
                               "): free space there or name another one");
    }
    default:
      return Internal(quoted, " can't be used: ", DescribeErrno(error_number));
  }
}

absl::StatusOr<std::string> RandomName() {
  uint64_t bits = 0;
  ssize_t length = 0;
  do {
    length = getrandom(&bits, sizeof(bits), 0);
  } while (length < 0 && errno == EINTR);
  if (length != sizeof(bits)) {
    return Internal("no random numbers for the name of a file: getrandom: ",
                    length < 0 ? DescribeErrno(errno) : StrCat(length, " bytes"));
  }
  std::ostringstream text;
  text << std::hex << std::setw(16) << std::setfill('0') << bits;
  return text.str();
}

}  // namespace gantry
