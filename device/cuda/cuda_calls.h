// The calls of CUDA's runtime and driver that Gantry makes: the one way to a GPU, so that
// everything above runs in tests against an emulated one. Implementations: cuda_calls_toolkit.h
// (real), emulation/emulated_cuda_calls.h. Without CUDA's headers.
//
// Each call is one call of CUDA, named in its comment, and does what CUDA's manual says. Results
// come through pointers, which are set only when the call returns kNone. `device` counts from 0.
//
// Thread-safe. Which device is current is a matter of each thread, as in CUDA.
#ifndef GANTRY_DEVICE_CUDA_CUDA_CALLS_H_
#define GANTRY_DEVICE_CUDA_CUDA_CALLS_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/stream.h"

namespace gantry {

// Physical memory of a device, not at any address.
struct CudaPhysicalMemory {
  uint64_t value = 0;
  friend auto operator<=>(const CudaPhysicalMemory&, const CudaPhysicalMemory&) = default;
};

// A point in a stream's work.
struct CudaEvent {
  void* value = nullptr;
  friend auto operator<=>(const CudaEvent&, const CudaEvent&) = default;
};

struct CudaProperties {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  bool virtual_memory = false;  // physical memory can be mapped at reserved addresses
  bool prohibited = false;      // its owner lets nobody compute on it
};

struct CudaMemoryInfo {
  Bytes free = Bytes(0);
  Bytes total = Bytes(0);
};

class CudaCalls {
 public:
  enum class EventKind : uint8_t { kOrder, kTiming };

  virtual ~CudaCalls();

  // "cudaErrorInvalidValue (invalid argument)": cudaGetErrorName, cudaGetErrorString.
  virtual std::string Describe(CudaError error) = 0;

  // 13000 means 13.0; the driver's is 0 without a driver. cudaDriverGetVersion,
  // cudaRuntimeGetVersion.
  virtual CudaError DriverVersion(int* version) = 0;
  virtual CudaError RuntimeVersion(int* version) = 0;
  virtual CudaError DeviceCount(int* count) = 0;  // cudaGetDeviceCount
  virtual CudaError Properties(int device,
                               CudaProperties* properties) = 0;  // cudaDeviceGetAttribute
  // Makes it the calling thread's. cudaSetDevice.
  virtual CudaError SetDevice(int device) = 0;
  virtual CudaError MemoryInfo(CudaMemoryInfo* info) = 0;  // of the current device; cudaMemGetInfo

  // Virtual memory. Sizes and addresses are multiples of the granularity.
  virtual CudaError AllocationGranularity(int device, Bytes* granularity) = 0;
  virtual CudaError CreatePhysical(int device, Bytes bytes, CudaPhysicalMemory* memory) = 0;
  // What is mapped stays until it is unmapped. cuMemRelease.
  virtual CudaError ReleasePhysical(CudaPhysicalMemory memory) = 0;
  virtual CudaError ReserveAddresses(Bytes bytes, std::byte** address) = 0;  // cuMemAddressReserve
  virtual CudaError FreeAddresses(std::byte* address, Bytes bytes) = 0;      // cuMemAddressFree
  // All of `memory`, which is of `bytes`. cuMemMap.
  virtual CudaError Map(std::byte* address, Bytes bytes, CudaPhysicalMemory memory) = 0;
  // Lets `device` read and write there. cuMemSetAccess.
  virtual CudaError SetAccess(int device, std::byte* address, Bytes bytes) = 0;
  virtual CudaError Unmap(std::byte* address, Bytes bytes) = 0;  // what one Map mapped; cuMemUnmap

  virtual CudaError Allocate(Bytes bytes, std::byte** address) = 0;     // cudaMalloc
  virtual CudaError Free(std::byte* address) = 0;                       // cudaFree
  virtual CudaError RegisterHost(std::byte* address, Bytes bytes) = 0;  // cudaHostRegister
  virtual CudaError UnregisterHost(std::byte* address) = 0;

  // Streams do not wait for the default stream. cudaStreamNonBlocking.
  virtual CudaError CreateStream(CudaStream* stream) = 0;
  virtual CudaError DestroyStream(CudaStream stream) = 0;
  virtual CudaError SynchronizeStream(CudaStream stream) = 0;

  // kOrder: cudaEventDisableTiming; both: cudaEventBlockingSync.
  virtual CudaError CreateEvent(EventKind kind, CudaEvent* event) = 0;
  virtual CudaError DestroyEvent(CudaEvent event) = 0;
  virtual CudaError RecordEvent(CudaEvent event, CudaStream stream) = 0;
  virtual CudaError WaitEvent(CudaStream stream, CudaEvent event) = 0;  // cudaStreamWaitEvent
  virtual CudaError QueryEvent(CudaEvent event) = 0;                    // kNotReady: not yet
  virtual CudaError SynchronizeEvent(CudaEvent event) = 0;
  virtual CudaError ElapsedTime(CudaEvent begin, CudaEvent end, float* milliseconds) = 0;

  // One side is memory of the device, the other registered host memory. cudaMemcpyAsync.
  struct Copy {
    std::byte* destination;
    const std::byte* source;
    Bytes bytes;
  };
  virtual CudaError CopyToDevice(const Copy& copy, CudaStream stream) = 0;
  virtual CudaError CopyToHost(const Copy& copy, CudaStream stream) = 0;
  // Memory of the device. cudaMemsetAsync.
  virtual CudaError FillWithZeros(std::byte* address, Bytes bytes, CudaStream stream) = 0;
  // A word of registered host memory, written when all work before it is done.
  // cuStreamWriteValue32.
  virtual CudaError WriteWord(uint32_t* address, uint32_t value, CudaStream stream) = 0;
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_CUDA_CALLS_H_
