#include "device/cuda/cuda_calls_toolkit.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/strings.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/stream.h"

namespace gantry {
namespace {

template <typename Code>
constexpr CudaError ErrorOf(Code code) {
  return static_cast<CudaError>(static_cast<int>(code));
}

static_assert(ErrorOf(cudaErrorMemoryAllocation) == CudaError::kOutOfMemory);
static_assert(ErrorOf(CUDA_ERROR_OUT_OF_MEMORY) == CudaError::kOutOfMemory);
static_assert(ErrorOf(cudaErrorInsufficientDriver) == CudaError::kInsufficientDriver);
static_assert(ErrorOf(cudaErrorDevicesUnavailable) == CudaError::kDevicesUnavailable);
static_assert(ErrorOf(cudaErrorNoDevice) == CudaError::kNoDevice);
static_assert(ErrorOf(cudaErrorInvalidDevice) == CudaError::kInvalidDevice);
static_assert(ErrorOf(cudaErrorECCUncorrectable) == CudaError::kUncorrectableMemory);
static_assert(ErrorOf(cudaErrorNvlinkUncorrectable) == CudaError::kLinkUncorrectable);
static_assert(ErrorOf(cudaErrorContained) == CudaError::kContained);
static_assert(ErrorOf(cudaErrorInvalidResourceHandle) == CudaError::kInvalidHandle);
static_assert(ErrorOf(cudaErrorSymbolNotFound) == CudaError::kSymbolNotFound);
static_assert(ErrorOf(cudaErrorNotReady) == CudaError::kNotReady);
static_assert(ErrorOf(CUDA_ERROR_NOT_READY) == CudaError::kNotReady);
static_assert(ErrorOf(cudaErrorIllegalAddress) == CudaError::kIllegalAddress);
static_assert(ErrorOf(cudaErrorLaunchTimeout) == CudaError::kLaunchTimeout);
static_assert(ErrorOf(cudaErrorAssert) == CudaError::kAssert);
static_assert(ErrorOf(cudaErrorHardwareStackError) == CudaError::kHardwareStack);
static_assert(ErrorOf(cudaErrorIllegalInstruction) == CudaError::kIllegalInstruction);
static_assert(ErrorOf(cudaErrorMisalignedAddress) == CudaError::kMisalignedAddress);
static_assert(ErrorOf(cudaErrorInvalidAddressSpace) == CudaError::kInvalidAddressSpace);
static_assert(ErrorOf(cudaErrorInvalidPc) == CudaError::kInvalidProgramCounter);
static_assert(ErrorOf(cudaErrorLaunchFailure) == CudaError::kLaunchFailure);
static_assert(ErrorOf(cudaErrorTensorMemoryLeak) == CudaError::kTensorMemoryLeak);
static_assert(ErrorOf(cudaErrorNotPermitted) == CudaError::kNotPermitted);
static_assert(ErrorOf(cudaErrorNotSupported) == CudaError::kNotSupported);
static_assert(ErrorOf(cudaErrorExternalDevice) == CudaError::kExternalDevice);
static_assert(ErrorOf(cudaErrorUnknown) == CudaError::kUnknown);

// Of a call of the runtime, which also keeps its last error for cudaGetLastError: that is for those
// who launch kernels, and must not be an error that was dealt with here.
CudaError Taken(cudaError_t error) {
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return ErrorOf(error);
}

cudaStream_t Native(CudaStream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t Native(CudaEvent event) { return static_cast<cudaEvent_t>(event.value); }
CUdeviceptr Pointer(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }
size_t Size(Bytes bytes) { return static_cast<size_t>(bytes.count()); }

// The driver's functions, in the version whose type is named here. Null where there is no driver,
// or none that has the function.
struct DriverCalls {
  PFN_cuDeviceGetAttribute_v2000 attribute = nullptr;
  PFN_cuMemGetAllocationGranularity_v10020 granularity = nullptr;
  PFN_cuMemCreate_v10020 create = nullptr;
  PFN_cuMemRelease_v10020 release = nullptr;
  PFN_cuMemAddressReserve_v10020 reserve = nullptr;
  PFN_cuMemAddressFree_v10020 free = nullptr;
  PFN_cuMemMap_v10020 map = nullptr;
  PFN_cuMemSetAccess_v10020 set_access = nullptr;
  PFN_cuMemUnmap_v10020 unmap = nullptr;
  PFN_cuStreamWriteValue32_v11070 write_word = nullptr;
};

template <typename Function>
void Find(const char* name, unsigned int version, Function* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &answer);
  if (error == cudaSuccess && answer == cudaDriverEntryPointSuccess) {
    *function = reinterpret_cast<Function>(found);
  }
}

DriverCalls FindDriverCalls() {
  constexpr unsigned int kVirtualMemory = 10020;  // CUDA 10.2
  DriverCalls calls;
  Find("cuDeviceGetAttribute", 2000, &calls.attribute);
  Find("cuMemGetAllocationGranularity", kVirtualMemory, &calls.granularity);
  Find("cuMemCreate", kVirtualMemory, &calls.create);
  Find("cuMemRelease", kVirtualMemory, &calls.release);
  Find("cuMemAddressReserve", kVirtualMemory, &calls.reserve);
  Find("cuMemAddressFree", kVirtualMemory, &calls.free);
  Find("cuMemMap", kVirtualMemory, &calls.map);
  Find("cuMemSetAccess", kVirtualMemory, &calls.set_access);
  Find("cuMemUnmap", kVirtualMemory, &calls.unmap);
  Find("cuStreamWriteValue32", 11070, &calls.write_word);
  return calls;
}

// Calls a function of the driver that may not be there.
template <typename Function, typename... Arguments>
CudaError Call(Function function, Arguments... arguments) {
  if (function == nullptr) return CudaError::kSymbolNotFound;
  return ErrorOf(function(arguments...));
}

CUmemAllocationProp PropertiesOn(int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

class ToolkitCudaCalls final : public CudaCalls {
 public:
  ToolkitCudaCalls() : driver_(FindDriverCalls()) {}

  std::string Describe(CudaError error) override {
    const auto code = static_cast<cudaError_t>(error);
    return StrCat(cudaGetErrorName(code), " (", cudaGetErrorString(code), ")");
  }

  CudaError DriverVersion(int* version) override { return Taken(cudaDriverGetVersion(version)); }
  CudaError RuntimeVersion(int* version) override { return Taken(cudaRuntimeGetVersion(version)); }
  CudaError DeviceCount(int* count) override { return Taken(cudaGetDeviceCount(count)); }
  CudaError Properties(int device, CudaProperties* properties) override;
  CudaError SetDevice(int device) override { return Taken(cudaSetDevice(device)); }
  CudaError MemoryInfo(CudaMemoryInfo* info) override {
    size_t free = 0;
    size_t total = 0;
    const cudaError_t error = cudaMemGetInfo(&free, &total);
    if (error == cudaSuccess) {
      *info = {.free = Bytes(static_cast<int64_t>(free)),
               .total = Bytes(static_cast<int64_t>(total))};
    }
    return Taken(error);
  }

  CudaError AllocationGranularity(int device, Bytes* granularity) override {
    const CUmemAllocationProp properties = PropertiesOn(device);
    size_t bytes = 0;
    const CudaError error =
        Call(driver_.granularity, &bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (error == CudaError::kNone) *granularity = Bytes(static_cast<int64_t>(bytes));
    return error;
  }
  CudaError CreatePhysical(int device, Bytes bytes, CudaPhysicalMemory* memory) override {
    const CUmemAllocationProp properties = PropertiesOn(device);
    CUmemGenericAllocationHandle handle = 0;
    const CudaError error = Call(driver_.create, &handle, Size(bytes), &properties, 0ULL);
    if (error == CudaError::kNone) *memory = {.value = handle};
    return error;
  }
  CudaError ReleasePhysical(CudaPhysicalMemory memory) override {
    return Call(driver_.release, CUmemGenericAllocationHandle{memory.value});
  }
  CudaError ReserveAddresses(Bytes bytes, std::byte** address) override {
    CUdeviceptr pointer = 0;
    const CudaError error =
        Call(driver_.reserve, &pointer, Size(bytes), size_t{0}, CUdeviceptr{0}, 0ULL);
    if (error == CudaError::kNone) *address = reinterpret_cast<std::byte*>(pointer);
    return error;
  }
  CudaError FreeAddresses(std::byte* address, Bytes bytes) override {
    return Call(driver_.free, Pointer(address), Size(bytes));
  }
  CudaError Map(std::byte* address, Bytes bytes, CudaPhysicalMemory memory) override {
    return Call(driver_.map, Pointer(address), Size(bytes), size_t{0},
                CUmemGenericAllocationHandle{memory.value}, 0ULL);
  }
  CudaError SetAccess(int device, std::byte* address, Bytes bytes) override {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return Call(driver_.set_access, Pointer(address), Size(bytes), &access, size_t{1});
  }
  CudaError Unmap(std::byte* address, Bytes bytes) override {
    return Call(driver_.unmap, Pointer(address), Size(bytes));
  }

  CudaError Allocate(Bytes bytes, std::byte** address) override {
    void* allocated = nullptr;
    const cudaError_t error = cudaMalloc(&allocated, Size(bytes));
    if (error == cudaSuccess) *address = static_cast<std::byte*>(allocated);
    return Taken(error);
  }
  CudaError Free(std::byte* address) override { return Taken(cudaFree(address)); }
  CudaError RegisterHost(std::byte* address, Bytes bytes) override {
    return Taken(cudaHostRegister(address, Size(bytes), cudaHostRegisterPortable));
  }
  CudaError UnregisterHost(std::byte* address) override {
    return Taken(cudaHostUnregister(address));
  }

  CudaError CreateStream(CudaStream* stream) override {
    cudaStream_t created = nullptr;
    const cudaError_t error = cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking);
    if (error == cudaSuccess) *stream = created;
    return Taken(error);
  }
  CudaError DestroyStream(CudaStream stream) override {
    return Taken(cudaStreamDestroy(Native(stream)));
  }
  CudaError SynchronizeStream(CudaStream stream) override {
    return Taken(cudaStreamSynchronize(Native(stream)));
  }

  CudaError CreateEvent(EventKind kind, CudaEvent* event) override {
    const unsigned int timing = kind == EventKind::kOrder ? cudaEventDisableTiming : 0;
    cudaEvent_t created = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&created, cudaEventBlockingSync | timing);
    if (error == cudaSuccess) *event = {.value = created};
    return Taken(error);
  }
  CudaError DestroyEvent(CudaEvent event) override {
    return Taken(cudaEventDestroy(Native(event)));
  }
  CudaError RecordEvent(CudaEvent event, CudaStream stream) override {
    return Taken(cudaEventRecord(Native(event), Native(stream)));
  }
  CudaError WaitEvent(CudaStream stream, CudaEvent event) override {
    return Taken(cudaStreamWaitEvent(Native(stream), Native(event), 0));
  }
  CudaError QueryEvent(CudaEvent event) override { return Taken(cudaEventQuery(Native(event))); }
  CudaError SynchronizeEvent(CudaEvent event) override {
    return Taken(cudaEventSynchronize(Native(event)));
  }
  CudaError ElapsedTime(CudaEvent begin, CudaEvent end, float* milliseconds) override {
    return Taken(cudaEventElapsedTime(milliseconds, Native(begin), Native(end)));
  }

  CudaError CopyToDevice(const Copy& copy, CudaStream stream) override {
    return Taken(cudaMemcpyAsync(copy.destination, copy.source, Size(copy.bytes),
                                 cudaMemcpyHostToDevice, Native(stream)));
  }
  CudaError CopyToHost(const Copy& copy, CudaStream stream) override {
    return Taken(cudaMemcpyAsync(copy.destination, copy.source, Size(copy.bytes),
                                 cudaMemcpyDeviceToHost, Native(stream)));
  }
  CudaError FillWithZeros(std::byte* address, Bytes bytes, CudaStream stream) override {
    return Taken(cudaMemsetAsync(address, 0, Size(bytes), Native(stream)));
  }
  CudaError WriteWord(uint32_t* address, uint32_t value, CudaStream stream) override {
    void* on_device = nullptr;
    const cudaError_t error = cudaHostGetDevicePointer(&on_device, address, 0);
    if (error != cudaSuccess) return Taken(error);
    return Call(driver_.write_word, static_cast<CUstream>(stream), Pointer(on_device), value, 0U);
  }

 private:
  const DriverCalls driver_;
};

CudaError ToolkitCudaCalls::Properties(int device, CudaProperties* properties) {
  cudaDeviceProp all = {};
  if (const cudaError_t error = cudaGetDeviceProperties(&all, device); error != cudaSuccess) {
    return Taken(error);
  }
  int mode = 0;
  if (const cudaError_t error = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device);
      error != cudaSuccess) {
    return Taken(error);
  }
  int virtual_memory = 0;
  const CudaError asked = Call(driver_.attribute, &virtual_memory,
                               CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
  *properties = {
      .name = all.name,
      .compute_major = all.major,
      .compute_minor = all.minor,
      .multiprocessors = all.multiProcessorCount,
      .virtual_memory = asked == CudaError::kNone && virtual_memory != 0,
      .prohibited = mode == cudaComputeModeProhibited,
  };
  return CudaError::kNone;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaCalls>> CreateToolkitCudaCalls() {
  return std::make_unique<ToolkitCudaCalls>();
}

}  // namespace gantry
