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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

// Repeats a system call while signals interrupt it.
template <typename Call>
auto RetryInterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

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

// ---- Temporary files
// -----------------------------------------------------------------------------

// A file that is unlinked again unless Commit renamed it.
class TemporaryFile {
 public:
  static absl::StatusOr<std::unique_ptr<TemporaryFile>> Create(const std::string& directory);
  TemporaryFile(std::string path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }

  absl::Status SetPermissions(mode_t mode) {
    if (fchmod(file_.get(), mode) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, StrCat("chmod ", path_));
  }
  absl::Status Write(std::span<const std::byte> content);
  // Makes the content durable and gives the file its name.
  absl::Status Commit(const std::string& name);

 private:
  std::string path_;  // empty once renamed
  FileDescriptor file_;
};

absl::StatusOr<std::unique_ptr<TemporaryFile>> TemporaryFile::Create(const std::string& directory) {
  constexpr int kAttempts = 16;  // a clash of 64 random bits means that somebody is playing
  absl::Status last = absl::OkStatus();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    uint64_t bits = 0;
    if (RetryInterrupted([&] { return getrandom(&bits, sizeof(bits), 0); }) != sizeof(bits)) {
      return ErrnoStatus(errno, "getrandom");
    }
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(bits));
    std::string path = StrCat(directory, "/.gantry-", digits.data(), ".tmp");
    absl::StatusOr<FileDescriptor> file = OpenFile(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (file.ok()) return std::make_unique<TemporaryFile>(std::move(path), *std::move(file));
    last = std::move(file).status();
    if (!absl::IsAlreadyExists(last)) break;
  }
  return last;
}

absl::Status TemporaryFile::Write(std::span<const std::byte> content) {
  while (!content.empty()) {
    const ssize_t written =
        RetryInterrupted([&] { return write(file_.get(), content.data(), content.size()); });
    if (written < 0) return ErrnoStatus(errno, StrCat("write ", content.size(), " B to ", path_));
    content = content.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status TemporaryFile::Commit(const std::string& name) {
  if (RetryInterrupted([&] { return fsync(file_.get()); }) != 0) {
    return ErrnoStatus(errno, StrCat("fsync ", path_));
  }
  if (absl::Status closed = file_.Close(); !closed.ok()) {
    return MakeStatus(closed.code(), path_, ": ", FromAbsl(closed.message()));
  }
  if (rename(path_.c_str(), name.c_str()) != 0) {
    return ErrnoStatus(errno, StrCat("rename ", path_, " to ", name));
  }
  path_.clear();
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& path) {
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor directory, OpenFile(path, O_RDONLY | O_DIRECTORY, 0));
  if (RetryInterrupted([&] { return fsync(directory.get()); }) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, StrCat("fsync directory ", path));
}

// ---- Trees
// ---------------------------------------------------------------------------------------

struct DirectoryCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};

// Removes what the open directory holds. Works on descriptors and never follows links, so nobody
// who swaps a directory for a link meanwhile can lead it out of the tree.
absl::Status RemoveEntries(FileDescriptor directory, const std::string& path) {
  const std::unique_ptr<DIR, DirectoryCloser> stream(fdopendir(directory.get()));
  if (stream == nullptr) return ErrnoStatus(errno, StrCat("read directory ", path));
  const int fd = directory.Release();  // the stream owns it now
  while (true) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (unlinkat(fd, name.c_str(), 0) == 0) continue;
    const std::string child = StrCat(path, "/", name);
    if (errno != EISDIR) return ErrnoStatus(errno, StrCat("unlink ", child));
    const int child_fd = RetryInterrupted(
        [&] { return openat(fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
    if (child_fd < 0) return ErrnoStatus(errno, StrCat("open ", child));
    GANTRY_RETURN_IF_ERROR(RemoveEntries(FileDescriptor(child_fd), child));
    if (unlinkat(fd, name.c_str(), AT_REMOVEDIR) != 0) {
      return ErrnoStatus(errno, StrCat("rmdir ", child));
    }
  }
  if (errno != 0) return ErrnoStatus(errno, StrCat("read directory ", path));
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

absl::StatusOr<FileDescriptor> OpenFile(const std::string& path, int flags, int mode) {
  GANTRY_RETURN_IF_ERROR(CheckPath(path));
  const int fd = RetryInterrupted([&] { return open(path.c_str(), flags | O_CLOEXEC, mode); });
  if (fd < 0) return ErrnoStatus(errno, StrCat("open ", path));
  return FileDescriptor(fd);
}

absl::StatusOr<std::string> ReadFileToString(const std::string& path, Bytes bytes_max) {
  GANTRY_CHECK_GE(bytes_max.count(), 0);
  // Non-blocking, so that a FIFO is refused below rather than waited for.
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor file, OpenFile(path, O_RDONLY | O_NONBLOCK, 0));
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(errno, StrCat("stat ", path));
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(path, " is ", KindName(info.st_mode), ", not a regular file");
  }
  if (info.st_size > bytes_max.count()) {
    return ResourceExhausted(path, " holds ", info.st_size, " B, more than the ", bytes_max.count(),
                             " B allowed");
  }
  // The size is a hint only: /proc says 0, and another process may be writing.
  constexpr int64_t kStep = 64 << 10;
  std::string content;
  while (true) {
    const auto held = static_cast<int64_t>(content.size());
    const int64_t wanted = std::max<int64_t>(info.st_size - held, 0) + kStep;
    content.resize(static_cast<size_t>(held + wanted));
    const ssize_t got = RetryInterrupted(
        [&] { return read(file.get(), content.data() + held, static_cast<size_t>(wanted)); });
    content.resize(static_cast<size_t>(held + std::max<ssize_t>(got, 0)));
    if (got < 0) return ErrnoStatus(errno, StrCat("read ", path, " at offset ", held));
    if (got == 0) return content;
    if (held + got > bytes_max.count()) {
      return ResourceExhausted(path, " holds more than the ", bytes_max.count(), " B allowed");
    }
  }
}

absl::Status WriteFileAtomically(const std::string& path, std::span<const std::byte> content) {
  GANTRY_RETURN_IF_ERROR(CheckPath(path));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<struct stat> old, StatLink(path));
  const bool old_file = old.has_value() && S_ISREG(old->st_mode);
  if (old.has_value() && !old_file && !S_ISLNK(old->st_mode)) {
    return InvalidArgument(path, " is ", KindName(old->st_mode), ", not a file to replace");
  }
  const std::string directory = ParentOf(path);
  GANTRY_ASSIGN_OR_RETURN(const auto temporary, TemporaryFile::Create(directory));
  if (old_file) GANTRY_RETURN_IF_ERROR(temporary->SetPermissions(old->st_mode & 07777));
  GANTRY_RETURN_IF_ERROR(temporary->Write(content));
  GANTRY_RETURN_IF_ERROR(temporary->Commit(path));
  return SyncDirectory(directory);
}

absl::Status MakeDirectory(const std::string& path, int mode) {
  GANTRY_RETURN_IF_ERROR(CheckPath(path));
  if (mkdir(path.c_str(), static_cast<mode_t>(mode)) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, StrCat("create directory ", path));
}

absl::Status RemoveTree(const std::string& path) {
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
  GANTRY_ASSIGN_OR_RETURN(FileDescriptor directory,
                          OpenFile(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0));
  GANTRY_RETURN_IF_ERROR(RemoveEntries(std::move(directory), root));
  if (rmdir(root.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, StrCat("rmdir ", root));
}

}  // namespace gantry
