// What the engine needs of a compute device: slabs of equal physical slots, address spaces into
// which slots are mapped, copy lanes, and the queue that computes. Implementations: device/host
// (the CPU, in unified and in emulated mode), device/cuda, device/fake.
//
// A device owns nothing that it hands out; everything it creates must be destroyed before it.
#ifndef GANTRY_DEVICE_DEVICE_H_
#define GANTRY_DEVICE_DEVICE_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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

// A point in the work of a device's queue: reached when all that was submitted before is done.
struct QueuePoint {
  int64_t number = 0;  // 0: reached from the start
  auto operator<=>(const QueuePoint&) const = default;
};

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
  // Errors: kInternal with errno. REQUIRES: the page is empty, the slot is parked, and no copy uses
  // the slot.
  virtual absl::Status Map(int64_t page, SlotId slot) = 0;
  // Returns the slot to its parking address with its content, and does not wait: work that was
  // submitted to the device's queue before may still use the page, and copies to and from the slot
  // that are submitted later come after that work. REQUIRES: the page is mapped, no copy uses it,
  // and no work is submitted that does.
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
  // The work of the device's queue that the copy comes after. Nothing: to the host, all that was
  // submitted so far; to the device, what still used the slots when their pages were unmapped.
  std::optional<QueuePoint> after = {};
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

// Where a device computes: work in order of submission. Submitting never waits for the work. On a
// host device all work is done when the call that submits it returns.
// Thread-safe, but order between threads is theirs to make.
class Queue {
 public:
  virtual ~Queue() = default;
  // Device memory; a slot that is mapped, at its home.
  virtual absl::Status FillWithZeros(std::byte* address, Bytes bytes) = 0;
  // The point behind all that was submitted so far.
  virtual absl::StatusOr<QueuePoint> Mark() = 0;
  // Whether it is known to be reached; never blocks. False when the device has failed.
  virtual bool Reached(QueuePoint point) = 0;
  // Blocks until it is reached. Errors: what went wrong on the device, naming the operator.
  virtual absl::Status Wait(QueuePoint point) = 0;
  // Work that is submitted from now on comes after the copies that `lane`, one of this device, has
  // taken so far. On a host device this waits for them.
  virtual absl::Status RunAfter(CopyLane& lane) = 0;
};

class Device {
 public:
  struct SlabOptions {
    MemoryKind kind;
    // Of kDevice: a multiple of slot_granularity(); of kHostPinned: of the page size (4 KiB). On
    // the host 2 MiB multiples get huge pages.
    Bytes slot_bytes;
    int64_t slot_count;  // may be 0
  };
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  virtual DeviceTopology topology() const = 0;
  // The unit of physical memory that can be mapped: slots of kDevice are whole multiples of it. A
  // power of two, at least the page size.
  virtual Bytes slot_granularity() const = 0;
  virtual Queue& queue() = 0;
  // Errors: kResourceExhausted naming what was asked and what is free; kInvalidArgument for
  // slot_bytes that is no positive multiple as above or a negative slot_count.
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
