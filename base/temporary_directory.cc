#include "base/temporary_directory.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

std::string WithoutTrailingSlashes(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  return last == std::string::npos ? path.substr(0, 1) : path.substr(0, last + 1);
}

struct Parts {
  std::string parent;
  std::string name;
};
Parts SplitPath(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

absl::Status IsThere(const std::string& place) {
  return MakeStatus(absl::StatusCode::kAlreadyExists, "'", place,
                    "' is there already: name another folder, or remove it first");
}

absl::Status ExpectFree(FileCalls& files, const std::string& place) {
  struct stat info{};
  if (lstat(place.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, StrCat("stat ", place));
  }
  if (!S_ISDIR(info.st_mode)) return IsThere(place);
  GANTRY_ASSIGN_OR_RETURN(const FileDescriptor opened,
                          OpenFile(files, place, O_RDONLY | O_DIRECTORY, 0));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ListNames(files, {opened.get(), place}));
  return names.empty() ? absl::OkStatus() : IsThere(place);
}

}  // namespace

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::Create(FileCalls* files,
                                                              const std::string& place) {
  if (place.empty()) return InvalidArgument("empty folder name");
  std::string final_place = WithoutTrailingSlashes(place);
  const Parts parts = SplitPath(final_place);
  if (parts.name.empty() || parts.name == "." || parts.name == "..") {
    return InvalidArgument("'", place, "' is no name for a new folder");
  }
  GANTRY_RETURN_IF_ERROR(ExpectFree(*files, final_place));
  GANTRY_RETURN_IF_ERROR(MakeDirectories(*files, parts.parent));
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) return ErrnoStatus(errno, "getrandom");
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(bits));
  std::string path = StrCat(parts.parent, "/.", parts.name, ".gantry-", digits.data(), ".tmp");
  GANTRY_RETURN_IF_ERROR(MakeDirectory(*files, path, 0777));
  return TemporaryDirectory(files, std::move(path), std::move(final_place));
}

TemporaryDirectory::~TemporaryDirectory() {
  // Whoever gave up knows why; a remainder is recognised by its name.
  if (!path_.empty()) RemoveTree(*files_, path_).IgnoreError();
}

absl::Status TemporaryDirectory::Commit() {
  GANTRY_CHECK(!path_.empty()) << "committed twice: " << place_;
  GANTRY_RETURN_IF_ERROR(SyncDirectory(*files_, path_));
  // An empty directory at the place is replaced, anything else is refused by the system.
  const int error = files_->Rename(AT_FDCWD, path_, AT_FDCWD, place_);
  if (error == -ENOTEMPTY || error == -EEXIST || error == -ENOTDIR) return IsThere(place_);
  if (error != 0) return ErrnoStatus(-error, StrCat("rename ", path_, " to ", place_));
  path_.clear();
  return SyncDirectory(*files_, SplitPath(place_).parent);
}

}  // namespace gantry
