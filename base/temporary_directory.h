// A directory that appears under its name when all of it is there, or not at all.
//
//   GANTRY_ASSIGN_OR_RETURN(TemporaryDirectory folder, TemporaryDirectory::Create(&files, "out"));
//   ... write files into folder.path(), each of them synced ...
//   GANTRY_RETURN_IF_ERROR(folder.Commit());
//
// It is written beside its final place as .NAME.gantry-0123456789abcdef.tmp, which a crash leaves
// behind. Movable; thread-compatible.
#ifndef GANTRY_BASE_TEMPORARY_DIRECTORY_H_
#define GANTRY_BASE_TEMPORARY_DIRECTORY_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"

namespace gantry {

class TemporaryDirectory {
 public:
  // Makes it, and the parents of `place`. `files` outlives the object. Errors: kAlreadyExists
  // unless there is nothing at `place` or an empty directory; as ErrnoStatus.
  static absl::StatusOr<TemporaryDirectory> Create(FileCalls* files, const std::string& place);

  TemporaryDirectory(TemporaryDirectory&& other) noexcept
      : files_(other.files_),
        path_(std::exchange(other.path_, {})),
        place_(std::move(other.place_)) {}
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  // Removes what was not committed.
  ~TemporaryDirectory();

  const std::string& path() const { return path_; }
  const std::string& place() const { return place_; }

  // Gives it its name, durably. Once only. Errors: kAlreadyExists when something came there in the
  // meantime; as ErrnoStatus. After an error nothing is at the place, unless only the sync of its
  // parent failed.
  absl::Status Commit();

 private:
  TemporaryDirectory(FileCalls* files, std::string path, std::string place)
      : files_(files), path_(std::move(path)), place_(std::move(place)) {}

  FileCalls* files_;
  std::string path_;  // empty: nothing to remove
  std::string place_;
};

}  // namespace gantry

#endif  // GANTRY_BASE_TEMPORARY_DIRECTORY_H_
