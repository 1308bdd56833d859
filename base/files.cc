#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

absl::Status CheckPath(const std::string& path) {
  if (path.empty()) return InvalidArgument("empty file name");
  if (path.find('\0') != std::string::npos) {
    return InvalidArgument("file name '", path.c_str(), "...' holds a zero byte");
  }
  return absl::OkStatus();
}

// "a/b" -> "a", "/b" -> "/", "b" -> ".".
std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string WithoutTrailingSlashes(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

std::string_view LastComponent(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

std::string_view KindName(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return S_ISLNK(mode) ? "a symbolic link" : "a file";
}

// What is at `path` itself, or nothing.
absl::StatusOr<std::optional<struct stat>> StatLink(const std::string& path) {
  struct stat info{};
  if (lstat(path.c_str(), &info) == 0) return info;
  if (errno == ENOENT) return std::nullopt;
  return ErrnoStatus(errno, StrCat("stat ", path));
}

bool IsDirectory(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// ---- Temporary files
// -----------------------------------------------------------------------------

// A file that is unlinked again unless Commit renamed it.
class TemporaryFile {
 public:
  static absl::StatusOr<std::unique_ptr<TemporaryFile>> Create(FileCalls& files,
                                                               const std::string& directory);
  TemporaryFile(FileCalls& files, std::string path, FileDescriptor file)
      : files_(files), path_(std::move(path)), file_(std::move(file)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!path_.empty()) files_.Unlink(AT_FDCWD, path_, 0);
  }

  absl::Status SetPermissions(mode_t mode) {
    if (fchmod(file_.get(), mode) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, StrCat("chmod ", path_));
  }
  // Fills it, makes that durable, and gives it its name.
  absl::Status Commit(std::span<const std::byte> content, const std::string& name);

 private:
  FileCalls& files_;
  std::string path_;  // empty once renamed
  FileDescriptor file_;
};

absl::StatusOr<std::unique_ptr<TemporaryFile>> TemporaryFile::Create(FileCalls& files,
                                                                     const std::string& directory) {
  constexpr int kAttempts = 16;  // a clash of 64 random bits means that somebody is playing
  absl::Status last = absl::OkStatus();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    uint64_t bits = 0;
    if (getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) return ErrnoStatus(errno, "getrandom");
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(bits));
    std::string path = StrCat(directory, "/.gantry-", digits.data(), ".tmp");
    absl::StatusOr<FileDescriptor> file = OpenFile(files, path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (file.ok()) {
      return std::make_unique<TemporaryFile>(files, std::move(path), *std::move(file));
    }
    last = std::move(file).status();
    if (!absl::IsAlreadyExists(last)) break;
  }
  return last;
}

absl::Status TemporaryFile::Commit(std::span<const std::byte> content, const std::string& name) {
  const OpenedFile file{file_.get(), path_};
  GANTRY_RETURN_IF_ERROR(WriteAll(files_, file, 0, content));
  GANTRY_RETURN_IF_ERROR(SyncFile(files_, file));
  if (absl::Status closed = file_.Close(); !closed.ok()) {
    return MakeStatus(closed.code(), path_, ": ", FromAbsl(closed.message()));
  }
  if (const int error = files_.Rename(AT_FDCWD, path_, AT_FDCWD, name); error < 0) {
    return ErrnoStatus(-error, StrCat("rename ", path_, " to ", name));
  }
  path_.clear();
  return absl::OkStatus();
}

// ---- Trees
// ---------------------------------------------------------------------------------------

// Removes what the open directory holds. Works on descriptors and never follows links, so nobody
// who swaps a directory for a link meanwhile can lead it out of the tree.
absl::Status RemoveEntries(FileCalls& files, OpenedFile directory) {
  GANTRY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNames(files, directory));
  for (const std::string& name : names) {
    int error = files.Unlink(directory.fd, name, 0);
    if (error == 0) continue;
    const std::string path = StrCat(directory.path, "/", name);
    if (error != -EISDIR) return ErrnoStatus(-error, StrCat("unlink ", path));
    const int fd = RetryInterrupted(
        [&] { return files.Open(directory.fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0); });
    if (fd < 0) return ErrnoStatus(-fd, StrCat("open ", path));
    const FileDescriptor child(fd);
    GANTRY_RETURN_IF_ERROR(RemoveEntries(files, {fd, path}));
    error = files.Unlink(directory.fd, name, AT_REMOVEDIR);
    if (error < 0) return ErrnoStatus(-error, StrCat("rmdir ", path));
  }
  return absl::OkStatus();
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.Release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

absl::Status FileDescriptor::Close() {
  if (fd_ < 0) return absl::OkStatus();
  // Not repeated after EINTR: Linux has released the number by then.
  const int result = close(Release());
  if (result == 0 || errno == EINTR) return absl::OkStatus();
  return ErrnoStatus(errno, "close");
}

absl::StatusOr<FileDescriptor> OpenFile(FileCalls& files, const std::string& path, int flags,
                                        int mode) {
  GANTRY_RETURN_IF_ERROR(CheckPath(path));
  const int fd = RetryInterrupted([&] { return files.Open(AT_FDCWD, path, flags, mode); });
  if (fd < 0) return ErrnoStatus(-fd, StrCat("open ", path));
  return FileDescriptor(fd);
}

absl::Status ReadAll(FileCalls& files, OpenedFile file, int64_t offset,
                     std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t got = RetryInterrupted([&] { return files.ReadAt(file.fd, bytes, offset); });
    if (got < 0) {
      return ErrnoStatus(static_cast<int>(-got), StrCat("read ", file.path, " at offset ", offset));
    }
    if (got == 0) return DataLoss(file.path, " ends at ", offset, ": it was cut short");
    offset += got;
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

absl::Status WriteAll(FileCalls& files, OpenedFile file, int64_t offset,
                      std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t written = RetryInterrupted([&] { return files.WriteAt(file.fd, bytes, offset); });
    if (written < 0) {
      return ErrnoStatus(static_cast<int>(-written), StrCat("write ", bytes.size(), " B to ",
                                                            file.path, " at offset ", offset));
    }
    if (written == 0) return Internal(file.path, " takes no more bytes at offset ", offset);
    offset += written;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SyncFile(FileCalls& files, OpenedFile file) {
  const int error =
      RetryInterrupted([&] { return files.Sync(file.fd, FileCalls::SyncKind::kAll); });
  return error == 0 ? absl::OkStatus() : ErrnoStatus(-error, StrCat("fsync ", file.path));
}

absl::Status SyncDirectory(FileCalls& files, const std::string& path) {
  GANTRY_ASSIGN_OR_RETURN(const FileDescriptor directory,
                          OpenFile(files, path, O_RDONLY | O_DIRECTORY, 0));
  return SyncFile(files, {directory.get(), path});
}

absl::StatusOr<std::vector<std::string>> ListNames(FileCalls& files, OpenedFile directory) {
  // A descriptor of its own: readdir moves the position and closedir closes.
  const int fd =
      RetryInterrupted([&] { return files.Open(directory.fd, ".", O_RDONLY | O_DIRECTORY, 0); });
  if (fd < 0) return ErrnoStatus(-fd, StrCat("open directory ", directory.path));
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(fd), closedir);
  GANTRY_CHECK(stream != nullptr) << "fdopendir: errno " << errno;
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return ErrnoStatus(errno, StrCat("read directory ", directory.path));
  return names;
}

absl::StatusOr<std::string> ReadFileToString(FileCalls& files, const std::string& path,
                                             Bytes bytes_max) {
  GANTRY_CHECK_GE(bytes_max.count(), 0);
  // Non-blocking, so that a FIFO is refused below rather than waited for.
  GANTRY_ASSIGN_OR_RETURN(const FileDescriptor file,
                          OpenFile(files, path, O_RDONLY | O_NONBLOCK, 0));
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(errno, StrCat("stat ", path));
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(path, " is ", KindName(info.st_mode), ", not a regular file");
  }
  if (info.st_size > bytes_max.count()) {
    return ResourceExhausted(path, " holds ", info.st_size, " B, more than the ", bytes_max.count(),
                             " B allowed");
  }
  // The size may grow: /proc says 0, and another process may be writing. What is missing at the end
  // was lost, except in /sys, whose files claim a page and occupy nothing.
  constexpr int64_t kStep = 64 << 10;
  std::string content;
  while (true) {
    const auto held = static_cast<int64_t>(content.size());
    const int64_t wanted = std::max<int64_t>(info.st_size - held, 0) + kStep;
    content.resize(static_cast<size_t>(held + wanted));
    const auto room = std::as_writable_bytes(std::span(content)).subspan(static_cast<size_t>(held));
    const int64_t got = RetryInterrupted([&] { return files.ReadAt(file.get(), room, held); });
    if (got < 0) {
      return ErrnoStatus(static_cast<int>(-got), StrCat("read ", path, " at offset ", held));
    }
    content.resize(static_cast<size_t>(held + got));
    if (got == 0 && held < info.st_size && info.st_blocks > 0) {
      return DataLoss(path, " ends at ", held, " of ", info.st_size, " B: it was cut short");
    }
    if (got == 0) return content;
    if (held + got > bytes_max.count()) {
      return ResourceExhausted(path, " holds more than the ", bytes_max.count(), " B allowed");
    }
  }
}

absl::Status WriteFileAtomically(FileCalls& files, const std::string& path,
                                 std::span<const std::byte> content) {
  GANTRY_RETURN_IF_ERROR(CheckPath(path));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<struct stat> old, StatLink(path));
  const bool old_file = old.has_value() && S_ISREG(old->st_mode);
  if (old.has_value() && !old_file && !S_ISLNK(old->st_mode)) {
    return InvalidArgument(path, " is ", KindName(old->st_mode), ", not a file to replace");
  }
  const std::string directory = ParentOf(path);
  GANTRY_ASSIGN_OR_RETURN(const auto temporary, TemporaryFile::Create(files, directory));
  if (old_file) GANTRY_RETURN_IF_ERROR(temporary->SetPermissions(old->st_mode & 07777));
  GANTRY_RETURN_IF_ERROR(temporary->Commit(content, path));
  return SyncDirectory(files, directory);
}

absl::Status MakeDirectory(FileCalls& files, const std::string& path, int mode) {
  GANTRY_RETURN_IF_ERROR(CheckPath(path));
  const int error = files.MakeDirectory(AT_FDCWD, path, mode);
  return error == 0 ? absl::OkStatus() : ErrnoStatus(-error, StrCat("create directory ", path));
}

absl::Status MakeDirectories(FileCalls& files, const std::string& path) {
  GANTRY_RETURN_IF_ERROR(CheckPath(path));
  const std::string name = WithoutTrailingSlashes(path);
  if (IsDirectory(name)) return absl::OkStatus();
  absl::Status made = MakeDirectory(files, name, 0777);
  if (absl::IsNotFound(made) && ParentOf(name) != name) {
    GANTRY_RETURN_IF_ERROR(MakeDirectories(files, ParentOf(name)));
    made = MakeDirectory(files, name, 0777);
  }
  return absl::IsAlreadyExists(made) && IsDirectory(name) ? absl::OkStatus() : made;
}

absl::Status RemoveTree(FileCalls& files, const std::string& path) {
  GANTRY_RETURN_IF_ERROR(CheckPath(path));
  const std::string root = WithoutTrailingSlashes(path);
  const std::string_view last = LastComponent(root);
  if (last.empty() || last == "." || last == "..") {
    return InvalidArgument("refusing to remove ", path, ": name the directory itself");
  }
  GANTRY_ASSIGN_OR_RETURN(const std::optional<struct stat> info, StatLink(root));
  if (!info.has_value()) return NotFound("no directory ", root);
  if (!S_ISDIR(info->st_mode)) {
    return InvalidArgument("refusing to remove ", root, ": it is ", KindName(info->st_mode),
                           ", not a directory");
  }
  GANTRY_ASSIGN_OR_RETURN(const FileDescriptor directory,
                          OpenFile(files, root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0));
  GANTRY_RETURN_IF_ERROR(RemoveEntries(files, {directory.get(), root}));
  const int error = files.Unlink(AT_FDCWD, root, AT_REMOVEDIR);
  return error == 0 ? absl::OkStatus() : ErrnoStatus(-error, StrCat("rmdir ", root));
}

}  // namespace gantry
