#include "base/testing/faulty_file_calls.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>

#include "base/check.h"

namespace gantry {
namespace {

constexpr std::array<const char*, kFileCallKindCount> kKindNames = {
    "open", "read", "write", "sync", "allocate", "rename", "mkdir", "unlink"};

// Memory for direct I/O as well.
constexpr size_t kCopyAlignment = 4096;
struct AlignedFree {
  void operator()(std::byte* pointer) const { std::free(pointer); }
};
using AlignedCopy = std::unique_ptr<std::byte, AlignedFree>;

AlignedCopy CopyOf(std::span<const std::byte> buffer) {
  const size_t bytes = (buffer.size() / kCopyAlignment + 1) * kCopyAlignment;
  AlignedCopy copy(static_cast<std::byte*>(std::aligned_alloc(kCopyAlignment, bytes)));
  GANTRY_CHECK(copy != nullptr) << "no memory for " << bytes << " bytes";
  std::copy(buffer.begin(), buffer.end(), copy.get());
  return copy;
}

void Flip(std::span<std::byte> buffer, int64_t bit) {
  if (buffer.empty()) return;
  const auto index = static_cast<uint64_t>(bit) % (uint64_t{buffer.size()} * 8);
  buffer[index / 8] ^= std::byte{1} << (index % 8);
}

void Truncate(int fd, const TruncateFile& fault) {
  struct stat status{};
  GANTRY_CHECK_EQ(fstat(fd, &status), 0);
  if (status.st_size > fault.bytes) GANTRY_CHECK_EQ(ftruncate(fd, fault.bytes), 0);
}

template <typename Buffer>
Buffer Shortened(Buffer buffer, const ShortenCall& fault) {
  return buffer.first(std::min(buffer.size(), static_cast<size_t>(fault.bytes)));
}

bool IsPossible(std::optional<FileCallKind> kind, const FileFault& fault) {
  if (const auto* fail = std::get_if<FailCall>(&fault)) return fail->error_number > 0;
  if (kind == FileCallKind::kWrite || kind == FileCallKind::kRead) {
    if (const auto* shorten = std::get_if<ShortenCall>(&fault)) return shorten->bytes >= 0;
    if (const auto* flip = std::get_if<FlipBit>(&fault)) return flip->bit >= 0;
    if (const auto* cut = std::get_if<TruncateFile>(&fault)) return cut->bytes >= 0;
  }
  return kind == FileCallKind::kWrite;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, FileCallKind kind) {
  return out << kKindNames.at(static_cast<size_t>(kind));
}

void FaultyFileCalls::Inject(const FaultyCalls& calls, const FileFault& fault) {
  GANTRY_CHECK(calls.first >= 0 && calls.count > 0);
  GANTRY_CHECK(IsPossible(calls.kind, fault));
  MutexLock lock(mutex_);
  injected_.push_back({calls, fault});
}

void FaultyFileCalls::Clear() {
  MutexLock lock(mutex_);
  injected_.clear();
}

int64_t FaultyFileCalls::calls() const {
  MutexLock lock(mutex_);
  return std::accumulate(calls_.begin(), calls_.end(), int64_t{0});
}

int64_t FaultyFileCalls::calls(FileCallKind kind) const {
  MutexLock lock(mutex_);
  return calls_.at(static_cast<size_t>(kind));
}

int64_t FaultyFileCalls::faults() const {
  MutexLock lock(mutex_);
  return faults_;
}

std::optional<FileFault> FaultyFileCalls::Count(FileCallKind kind) {
  MutexLock lock(mutex_);
  const int64_t of_all = std::accumulate(calls_.begin(), calls_.end(), int64_t{0});
  const int64_t of_kind = calls_.at(static_cast<size_t>(kind))++;
  for (auto it = injected_.rbegin(); it != injected_.rend(); ++it) {
    const FaultyCalls& calls = it->calls;
    if (calls.kind.has_value() && *calls.kind != kind) continue;
    const int64_t after_first = (calls.kind.has_value() ? of_kind : of_all) - calls.first;
    if (after_first < 0 || after_first >= calls.count) continue;
    ++faults_;
    return it->fault;
  }
  return std::nullopt;
}

int FaultyFileCalls::CountError(FileCallKind kind) {
  const std::optional<FileFault> fault = Count(kind);
  return fault.has_value() ? std::get<FailCall>(*fault).error_number : 0;
}

int64_t FaultyFileCalls::ReadAt(int fd, std::span<std::byte> buffer, int64_t offset) {
  const std::optional<FileFault> fault = Count(FileCallKind::kRead);
  if (!fault.has_value()) return inner_->ReadAt(fd, buffer, offset);
  if (const auto* fail = std::get_if<FailCall>(&*fault)) return -int64_t{fail->error_number};
  if (const auto* shorten = std::get_if<ShortenCall>(&*fault)) {
    const std::span<std::byte> part = Shortened(buffer, *shorten);
    return part.empty() ? 0 : inner_->ReadAt(fd, part, offset);
  }
  if (const auto* cut = std::get_if<TruncateFile>(&*fault)) {
    Truncate(fd, *cut);
    return inner_->ReadAt(fd, buffer, offset);
  }
  const int64_t got = inner_->ReadAt(fd, buffer, offset);
  if (got > 0) Flip(buffer.first(static_cast<size_t>(got)), std::get<FlipBit>(*fault).bit);
  return got;
}

int64_t FaultyFileCalls::WriteAt(int fd, std::span<const std::byte> buffer, int64_t offset) {
  const std::optional<FileFault> fault = Count(FileCallKind::kWrite);
  if (!fault.has_value()) return inner_->WriteAt(fd, buffer, offset);
  if (const auto* fail = std::get_if<FailCall>(&*fault)) return -int64_t{fail->error_number};
  if (const auto* shorten = std::get_if<ShortenCall>(&*fault)) {
    const std::span<const std::byte> part = Shortened(buffer, *shorten);
    return part.empty() ? 0 : inner_->WriteAt(fd, part, offset);
  }
  if (std::holds_alternative<LoseWrite>(*fault)) return static_cast<int64_t>(buffer.size());
  if (const auto* misplace = std::get_if<MisplaceWrite>(&*fault)) {
    GANTRY_CHECK_GE(offset + misplace->shift, 0);
    return inner_->WriteAt(fd, buffer, offset + misplace->shift);
  }
  if (const auto* cut = std::get_if<TruncateFile>(&*fault)) {
    Truncate(fd, *cut);
    return inner_->WriteAt(fd, buffer, offset);
  }
  const AlignedCopy copy = CopyOf(buffer);
  const std::span<std::byte> flipped(copy.get(), buffer.size());
  Flip(flipped, std::get<FlipBit>(*fault).bit);
  return inner_->WriteAt(fd, flipped, offset);
}

int FaultyFileCalls::Open(int directory, const std::string& path, int flags, int mode) {
  if (const int error = CountError(FileCallKind::kOpen); error != 0) return -error;
  return inner_->Open(directory, path, flags, mode);
}

int FaultyFileCalls::Sync(int fd, SyncKind kind) {
  if (const int error = CountError(FileCallKind::kSync); error != 0) return -error;
  return inner_->Sync(fd, kind);
}

int FaultyFileCalls::Allocate(int fd, int64_t offset, int64_t bytes) {
  if (const int error = CountError(FileCallKind::kAllocate); error != 0) return -error;
  return inner_->Allocate(fd, offset, bytes);
}

int FaultyFileCalls::Rename(int from_directory, const std::string& from, int to_directory,
                            const std::string& to) {
  if (const int error = CountError(FileCallKind::kRename); error != 0) return -error;
  return inner_->Rename(from_directory, from, to_directory, to);
}

int FaultyFileCalls::MakeDirectory(int directory, const std::string& path, int mode) {
  if (const int error = CountError(FileCallKind::kMakeDirectory); error != 0) return -error;
  return inner_->MakeDirectory(directory, path, mode);
}

int FaultyFileCalls::Unlink(int directory, const std::string& path, int flags) {
  if (const int error = CountError(FileCallKind::kUnlink); error != 0) return -error;
  return inner_->Unlink(directory, path, flags);
}

}  // namespace gantry
