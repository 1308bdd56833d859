// The memory of emulated GPUs: physical memory in a file without a name, addresses that are
// reserved in this process, mappings of one at the other, and registered host memory. All of it is
// checked as a GPU does, and where a GPU would leave things undefined, more.
//
// Device addresses are real addresses of this process at which nothing can be read or written by
// the host; kernels reach them while KernelTracer runs one. Copies go through an alias of the file.
// Freed addresses stay reserved, so that their use is found.
//
// Thread-compatible.
#ifndef GANTRY_DEVICE_CUDA_EMULATION_EMULATED_MEMORY_H_
#define GANTRY_DEVICE_CUDA_EMULATION_EMULATED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/strings.h"
#include "device/cuda/cuda_error.h"
#include "device/free_ranges.h"

namespace gantry {

// What a program did that it may not: one line each.
class MisuseLog {
 public:
  template <typename... Parts>
  void Add(const Parts&... parts) {
    lines_.push_back(StrCat(parts...));
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

class EmulatedMemory {
 public:
  struct Options {
    Bytes granularity;
    Bytes capacity;        // of all devices together
    bool host_may_access;  // device memory, once a device may
    MisuseLog* misuse;     // outlives the memory
  };
  explicit EmulatedMemory(const Options& options);
  ~EmulatedMemory();
  EmulatedMemory(const EmulatedMemory&) = delete;
  EmulatedMemory& operator=(const EmulatedMemory&) = delete;

  // Each does what the call of CudaCalls does. There is always room: who counts is the caller.
  CudaError CreatePhysical(int device, Bytes bytes, uint64_t* physical);
  CudaError ReleasePhysical(uint64_t physical);
  CudaError Reserve(Bytes bytes, std::byte** address);
  CudaError Free(std::byte* address, Bytes bytes);
  CudaError Map(std::byte* address, Bytes bytes, uint64_t physical);
  CudaError SetAccess(int device, std::byte* address, Bytes bytes);
  CudaError Unmap(std::byte* address, Bytes bytes);
  CudaError Register(std::byte* address, Bytes bytes);
  CudaError Unregister(std::byte* address);
  // Reserved, mapped and accessible; only the first `bytes` may be touched.
  CudaError Allocate(int device, Bytes bytes, std::byte** address);
  CudaError FreeAllocation(std::byte* address);

  // Of one mapping: where its bytes lie.
  struct Mapping {
    int64_t place;  // its number, never given again
    int64_t bytes;
    int64_t limit;  // of these, may be touched
    uint64_t physical;
    uint32_t devices;  // that may touch it, as bits
    bool allocation;   // of Allocate
  };
  // What is mapped at exactly this address; null: nothing begins there.
  const Mapping* MappingAt(const std::byte* address) const;
  // The registration that begins there.
  std::optional<int64_t> RegistrationAt(const std::byte* address) const;

  // A part of a range of bytes, within one mapping or registration.
  struct Piece {
    int64_t object;  // physical memory, or kHostObject
    int64_t begin;   // in the object
    int64_t bytes;
    int64_t place;
    std::byte* memory;  // where the emulator reads and writes it
  };
  static constexpr int64_t kHostObject = 0;  // its bytes count from address 0
  // The parts of a range of device memory; nothing, and a misuse, when the device may not touch all
  // of it. `what` is done there.
  std::optional<std::vector<Piece>> Resolve(int device, const std::byte* address, Bytes bytes,
                                            std::string_view what);
  // The same of host memory, which must be registered in one call.
  std::optional<Piece> ResolveHost(const std::byte* address, Bytes bytes, std::string_view what);

  // For KernelTracer: makes a page readable, and writable; false where the device may not.
  // Allocates nothing, so that a signal handler may call it.
  enum class Access : uint8_t { kRead, kWrite };
  bool Open(int device, std::byte* page, Access access);
  // Puts memory of zeros at a page of a reservation, whatever is mapped there, so that a kernel
  // that went wrong can end; false outside of all reservations.
  bool OpenScratch(std::byte* page);
  // The page as it was before Open or OpenScratch.
  void Close(std::byte* page);
  // The part of a page; nothing when it is not mapped.
  std::optional<Piece> PieceOf(const std::byte* page) const;

  // "byte 4096 of a range of 65536 bytes of device addresses".
  std::string Show(const std::byte* address) const;
  Bytes granularity() const { return options_.granularity; }
  // Bytes of physical memory of the device.
  Bytes used(int device) const;
  // Everything there is: physical memory, reservations, mappings, registrations.
  int64_t live() const;

 private:
  struct Physical {
    int device;
    int64_t offset;  // in the file
    int64_t bytes;
    int64_t mappings;
    bool released;
  };
  struct Reservation {
    int64_t bytes;
    bool freed;
  };
  struct Registration {
    int64_t place;
    int64_t bytes;
  };

  template <typename... Parts>
  CudaError Refuse(CudaError error, const Parts&... parts) {
    options_.misuse->Add(parts...);
    return error;
  }
  bool Granular(const std::byte* address, Bytes bytes) const;
  // Of the reservation that holds all of the range; null: none.
  const Reservation* ReservationOf(const std::byte* address, int64_t bytes) const;
  // The mapping that holds the address; end() where none does.
  std::map<uintptr_t, Mapping>::const_iterator MappingOf(uintptr_t address) const;
  void DropIfUnused(uint64_t physical);

  const Options options_;
  int file_;
  int64_t file_bytes_;
  std::byte* alias_;
  FreeRanges free_;
  uint64_t next_physical_ = 1;
  int64_t next_place_ = 1;
  std::map<uint64_t, Physical> physical_;
  std::map<uintptr_t, Reservation> reservations_;
  std::map<uintptr_t, Mapping> mappings_;
  std::map<uintptr_t, Registration> registrations_;
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_EMULATION_EMULATED_MEMORY_H_
