#include "device/cuda/cuda_device.h"

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/cuda/cuda_address_space.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_copy_lane.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_host_slab.h"
#include "device/cuda/cuda_queue.h"
#include "device/cuda/cuda_slab.h"
#include "device/cuda/cuda_unmapper.h"
#include "device/cuda/stream.h"
#include "device/device.h"

namespace gantry {
namespace {

constexpr int kComputeMajorMin = 8;  // what kernels are built for, and bf16 in hardware

class CudaDeviceImpl final : public CudaDevice {
 public:
  explicit CudaDeviceImpl(CudaContext::Options options)
      : context_(std::move(options)), name_(StrCat("cuda:", context_.device())) {}

  absl::Status Start() {
    GANTRY_ASSIGN_OR_RETURN(queue_, CudaQueue::Create(&context_));
    GANTRY_ASSIGN_OR_RETURN(unmapper_, CudaUnmapper::Create(&context_, queue_.get()));
    return absl::OkStatus();
  }

  std::string_view name() const override { return name_; }
  DeviceTopology topology() const override { return DeviceTopology::kDiscrete; }
  Bytes slot_granularity() const override { return context_.granularity(); }
  Queue& queue() override { return *queue_; }

  absl::StatusOr<std::unique_ptr<Slab>> CreateSlab(const SlabOptions& options) override {
    if (options.kind == MemoryKind::kHostPinned) {
      return CudaHostSlab::Create({.slab = options, .context = &context_});
    }
    return CudaSlab::Create({.slab = options, .context = &context_, .queue = queue_.get()});
  }
  absl::StatusOr<std::unique_ptr<AddressSpace>> ReserveAddressSpace(Slab* slab,
                                                                    int64_t pages) override {
    auto* cuda_slab = dynamic_cast<CudaSlab*>(slab);
    GANTRY_CHECK(cuda_slab != nullptr) << "no slab of device memory of a CUDA device";
    return CudaAddressSpace::Create({.slab = cuda_slab,
                                     .pages = pages,
                                     .context = &context_,
                                     .queue = queue_.get(),
                                     .unmapper = unmapper_.get()});
  }
  absl::StatusOr<std::unique_ptr<CopyLane>> CreateCopyLane(CopyDirection direction,
                                                           CopySink* sink) override {
    return CudaCopyLane::Create(
        {.direction = direction, .context = &context_, .queue = queue_.get(), .sink = sink});
  }
  absl::Status Run(std::string_view operator_name,
                   absl::FunctionRef<int(CudaStream)> launch) override {
    return queue_->Run(operator_name, launch);
  }

 private:
  CudaContext context_;
  const std::string name_;
  std::unique_ptr<CudaQueue> queue_;        // set by Start
  std::unique_ptr<CudaUnmapper> unmapper_;  // set by Start; waits for the queue
};

// "13.0" of 13000.
std::string Version(int number) { return StrCat(number / 1000, ".", number % 1000 / 10); }

absl::Status CallError(CudaCalls& calls, CudaError error, std::string_view call) {
  return MakeStatus(StatusCodeOf(error), calls.Describe(error), " from ", call);
}

absl::Status CheckDriver(CudaCalls& calls) {
  int needed = 0;
  int driver = 0;
  if (const CudaError error = calls.RuntimeVersion(&needed); error != CudaError::kNone) {
    return CallError(calls, error, "cudaRuntimeGetVersion()");
  }
  const CudaError error = calls.DriverVersion(&driver);
  if (error != CudaError::kNone || driver == 0) {
    return FailedPrecondition(
        "there is no NVIDIA driver on this machine; a GPU needs one for CUDA ", Version(needed),
        " or newer");
  }
  // Drivers serve all programs of their own major version.
  if (driver / 1000 < needed / 1000) {
    return FailedPrecondition("the NVIDIA driver is for CUDA ", Version(driver),
                              "; this program needs one for CUDA ", Version(needed / 1000 * 1000),
                              " or newer");
  }
  return absl::OkStatus();
}

absl::Status CheckIndex(CudaCalls& calls, int index) {
  int count = 0;
  const CudaError error = calls.DeviceCount(&count);
  if (error != CudaError::kNone && error != CudaError::kNoDevice) {
    return CallError(calls, error, "cudaGetDeviceCount()");
  }
  if (count == 0) {
    return NotFound("GPU ", index,
                    " is asked for; the driver shows none (CUDA_VISIBLE_DEVICES may "
                    "hide them)");
  }
  if (index < 0 || index >= count) {
    return NotFound("GPU ", index, " is asked for; there ", count == 1 ? "is " : "are ", count,
                    count == 1 ? ", GPU 0" : StrCat(", GPU 0 to ", count - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckUsable(CudaCalls& calls, const CudaDeviceOptions& options,
                         const CudaProperties& properties, std::string_view name) {
  if (properties.compute_major < kComputeMajorMin) {
    return FailedPrecondition(name, " has compute capability ", properties.compute_major, ".",
                              properties.compute_minor, "; ", kComputeMajorMin,
                              ".0 or newer is needed");
  }
  if (properties.prohibited) {
    return Unavailable(name, " is in compute mode prohibited; `nvidia-smi -c DEFAULT` allows it");
  }
  const CudaError taken = calls.SetDevice(options.index);
  if (taken == CudaError::kDevicesUnavailable) {
    return Unavailable(name,
                       " is taken by another process (compute mode exclusive); it must end, "
                       "or the mode be DEFAULT");
  }
  if (taken != CudaError::kNone) return CallError(calls, taken, "cudaSetDevice()");
  CudaMemoryInfo info;
  if (const CudaError error = calls.MemoryInfo(&info); error != CudaError::kNone) {
    return CallError(calls, error, "cudaMemGetInfo()");
  }
  if (options.memory_budget <= info.free) return absl::OkStatus();
  return ResourceExhausted("a budget of ", options.memory_budget, " on ", name, ", which has ",
                           info.free, " free of ", info.total);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CreateCudaDevice(const CudaDeviceOptions& options) {
  GANTRY_CHECK(options.calls != nullptr && options.clock != nullptr && options.logger != nullptr);
  CudaCalls& calls = *options.calls;
  if (options.memory_budget < Bytes(0)) {
    return InvalidArgument("a budget of ", options.memory_budget.count(), " bytes of GPU memory");
  }
  GANTRY_RETURN_IF_ERROR(CheckDriver(calls));
  GANTRY_RETURN_IF_ERROR(CheckIndex(calls, options.index));
  CudaProperties properties;
  if (const CudaError error = calls.Properties(options.index, &properties);
      error != CudaError::kNone) {
    return CallError(calls, error, "cudaGetDeviceProperties()");
  }
  const std::string name = StrCat("GPU ", options.index, " (", properties.name, ")");
  GANTRY_RETURN_IF_ERROR(CheckUsable(calls, options, properties, name));
  Bytes granularity(sysconf(_SC_PAGESIZE));
  if (properties.virtual_memory) {
    if (const CudaError error = calls.AllocationGranularity(options.index, &granularity);
        error != CudaError::kNone) {
      return CallError(calls, error, "cuMemGetAllocationGranularity()");
    }
  }
  auto device = std::make_unique<CudaDeviceImpl>(
      CudaContext::Options{.calls = &calls,
                           .device = options.index,
                           .name = name,
                           .granularity = granularity,
                           .virtual_memory = properties.virtual_memory,
                           .clock = options.clock,
                           .logger = options.logger});
  GANTRY_RETURN_IF_ERROR(device->Start());
  return device;
}

}  // namespace gantry
