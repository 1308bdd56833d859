// CudaCalls on emulated GPUs. Streams are queues that threads of the emulated devices work off:
// each in order, several in an order drawn by seed, and some pieces of work after a drawn number of
// yields, so that the host runs ahead now more and now less. Kernels run on the emulator
// (emulator.h) in stream order; a CudaStream is a StreamRunner*, as emulated kernels want it.
//
//   EmulatedCudaCalls calls({.memory = 64_MiB, .seed = 7});
//   auto device = CreateCudaDevice({.calls = &calls, ...});
//   ...
//   EXPECT_THAT(calls.misuse(), IsOk());
//
// What a GPU would leave undefined is a misuse, one line that says which work did what:
//   - copies and kernels that touch what is not mapped, not accessible, past an allocation's end,
//   or
//     host memory that is not registered;
//   - memory that is unmapped, freed or unregistered although the host has not waited for work that
//     uses it;
//   - two pieces of work that touch the same bytes, one of them writing, without an order between
//     them (access_log.h);
//   - kernels and fills on a stream of another device than the thread's;
//   - wrong handles, double frees, sizes that are no multiples, events that were never recorded;
//   - a kernel that the emulator finds wrong.
// Host code that touches device memory faults, as on a machine with a GPU.
//
// Thread-safe.
#ifndef GANTRY_DEVICE_CUDA_EMULATION_EMULATED_CUDA_CALLS_H_
#define GANTRY_DEVICE_CUDA_EMULATION_EMULATED_CUDA_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/mutex.h"
#include "base/random.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/emulation/access_log.h"
#include "device/cuda/emulation/emulated_memory.h"
#include "device/cuda/emulation/emulated_stream.h"
#include "device/cuda/emulation/emulator.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"

namespace gantry {

struct EmulatedGpuOptions {
  int devices = 1;
  Bytes memory = Bytes(64 << 20);       // of each device
  Bytes granularity = Bytes(64 << 10);  // a multiple of 4 KiB
  uint64_t seed = 0;
  int threads = 2;
  int yields_max = 32;           // before a piece of work that is late, one in four
  bool host_may_access = false;  // device memory: no faults, and what kernels touch is not known
  EmulatorOptions kernels = {.order = TurnOrder::kSeeded};

  // What the machine says of itself. driver 0: there is none.
  int driver_version = 13000;
  int runtime_version = 13000;
  int compute_major = 9;
  int compute_minor = 0;
  bool virtual_memory = true;
  bool prohibited = false;
  bool taken = false;  // by another process, alone

  // The call of this number (from 0, as calls() counts) returns `call_error` and does nothing; the
  // piece of work of this number fails, and with it the device. Negative: none.
  int64_t failing_call = -1;
  CudaError call_error = CudaError::kInvalidValue;
  int64_t failing_work = -1;
  CudaError work_error = CudaError::kLaunchFailure;
};

class EmulatedCudaCalls final : public CudaCalls {
 public:
  explicit EmulatedCudaCalls(const EmulatedGpuOptions& options);
  ~EmulatedCudaCalls() override;  // lets all work end

  // ---- What only an emulated GPU can do. ----

  // kInternal with the first misuse and how many there were.
  absl::Status misuse() const GANTRY_EXCLUDES(mutex_);
  // Calls made so far, without those that only ask (Describe, versions, count, properties).
  int64_t calls() const GANTRY_EXCLUDES(mutex_);
  int64_t works() const GANTRY_EXCLUDES(mutex_);  // pieces of work begun so far
  // Objects that were made and not destroyed: memory, addresses, mappings, registrations, streams
  // and events.
  int64_t live() const GANTRY_EXCLUDES(mutex_);
  // Nothing begins until Resume. Waiting meanwhile is a misuse, as it would never end.
  void Hold() GANTRY_EXCLUDES(mutex_);
  void Resume() GANTRY_EXCLUDES(mutex_);
  // Device memory that other processes have.
  void SetUsedByOthers(Bytes bytes) GANTRY_EXCLUDES(mutex_);

  // ---- CudaCalls ----
  std::string Describe(CudaError error) override;
  CudaError DriverVersion(int* version) override;
  CudaError RuntimeVersion(int* version) override;
  CudaError DeviceCount(int* count) override;
  CudaError Properties(int device, CudaProperties* properties) override;
  CudaError SetDevice(int device) override;
  CudaError MemoryInfo(CudaMemoryInfo* info) override;
  CudaError AllocationGranularity(int device, Bytes* granularity) override;
  CudaError CreatePhysical(int device, Bytes bytes, CudaPhysicalMemory* memory) override;
  CudaError ReleasePhysical(CudaPhysicalMemory memory) override;
  CudaError ReserveAddresses(Bytes bytes, std::byte** address) override;
  CudaError FreeAddresses(std::byte* address, Bytes bytes) override;
  CudaError Map(std::byte* address, Bytes bytes, CudaPhysicalMemory memory) override;
  CudaError SetAccess(int device, std::byte* address, Bytes bytes) override;
  CudaError Unmap(std::byte* address, Bytes bytes) override;
  CudaError Allocate(Bytes bytes, std::byte** address) override;
  CudaError Free(std::byte* address) override;
  CudaError RegisterHost(std::byte* address, Bytes bytes) override;
  CudaError UnregisterHost(std::byte* address) override;
  CudaError CreateStream(CudaStream* stream) override;
  CudaError DestroyStream(CudaStream stream) override;
  CudaError SynchronizeStream(CudaStream stream) override;
  CudaError CreateEvent(EventKind kind, CudaEvent* event) override;
  CudaError DestroyEvent(CudaEvent event) override;
  CudaError RecordEvent(CudaEvent event, CudaStream stream) override;
  CudaError WaitEvent(CudaStream stream, CudaEvent event) override;
  CudaError QueryEvent(CudaEvent event) override;
  CudaError SynchronizeEvent(CudaEvent event) override;
  CudaError ElapsedTime(CudaEvent begin, CudaEvent end, float* milliseconds) override;
  CudaError CopyToDevice(const Copy& copy, CudaStream stream) override;
  CudaError CopyToHost(const Copy& copy, CudaStream stream) override;
  CudaError FillWithZeros(std::byte* address, Bytes bytes, CudaStream stream) override;
  CudaError WriteWord(uint32_t* address, uint32_t value, CudaStream stream) override;

 private:
  using Pieces = std::vector<EmulatedMemory::Piece>;
  struct Event {
    EventKind kind;
    int device;
    std::shared_ptr<EmulatedRecord> record;  // the last one; also its stream's
  };
  struct Gpu {
    CudaError sticky = CudaError::kNone;
    int64_t nanoseconds = 0;  // of its own time
  };

  // Begins a call: counts it. Not kNone: it returns that.
  CudaError Enter(int device) GANTRY_REQUIRES(mutex_);
  CudaError EnterAnywhere() GANTRY_REQUIRES(mutex_);  // of no device in particular
  int CurrentDevice() const GANTRY_REQUIRES(mutex_);
  bool Has(int device) const { return device >= 0 && device < options_.devices; }
  EmulatedStream* FindStream(CudaStream stream, std::string_view what) GANTRY_REQUIRES(mutex_);
  Event* FindEvent(CudaEvent event, std::string_view what) GANTRY_REQUIRES(mutex_);
  Bytes FreeMemory(int device) const GANTRY_REQUIRES(mutex_);
  // A misuse when the host does not know all work on the mapping or registration to be done.
  void CheckUnused(int64_t place, std::string_view what) GANTRY_REQUIRES(mutex_);
  enum class Direction : uint8_t { kToDevice, kToHost };
  CudaError CopyBetween(const Copy& copy, CudaStream stream, Direction direction)
      GANTRY_EXCLUDES(mutex_);

  // emulated_work.cc
  // Puts work on a stream. `what`: "copy of 64.0 KiB to the device".
  void Submit(EmulatedStream& stream, EmulatedWork work, std::string_view what)
      GANTRY_REQUIRES(mutex_);
  void NoteAccess(const EmulatedMemory::Piece& piece, bool write,
                  const std::shared_ptr<const WorkOrder>& order) GANTRY_REQUIRES(mutex_);
  // False, and a misuse, when the thread's device is another one than the stream's.
  bool IsCurrent(const EmulatedStream& stream, std::string_view what) GANTRY_REQUIRES(mutex_);
  CudaError LaunchOn(EmulatedStream& stream, std::string_view kernel, const LaunchShape& shape,
                     std::function<void()> thread) GANTRY_EXCLUDES(mutex_);
  // Blocks until `done`; returns the device's error.
  CudaError Wait(int device, std::string_view what, const std::function<bool()>& done)
      GANTRY_REQUIRES(mutex_);
  void Learn(const VectorClock& clock) GANTRY_REQUIRES(mutex_);
  void Work() GANTRY_EXCLUDES(mutex_);
  EmulatedStream* PickStream() GANTRY_REQUIRES(mutex_);
  bool CanBegin(const EmulatedWork& work) const GANTRY_REQUIRES(mutex_);
  // Does the work; lets go of the mutex meanwhile.
  void Perform(EmulatedStream& stream, EmulatedWork& work) GANTRY_REQUIRES(mutex_);
  void RunKernel(EmulatedStream& stream, EmulatedWork& work) GANTRY_REQUIRES(mutex_);
  bool Idle() const GANTRY_REQUIRES(mutex_);

  const EmulatedGpuOptions options_;
  const Random random_;
  mutable Mutex mutex_;
  CondVar changed_;
  MisuseLog misuse_ GANTRY_GUARDED_BY(mutex_);
  EmulatedMemory memory_ GANTRY_GUARDED_BY(mutex_);
  AccessLog accesses_ GANTRY_GUARDED_BY(mutex_);
  Emulator emulator_;  // of whoever has set kernel_runs_
  bool kernel_runs_ GANTRY_GUARDED_BY(mutex_) = false;
  std::vector<Gpu> gpus_ GANTRY_GUARDED_BY(mutex_);
  std::map<std::thread::id, int> current_ GANTRY_GUARDED_BY(mutex_);  // devices of threads
  std::vector<std::unique_ptr<EmulatedStream>> streams_ GANTRY_GUARDED_BY(mutex_);  // all ever
  std::map<uintptr_t, Event> events_ GANTRY_GUARDED_BY(mutex_);                     // by handle
  uintptr_t next_event_ GANTRY_GUARDED_BY(mutex_) = 1;
  VectorClock host_ GANTRY_GUARDED_BY(mutex_);
  uint64_t next_work_ GANTRY_GUARDED_BY(mutex_) = 1;
  std::set<uint64_t> open_kernels_ GANTRY_GUARDED_BY(mutex_);  // submitted, not ended
  uint64_t draws_ GANTRY_GUARDED_BY(mutex_) = 0;
  int64_t calls_ GANTRY_GUARDED_BY(mutex_) = 0;
  int64_t works_ GANTRY_GUARDED_BY(mutex_) = 0;
  Bytes used_by_others_ GANTRY_GUARDED_BY(mutex_) = Bytes(0);
  bool held_ GANTRY_GUARDED_BY(mutex_) = false;
  bool closing_ GANTRY_GUARDED_BY(mutex_) = false;
  // thread: the emulated devices work beside the program, as real ones do.
  std::vector<std::thread> threads_;
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_EMULATION_EMULATED_CUDA_CALLS_H_
