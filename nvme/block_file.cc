#include "nvme/block_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nvme/describe.h"

namespace gantry {
namespace {

// The alignment that is tried where the kernel does not tell: no drive in use needs more.
constexpr int64_t kAlignmentTried = 4096;

struct AlignedFree {
  void operator()(std::byte* pointer) const { std::free(pointer); }
};
using AlignedBuffer = std::unique_ptr<std::byte, AlignedFree>;

bool IsAligned(const void* pointer, int64_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(alignment) == 0;
}

absl::Status CheckSizes(Bytes extent_bytes, int64_t extents) {
  const int64_t bytes = extent_bytes.count();
  if (bytes <= 0 || bytes % BlockFile::kExtentGranule != 0) {
    return InvalidArgument("extent_bytes must be a positive multiple of ",
                           BlockFile::kExtentGranule, ", not ", bytes);
  }
  if (extents < 0 || extents > std::numeric_limits<int64_t>::max() / bytes) {
    return InvalidArgument("a file of ", extents, " extents of ", bytes, " bytes is impossible");
  }
  return absl::OkStatus();
}

}  // namespace

BlockFile::BlockFile(FileDescriptor fd, const Options& options)
    : fd_(std::move(fd)),
      directory_(options.directory->path()),
      extent_bytes_(options.extent_bytes.count()),
      logger_(options.logger),
      file_calls_(options.files) {}

absl::StatusOr<std::unique_ptr<BlockFile>> BlockFile::Create(const Options& options) {
  GANTRY_CHECK(options.directory != nullptr && options.logger != nullptr &&
               options.files != nullptr);
  GANTRY_RETURN_IF_ERROR(CheckSizes(options.extent_bytes, options.extent_count));
  bool opened_direct = options.direct_io == DirectIo::kWherePossible;
  auto fd = options.directory->CreateFile(options.name, opened_direct ? O_DIRECT : 0);
  if (opened_direct && absl::IsInvalidArgument(fd.status())) {
    opened_direct = false;
    fd = options.directory->CreateFile(options.name, 0);
  }
  GANTRY_RETURN_IF_ERROR(fd.status());
  std::unique_ptr<BlockFile> file(new BlockFile(*std::move(fd), options));
  GANTRY_RETURN_IF_ERROR(file->DetectAlignment(opened_direct));
  if (!file->direct_ && options.direct_io == DirectIo::kWherePossible) {
    options.logger->WarnOnce(StrCat("'", file->directory_,
                                    "' does not allow direct I/O; spilled blocks go through the "
                                    "page cache"));
  }
  GANTRY_RETURN_IF_ERROR(file->Grow(options.extent_count));
  return file;
}

// Asks statx; where that does not know, tries. Clears O_DIRECT when direct I/O would not work.
absl::Status BlockFile::DetectAlignment(bool opened_direct) {
  if (!opened_direct) return absl::OkStatus();
  int64_t offset_alignment = kAlignmentTried;
  int64_t memory_alignment = kAlignmentTried;
  struct statx status{};
  const bool known = statx(fd_.get(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
                     (status.stx_mask & STATX_DIOALIGN) != 0;
  if (known) {
    offset_alignment = status.stx_dio_offset_align;
    memory_alignment = status.stx_dio_mem_align;
    if (offset_alignment == 0 || memory_alignment == 0) return UseBuffered();
  }
  const int64_t larger = std::max(offset_alignment, memory_alignment);
  if (extent_bytes_ % offset_alignment != 0 || larger > kExtentGranule) return UseBuffered();
  const absl::Status tried = ProbeDirect(larger);
  if (absl::IsInvalidArgument(tried)) return UseBuffered();
  GANTRY_RETURN_IF_ERROR(tried);
  direct_ = true;
  offset_alignment_ = offset_alignment;
  memory_alignment_ = memory_alignment;
  return absl::OkStatus();
}

// A real write and read of one aligned unit. Errors: kInvalidArgument when the kernel refuses the
// transfer as such.
absl::Status BlockFile::ProbeDirect(int64_t alignment) const {
  const auto size = static_cast<size_t>(alignment);
  const AlignedBuffer buffer(static_cast<std::byte*>(std::aligned_alloc(size, size)));
  if (buffer == nullptr) return ResourceExhausted("no memory for ", size, " bytes");
  std::fill_n(buffer.get(), size, std::byte{0});
  const std::span<std::byte> unit(buffer.get(), size);
  int64_t moved = file_calls_->WriteAt(fd_.get(), unit, 0);
  if (moved == alignment) moved = file_calls_->ReadAt(fd_.get(), unit, 0);
  if (moved == alignment) return absl::OkStatus();
  if (moved == -EINVAL || moved == -EOPNOTSUPP) return InvalidArgument("direct I/O is refused");
  if (moved < 0) {
    return ErrnoStatus(static_cast<int>(-moved), StrCat("a trial transfer in '", directory_, "'"));
  }
  return InvalidArgument("direct I/O moved ", moved, " of ", size, " bytes");
}

absl::Status BlockFile::UseBuffered() {
  const int flags = fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || fcntl(fd_.get(), F_SETFL, flags & ~O_DIRECT) != 0) {
    return ErrnoStatus(errno, StrCat("turning direct I/O off in '", directory_, "'"));
  }
  return absl::OkStatus();
}

// Preallocates, so that writes never extend the file (that serialises them on the inode) and a full
// drive shows now.
absl::Status BlockFile::Reserve(int64_t first_byte, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  int error_number = 0;
  struct statvfs space{};
  // Some file systems count nothing: ramfs has 0 blocks, all of them used.
  const bool known = statvfs(directory_.c_str(), &space) == 0 && space.f_blocks > 0;
  rlimit file_size{};
  if (getrlimit(RLIMIT_FSIZE, &file_size) == 0 &&
      static_cast<rlim_t>(first_byte + bytes) > file_size.rlim_cur) {
    error_number = EFBIG;  // the call would raise SIGXFSZ, which ends the process
  } else if (known && uint64_t{space.f_bavail} * space.f_frsize < static_cast<uint64_t>(bytes)) {
    error_number =
        ENOSPC;  // the call would first fill the drive, for everybody on it, and then fail
  } else {
    do {
      error_number = -file_calls_->Allocate(fd_.get(), first_byte, bytes);
    } while (error_number == EINTR);
  }
  if (error_number == EOPNOTSUPP) {
    preallocated_ = false;
    logger_->WarnOnce(StrCat("'", directory_,
                             "' cannot preallocate; a full drive shows only when blocks are "
                             "written"));
    error_number = ftruncate(fd_.get(), first_byte + bytes) == 0 ? 0 : errno;
  }
  if (error_number == 0) return absl::OkStatus();
  // A failed fallocate may keep a part; nobody uses it, but the space counts.
  if (ftruncate(fd_.get(), first_byte) != 0) {
    logger_->WarnOnce(StrCat("a failed allocation in '", directory_,
                             "' could not be undone: ", DescribeErrno(errno)));
  }
  const std::string needed =
      StrCat("the file tier in '", directory_, "' needs ", bytes, " bytes more");
  if (error_number == ENOSPC || error_number == EDQUOT) {
    return ResourceExhausted(needed, ", ",
                             known ? StrCat(uint64_t{space.f_bavail} * space.f_frsize) : "unknown",
                             " bytes are free (", DescribeErrno(error_number),
                             "): free space or name another directory");
  }
  if (error_number == EFBIG) {
    return ResourceExhausted(needed, " at offset ", first_byte, ": ", DescribeErrno(error_number),
                             "; raise the file size limit (ulimit -f) or use smaller files");
  }
  return ErrnoStatus(error_number, needed);
}

absl::Status BlockFile::Grow(int64_t extents) {
  MutexLock growing(grow_mutex_);
  const int64_t before = this->extents();
  if (extents < 0 || extents > std::numeric_limits<int64_t>::max() - before) {
    return InvalidArgument("a file can't grow by ", extents, " extents");
  }
  GANTRY_RETURN_IF_ERROR(CheckSizes(Bytes(extent_bytes_), before + extents));
  GANTRY_RETURN_IF_ERROR(Reserve(before * extent_bytes_, extents * extent_bytes_));
  MutexLock lock(mutex_);
  allocated_.resize(static_cast<size_t>(before + extents), 0);
  // Behind what is free already, and so that low extents are handed out first.
  std::vector<int64_t> added;
  for (int64_t i = before + extents - 1; i >= before; --i) added.push_back(i);
  free_.insert(free_.begin(), added.begin(), added.end());
  return absl::OkStatus();
}

absl::StatusOr<ExtentId> BlockFile::AllocateExtent() {
  MutexLock lock(mutex_);
  if (free_.empty()) {
    return ResourceExhausted("the file tier in '", directory_, "' is full: all ", allocated_.size(),
                             " extents of ", extent_bytes_, " bytes are in use");
  }
  const int64_t index = free_.back();
  free_.pop_back();
  GANTRY_CHECK(allocated_[static_cast<size_t>(index)] == 0) << "extent " << index;
  allocated_[static_cast<size_t>(index)] = 1;
  return ExtentId(index);
}

void BlockFile::FreeExtent(ExtentId extent) {
  MutexLock lock(mutex_);
  const auto index = static_cast<size_t>(extent.value());
  GANTRY_CHECK(index < allocated_.size() && allocated_[index] == 1)
      << extent << " is not allocated";
  allocated_[index] = 0;
  free_.push_back(extent.value());
}

int64_t BlockFile::extents() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(allocated_.size());
}

int64_t BlockFile::extents_free() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(free_.size());
}

IoRequest BlockFile::Request(IoRequest::Kind kind, const Part& part) const {
  {
    MutexLock lock(mutex_);
    const auto index = static_cast<size_t>(part.extent.value());
    GANTRY_CHECK(index < allocated_.size() && allocated_[index] == 1)
        << part.extent << " is not allocated";
  }
  const auto size = static_cast<int64_t>(part.buffer.size());
  GANTRY_CHECK(part.offset >= 0 && part.offset <= extent_bytes_ &&
               size <= extent_bytes_ - part.offset)
      << size << " bytes at " << part.offset << " of an extent of " << extent_bytes_;
  GANTRY_CHECK_EQ(part.offset % offset_alignment_, 0);
  GANTRY_CHECK_EQ(size % offset_alignment_, 0);
  GANTRY_CHECK(IsAligned(part.buffer.data(), memory_alignment_))
      << "buffer " << part.buffer.data() << ", alignment " << memory_alignment_;
  return {.kind = kind,
          .fd = fd_.get(),
          .offset = part.extent.value() * extent_bytes_ + part.offset,
          .buffer = part.buffer,
          // A short transfer is taken up again where both the file and the memory are aligned.
          .alignment = std::max(offset_alignment_, memory_alignment_),
          .tag = part.tag};
}

}  // namespace gantry
