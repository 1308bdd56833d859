#include "device/cuda/emulation/emulated_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/strings.h"
#include "device/cuda/cuda_error.h"

namespace gantry {
namespace {

constexpr int64_t kPage = 4096;

// What memory holds that nobody has written: not zeros, which would hide that.
constexpr int kUnwritten = 0xA7;

uintptr_t Number(const std::byte* address) { return reinterpret_cast<uintptr_t>(address); }

// At `address` (null: anywhere), inaccessible.
std::byte* MapNothing(std::byte* address, int64_t bytes) {
  const int fixed = address == nullptr ? 0 : MAP_FIXED;
  void* mapping = mmap(address, static_cast<size_t>(bytes), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  return mapping == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapping);
}

}  // namespace

// The file is larger than the memory of the devices, so that there is always a range of the size
// that is asked for. What is not used of it is not there.
EmulatedMemory::EmulatedMemory(const Options& options)
    : options_(options),
      file_(memfd_create("emulated GPU memory", 0)),
      file_bytes_(4 * options.capacity.count()),
      alias_(nullptr),
      free_(file_bytes_) {
  GANTRY_CHECK(file_ >= 0) << std::strerror(errno);
  GANTRY_CHECK_EQ(ftruncate(file_, file_bytes_), 0) << std::strerror(errno);
  void* mapping = mmap(nullptr, static_cast<size_t>(file_bytes_), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_NORESERVE, file_, 0);
  GANTRY_CHECK(mapping != MAP_FAILED) << std::strerror(errno);
  alias_ = static_cast<std::byte*>(mapping);
}

EmulatedMemory::~EmulatedMemory() {
  for (const auto& [address, reservation] : reservations_) {
    munmap(reinterpret_cast<void*>(address), static_cast<size_t>(reservation.bytes));
  }
  munmap(alias_, static_cast<size_t>(file_bytes_));
  close(file_);
}

std::string EmulatedMemory::Show(const std::byte* address) const {
  const auto after = reservations_.upper_bound(Number(address));
  if (after != reservations_.begin()) {
    const auto& [base, reservation] = *std::prev(after);
    if (Number(address) <= base + static_cast<uintptr_t>(reservation.bytes)) {
      return StrCat("byte ", Number(address) - base, " of a range of ", reservation.bytes,
                    " bytes of device addresses");
    }
  }
  return StrCat("address ", static_cast<const void*>(address));
}

bool EmulatedMemory::Granular(const std::byte* address, Bytes bytes) const {
  const int64_t granularity = options_.granularity.count();
  return bytes.count() > 0 && bytes.count() % granularity == 0 &&
         Number(address) % static_cast<uintptr_t>(granularity) == 0;
}

CudaError EmulatedMemory::CreatePhysical(int device, Bytes bytes, uint64_t* physical) {
  if (!Granular(nullptr, bytes)) {
    return Refuse(CudaError::kInvalidValue, "physical memory of ", bytes.count(),
                  " bytes: no positive multiple of ", options_.granularity.count());
  }
  const std::optional<int64_t> offset = free_.Take(bytes.count());
  if (!offset.has_value()) return CudaError::kOutOfMemory;
  std::memset(alias_ + *offset, kUnwritten, static_cast<size_t>(bytes.count()));
  *physical = next_physical_++;
  physical_[*physical] = {.device = device,
                          .offset = *offset,
                          .bytes = bytes.count(),
                          .mappings = 0,
                          .released = false};
  return CudaError::kNone;
}

CudaError EmulatedMemory::ReleasePhysical(uint64_t physical) {
  const auto found = physical_.find(physical);
  if (found == physical_.end() || found->second.released) {
    return Refuse(CudaError::kInvalidValue, "physical memory ", physical,
                  " is released, and is none");
  }
  found->second.released = true;
  DropIfUnused(physical);
  return CudaError::kNone;
}

void EmulatedMemory::DropIfUnused(uint64_t physical) {
  const auto found = physical_.find(physical);
  const Physical& memory = found->second;
  if (!memory.released || memory.mappings > 0) return;
  GANTRY_CHECK_EQ(madvise(alias_ + memory.offset, static_cast<size_t>(memory.bytes), MADV_REMOVE),
                  0);
  free_.Return(memory.offset, memory.bytes);
  physical_.erase(found);
}

CudaError EmulatedMemory::Reserve(Bytes bytes, std::byte** address) {
  const int64_t granularity = options_.granularity.count();
  if (!Granular(nullptr, bytes)) {
    return Refuse(CudaError::kInvalidValue, "addresses for ", bytes.count(),
                  " bytes: no positive multiple of ", granularity);
  }
  // As on a GPU: 47 bits of addresses, less what others have.
  if (bytes.count() > int64_t{1} << 46) return CudaError::kOutOfMemory;
  std::byte* mapping = MapNothing(nullptr, bytes.count() + granularity);
  if (mapping == nullptr) return CudaError::kOutOfMemory;
  const auto begin =
      static_cast<uintptr_t>(RoundUp(static_cast<int64_t>(Number(mapping)), granularity));
  const auto before = static_cast<int64_t>(begin - Number(mapping));
  if (before > 0) munmap(mapping, static_cast<size_t>(before));
  if (before < granularity) {
    munmap(mapping + before + bytes.count(), static_cast<size_t>(granularity - before));
  }
  *address = mapping + before;
  reservations_[begin] = {.bytes = bytes.count(), .freed = false};
  return CudaError::kNone;
}

const EmulatedMemory::Reservation* EmulatedMemory::ReservationOf(const std::byte* address,
                                                                 int64_t bytes) const {
  const auto after = reservations_.upper_bound(Number(address));
  if (after == reservations_.begin()) return nullptr;
  const auto& [base, reservation] = *std::prev(after);
  const uintptr_t end = base + static_cast<uintptr_t>(reservation.bytes);
  return Number(address) + static_cast<uintptr_t>(bytes) <= end ? &reservation : nullptr;
}

CudaError EmulatedMemory::Free(std::byte* address, Bytes bytes) {
  const auto found = reservations_.find(Number(address));
  if (found == reservations_.end() || found->second.bytes != bytes.count() || found->second.freed) {
    return Refuse(CudaError::kInvalidValue,
                  "addresses are freed that are not reserved so: ", bytes.count(), " bytes from ",
                  Show(address));
  }
  const auto next = mappings_.lower_bound(Number(address));
  if (next != mappings_.end() && next->first < Number(address + bytes.count())) {
    return Refuse(CudaError::kInvalidValue, "addresses are freed while memory is mapped there: ",
                  Show(reinterpret_cast<const std::byte*>(next->first)));
  }
  found->second.freed = true;
  return CudaError::kNone;
}

CudaError EmulatedMemory::Map(std::byte* address, Bytes bytes, uint64_t physical) {
  const auto memory = physical_.find(physical);
  if (memory == physical_.end() || memory->second.released) {
    return Refuse(CudaError::kInvalidValue, "physical memory ", physical,
                  " is mapped, and is none");
  }
  const Reservation* reservation = ReservationOf(address, bytes.count());
  if (!Granular(address, bytes) || reservation == nullptr || reservation->freed ||
      memory->second.bytes != bytes.count()) {
    return Refuse(CudaError::kInvalidValue, bytes.count(), " bytes of ", memory->second.bytes,
                  " bytes of physical memory are mapped at ", Show(address),
                  ": not reserved, or no multiples of ", options_.granularity.count());
  }
  const auto next = mappings_.lower_bound(Number(address));
  const bool overlaps = next != mappings_.end() && next->first < Number(address + bytes.count());
  if (overlaps || MappingOf(Number(address)) != mappings_.end()) {
    return Refuse(CudaError::kInvalidValue,
                  "memory is mapped where some is already: ", Show(address));
  }
  void* mapped = mmap(address, static_cast<size_t>(bytes.count()), PROT_NONE,
                      MAP_SHARED | MAP_FIXED, file_, memory->second.offset);
  GANTRY_CHECK(mapped == address) << std::strerror(errno);
  ++memory->second.mappings;
  mappings_[Number(address)] = {.place = next_place_++,
                                .bytes = bytes.count(),
                                .limit = bytes.count(),
                                .physical = physical,
                                .devices = 0,
                                .allocation = false};
  return CudaError::kNone;
}

CudaError EmulatedMemory::SetAccess(int device, std::byte* address, Bytes bytes) {
  const uintptr_t end = Number(address + bytes.count());
  std::vector<Mapping*> covered;
  uintptr_t at = Number(address);
  while (at < end) {
    const auto found = mappings_.find(at);
    if (found == mappings_.end()) break;
    covered.push_back(&found->second);
    at += static_cast<uintptr_t>(found->second.bytes);
  }
  if (at != end || bytes.count() <= 0) {
    return Refuse(CudaError::kInvalidValue, "access is given to ", bytes.count(), " bytes from ",
                  Show(address), ", where they are not all mapped");
  }
  for (Mapping* mapping : covered) mapping->devices |= 1U << device;
  if (options_.host_may_access) {
    GANTRY_CHECK_EQ(mprotect(address, static_cast<size_t>(bytes.count()), PROT_READ | PROT_WRITE),
                    0);
  }
  return CudaError::kNone;
}

CudaError EmulatedMemory::Unmap(std::byte* address, Bytes bytes) {
  const auto found = mappings_.find(Number(address));
  if (found == mappings_.end() || found->second.bytes != bytes.count()) {
    return Refuse(CudaError::kInvalidValue,
                  "memory is unmapped that is not mapped so: ", bytes.count(), " bytes from ",
                  Show(address));
  }
  GANTRY_CHECK(MapNothing(address, bytes.count()) == address) << std::strerror(errno);
  const uint64_t physical = found->second.physical;
  mappings_.erase(found);
  --physical_.at(physical).mappings;
  DropIfUnused(physical);
  return CudaError::kNone;
}

CudaError EmulatedMemory::Register(std::byte* address, Bytes bytes) {
  const auto next = registrations_.lower_bound(Number(address));
  const bool reaches =
      next != registrations_.end() && next->first < Number(address + bytes.count());
  const bool within =
      next != registrations_.begin() &&
      std::prev(next)->first + static_cast<uintptr_t>(std::prev(next)->second.bytes) >
          Number(address);
  if (bytes.count() <= 0 || reaches || within) {
    return Refuse(CudaError::kInvalidValue, "host memory of ", bytes.count(),
                  " bytes is registered that is registered already, or none");
  }
  registrations_[Number(address)] = {.place = next_place_++, .bytes = bytes.count()};
  return CudaError::kNone;
}

CudaError EmulatedMemory::Unregister(std::byte* address) {
  if (registrations_.erase(Number(address)) == 0) {
    return Refuse(CudaError::kInvalidValue, "host memory is unregistered that is not registered");
  }
  return CudaError::kNone;
}

CudaError EmulatedMemory::Allocate(int device, Bytes bytes, std::byte** address) {
  const Bytes whole(RoundUp(bytes.count(), options_.granularity.count()));
  uint64_t physical = 0;
  if (const CudaError error = CreatePhysical(device, whole, &physical); error != CudaError::kNone) {
    return error;
  }
  std::byte* base = nullptr;
  if (const CudaError error = Reserve(whole, &base); error != CudaError::kNone) {
    static_cast<void>(ReleasePhysical(physical));
    return error;
  }
  // From here on nothing is wrong with the arguments.
  GANTRY_CHECK(Map(base, whole, physical) == CudaError::kNone);
  GANTRY_CHECK(ReleasePhysical(physical) == CudaError::kNone);
  GANTRY_CHECK(SetAccess(device, base, whole) == CudaError::kNone);
  Mapping& mapping = mappings_.at(Number(base));
  mapping.limit = bytes.count();
  mapping.allocation = true;
  *address = base;
  return CudaError::kNone;
}

CudaError EmulatedMemory::FreeAllocation(std::byte* address) {
  const Mapping* mapping = MappingAt(address);
  if (mapping == nullptr || !mapping->allocation) {
    return Refuse(CudaError::kInvalidValue,
                  "memory is freed that is not allocated: ", Show(address));
  }
  const Bytes bytes(mapping->bytes);
  GANTRY_CHECK(Unmap(address, bytes) == CudaError::kNone);
  return Free(address, bytes);
}

const EmulatedMemory::Mapping* EmulatedMemory::MappingAt(const std::byte* address) const {
  const auto found = mappings_.find(Number(address));
  return found == mappings_.end() ? nullptr : &found->second;
}

std::optional<int64_t> EmulatedMemory::RegistrationAt(const std::byte* address) const {
  const auto found = registrations_.find(Number(address));
  if (found == registrations_.end()) return std::nullopt;
  return found->second.place;
}

std::map<uintptr_t, EmulatedMemory::Mapping>::const_iterator EmulatedMemory::MappingOf(
    uintptr_t address) const {
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return mappings_.end();
  const auto found = std::prev(after);
  return address < found->first + static_cast<uintptr_t>(found->second.bytes) ? found
                                                                              : mappings_.end();
}

std::optional<std::vector<EmulatedMemory::Piece>> EmulatedMemory::Resolve(int device,
                                                                          const std::byte* address,
                                                                          Bytes bytes,
                                                                          std::string_view what) {
  std::vector<Piece> pieces;
  for (int64_t done = 0; done < bytes.count();) {
    const std::byte* at = address + done;
    const auto found = MappingOf(Number(at));
    if (found == mappings_.end()) {
      options_.misuse->Add(what, " touches ", Show(at), ", where nothing is mapped");
      return std::nullopt;
    }
    const auto& [base, mapping] = *found;
    if ((mapping.devices >> device & 1) == 0) {
      options_.misuse->Add(what, " touches ", Show(at), ", to which device ", device,
                           " has no access");
      return std::nullopt;
    }
    const auto begin = static_cast<int64_t>(Number(at) - base);
    const int64_t size = std::min(bytes.count() - done, mapping.bytes - begin);
    if (begin + size > mapping.limit) {
      options_.misuse->Add(what, " touches byte ", begin + size - 1, " of an allocation of ",
                           mapping.limit, " bytes");
      return std::nullopt;
    }
    pieces.push_back({.object = static_cast<int64_t>(mapping.physical),
                      .begin = begin,
                      .bytes = size,
                      .place = mapping.place,
                      .memory = alias_ + physical_.at(mapping.physical).offset + begin});
    done += size;
  }
  return pieces;
}

std::optional<EmulatedMemory::Piece> EmulatedMemory::ResolveHost(const std::byte* address,
                                                                 Bytes bytes,
                                                                 std::string_view what) {
  const auto after = registrations_.upper_bound(Number(address));
  const auto found = after == registrations_.begin() ? registrations_.end() : std::prev(after);
  const int64_t left = found == registrations_.end()
                           ? 0
                           : static_cast<int64_t>(found->first) + found->second.bytes -
                                 static_cast<int64_t>(Number(address));
  if (left < bytes.count()) {
    options_.misuse->Add(what, " touches host memory that is not registered as one: byte ",
                         std::max<int64_t>(left, 0), " of ", bytes.count());
    return std::nullopt;
  }
  return Piece{.object = kHostObject,
               .begin = static_cast<int64_t>(Number(address)),
               .bytes = bytes.count(),
               .place = found->second.place,
               .memory = const_cast<std::byte*>(address)};
}

bool EmulatedMemory::Open(int device, std::byte* page, Access access) {
  const auto found = MappingOf(Number(page));
  if (found == mappings_.end() || (found->second.devices >> device & 1) == 0) return false;
  // The rest of an allocation's last page is the only part of the limit that cannot be seen here.
  const auto begin = static_cast<int64_t>(Number(page) - found->first);
  if (begin >= found->second.limit) return false;
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  return mprotect(page, kPage, protection) == 0;
}

bool EmulatedMemory::OpenScratch(std::byte* page) {
  if (ReservationOf(page, kPage) == nullptr) return false;
  return mmap(page, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
              0) == page;
}

void EmulatedMemory::Close(std::byte* page) {
  const auto found = MappingOf(Number(page));
  if (found == mappings_.end()) {
    GANTRY_CHECK(MapNothing(page, kPage) == page) << std::strerror(errno);
    return;
  }
  const auto begin = static_cast<int64_t>(Number(page) - found->first);
  const int protection = options_.host_may_access ? PROT_READ | PROT_WRITE : PROT_NONE;
  void* mapped = mmap(page, kPage, protection, MAP_SHARED | MAP_FIXED, file_,
                      physical_.at(found->second.physical).offset + begin);
  GANTRY_CHECK(mapped == page) << std::strerror(errno);
}

std::optional<EmulatedMemory::Piece> EmulatedMemory::PieceOf(const std::byte* page) const {
  const auto found = MappingOf(Number(page));
  if (found == mappings_.end()) return std::nullopt;
  const auto begin = static_cast<int64_t>(Number(page) - found->first);
  return Piece{.object = static_cast<int64_t>(found->second.physical),
               .begin = begin,
               .bytes = std::min(kPage, found->second.bytes - begin),
               .place = found->second.place,
               .memory = nullptr};
}

Bytes EmulatedMemory::used(int device) const {
  Bytes sum(0);
  for (const auto& [number, physical] : physical_) {
    if (physical.device == device) sum += Bytes(physical.bytes);
  }
  return sum;
}

int64_t EmulatedMemory::live() const {
  int64_t reserved = 0;
  for (const auto& [address, reservation] : reservations_) reserved += reservation.freed ? 0 : 1;
  return reserved +
         static_cast<int64_t>(physical_.size() + mappings_.size() + registrations_.size());
}

}  // namespace gantry
