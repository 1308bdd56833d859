// A preallocated scratch file of equal extents: the file tier's slots. Hands out extents and builds
// the requests that read and write them; the I/O itself goes through an IoBackend.
//
//   GANTRY_ASSIGN_OR_RETURN(auto file, BlockFile::Create({.directory = run.get(), .name = "blocks",
//       .extent_bytes = slot_bytes, .extent_count = 64, .logger = logger,
//       .files = &posix}));
//   GANTRY_ASSIGN_OR_RETURN(ExtentId extent, file->AllocateExtent());
//   backend->Submit(file->WriteRequest({.extent = extent, .offset = 0, .buffer = block, .tag =
//   1}));
//
// Direct I/O (O_DIRECT) where the file system allows it, so that spilled blocks do not fill the
// page cache; buffered otherwise, see direct().
//
// Thread-safe. Contents are undefined until written. Requests must have completed before the file
// is destroyed.
#ifndef GANTRY_NVME_BLOCK_FILE_H_
#define GANTRY_NVME_BLOCK_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/log.h"
#include "base/mutex.h"
#include "nvme/extent_id.h"
#include "nvme/io_backend.h"
#include "nvme/run_directory.h"

namespace gantry {

class BlockFile {
 public:
  enum class DirectIo { kWherePossible, kNever };

  struct Options {
    const RunDirectory* directory;  // needed during Create only
    std::string name;               // free again after Create: the file is unlinked
    Bytes extent_bytes;             // positive multiple of kExtentGranule
    int64_t extent_count;           // at least 0
    Logger* logger;                 // needed during Create and Grow, as is `files`
    FileCalls* files;               // its Allocate, ReadAt and WriteAt
    DirectIo direct_io = DirectIo::kWherePossible;
  };

  struct Part {
    ExtentId extent;
    int64_t offset;               // bytes from the start of the extent
    std::span<std::byte> buffer;  // the caller's until the completion
    uint64_t tag;
  };

  static constexpr int64_t kExtentGranule = 4096;

  // Blocks for the preallocation.
  // Errors: kInvalidArgument for a bad size, kResourceExhausted when the drive lacks the space
  // (names directory, bytes needed and bytes free), else as RunDirectory::CreateFile.
  static absl::StatusOr<std::unique_ptr<BlockFile>> Create(const Options& options);

  // Adds extents. Blocks for the preallocation; the other calls go on meanwhile. Nothing changes on
  // failure. Errors: as Create.
  absl::Status Grow(int64_t extents) GANTRY_EXCLUDES(mutex_, grow_mutex_);

  // Errors: kResourceExhausted when every extent is taken.
  absl::StatusOr<ExtentId> AllocateExtent() GANTRY_EXCLUDES(mutex_);
  // REQUIRES: allocated; no request on it is under way.
  void FreeExtent(ExtentId extent) GANTRY_EXCLUDES(mutex_);

  // A request for a part of an extent. REQUIRES: the extent is allocated; the part lies inside it;
  // offset and size are multiples of offset_alignment(), the buffer's address of
  // memory_alignment().
  IoRequest ReadRequest(const Part& part) const { return Request(IoRequest::Kind::kRead, part); }
  IoRequest WriteRequest(const Part& part) const { return Request(IoRequest::Kind::kWrite, part); }

  Bytes extent_bytes() const { return Bytes(extent_bytes_); }
  int64_t extents() const GANTRY_EXCLUDES(mutex_);
  int64_t extents_free() const GANTRY_EXCLUDES(mutex_);

  int fd() const { return fd_.get(); }
  bool direct() const { return direct_; }                         // O_DIRECT is on
  bool preallocated() const { return preallocated_; }             // else ENOSPC may come later
  int64_t offset_alignment() const { return offset_alignment_; }  // 1 when buffered
  int64_t memory_alignment() const { return memory_alignment_; }  // 1 when buffered

 private:
  BlockFile(FileDescriptor fd, const Options& options);
  absl::Status DetectAlignment(bool opened_direct);
  absl::Status ProbeDirect(int64_t alignment) const;
  absl::Status UseBuffered();
  absl::Status Reserve(int64_t first_byte, int64_t bytes);
  IoRequest Request(IoRequest::Kind kind, const Part& part) const GANTRY_EXCLUDES(mutex_);

  const FileDescriptor fd_;
  const std::string directory_;  // for messages
  const int64_t extent_bytes_;
  Logger* const logger_;
  FileCalls* const file_calls_;
  // Written by Create only.
  bool direct_ = false;
  bool preallocated_ = true;
  int64_t offset_alignment_ = 1;
  int64_t memory_alignment_ = 1;

  Mutex grow_mutex_;  // taken before mutex_
  mutable Mutex mutex_;
  std::vector<char> allocated_ GANTRY_GUARDED_BY(mutex_);  // per extent
  std::vector<int64_t> free_ GANTRY_GUARDED_BY(mutex_);    // last is handed out next
};

}  // namespace gantry

#endif  // GANTRY_NVME_BLOCK_FILE_H_
