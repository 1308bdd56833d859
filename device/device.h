// What the engine needs of a compute device: slabs of equal physical slots, address spaces into
// which slots are mapped, and copy lanes. Implementations: device/host (the CPU, in unified and in
// emulated mode); the CUDA device comes behind the same interface.
//
// A device owns nothing that it hands out; everything it creates must be destroyed before it.
#ifndef GANTRY_DEVICE_DEVICE_H_
#define GANTRY_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/ids.h"

namespace gantry {

// Whether compute reads host memory itself (one memory tier) or has a memory of its own.
enum class DeviceTopology { kUnified, kDiscrete };

enum class MemoryKind {
  kDevice,      // what compute reads; mappable into an AddressSpace
  kHostPinned,  // host staging and storage; never mapped elsewhere
};

enum class CopyDirection { kHostToDevice, kDeviceToHost };

// Physical memory cut into equal slots, all touched once at creation (no page fault later). Each
// slot has a parking address where its bytes are reachable while it is not mapped at a home.
class Slab {
 public:
  virtual ~Slab() = default;
  virtual Bytes slot_bytes() const = 0;
  virtual int64_t slot_count() const = 0;
  // Where the bytes of an unmapped slot are; slots follow each other without gaps. The bytes are
  // there only while the slot is not mapped at a home address.
  virtual std::byte* parking(SlotId slot) const = 0;
};

// A reserved virtual range, page by page (one page = one slot of its slab). Reading or writing a
// page that has no slot is a fault (SIGSEGV), never garbage.
// Thread-safe for different pages; the caller orders calls on one page. The destructor unmaps; a
// slot for which that fails is lost, and its slab aborts when it is used.
class AddressSpace {
 public:
  virtual ~AddressSpace() = default;
  virtual std::byte* base() const = 0;
  virtual int64_t page_count() const = 0;
  // Makes the bytes of `slot` appear at page `page`; they keep their content.
  // Errors: kInternal with errno. REQUIRES: the page is empty and the slot is parked.
  virtual absl::Status Map(int64_t page, SlotId slot) = 0;
  // Returns the slot to its parking address with its content. REQUIRES: the page is mapped and
  // nothing on the device uses it any more.
  virtual absl::Status Unmap(int64_t page) = 0;
};

// Receives completions, on a thread of the lane. Must not block.
class CopySink {
 public:
  virtual ~CopySink() = default;
  virtual void OnCopyComplete(uint64_t tag, absl::Status status) = 0;
};

struct CopyRequest {
  std::byte* destination;
  const std::byte* source;
  Bytes bytes;
  uint64_t tag;  // returned to the sink
};

struct LaneCounters {
  int64_t requests;
  int64_t bytes;
  int64_t busy_nanoseconds;
};

// Copies in order of submission, one direction. Submit never blocks. Thread-safe.
// The destructor finishes what was submitted.
class CopyLane {
 public:
  virtual ~CopyLane() = default;
  virtual void Submit(const CopyRequest& request) = 0;
  virtual LaneCounters counters() const = 0;
};

class Device {
 public:
  struct SlabOptions {
    MemoryKind kind;
    Bytes slot_bytes;    // a multiple of the page size (4 KiB); 2 MiB multiples get huge pages
    int64_t slot_count;  // may be 0
  };
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  virtual DeviceTopology topology() const = 0;
  // Errors: kResourceExhausted naming what was asked and what is free; kInvalidArgument for
  // slot_bytes that is no positive multiple of the page size or a negative slot_count.
  virtual absl::StatusOr<std::unique_ptr<Slab>> CreateSlab(const SlabOptions& options) = 0;
  // Reserves addresses only. `slab` must be of kind kDevice and outlive the result.
  virtual absl::StatusOr<std::unique_ptr<AddressSpace>> ReserveAddressSpace(Slab* slab,
                                                                            int64_t pages) = 0;
  // `sink` must outlive the lane.
  virtual absl::StatusOr<std::unique_ptr<CopyLane>> CreateCopyLane(CopyDirection direction,
                                                                   CopySink* sink) = 0;
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_DEVICE_H_
