// Where emulated kernels run: what a stream handle points to when kernels are emulated.
#ifndef GANTRY_DEVICE_CUDA_EMULATION_STREAM_RUNNER_H_
#define GANTRY_DEVICE_CUDA_EMULATION_STREAM_RUNNER_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "device/cuda/emulation/emulator.h"
#include "device/cuda/launch_shape.h"

namespace gantry {

class StreamRunner {
 public:
  virtual ~StreamRunner() = default;
  // Takes a launch for later, or runs it now. `thread` is called once for every thread. Returns
  // cudaSuccess (0) or the number of a cudaError.
  virtual int Launch(std::string_view kernel, const LaunchShape& shape,
                     std::function<void()> thread) = 0;
};

// Runs each launch when it comes, on the calling thread. For tests of kernels.
class ImmediateStream final : public StreamRunner {
 public:
  explicit ImmediateStream(const EmulatorOptions& options) : emulator_(options) {}

  int Launch(std::string_view kernel, const LaunchShape& shape,
             std::function<void()> thread) override;
  // The first error since the last call.
  absl::Status TakeStatus();
  int64_t launches() const { return launches_; }

 private:
  Emulator emulator_;
  absl::Status status_;
  int64_t launches_ = 0;
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_EMULATION_STREAM_RUNNER_H_
