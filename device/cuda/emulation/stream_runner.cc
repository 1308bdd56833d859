#include "device/cuda/emulation/stream_runner.h"

#include <functional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "device/cuda/launch_shape.h"

namespace gantry {
namespace {

constexpr int kInvalidConfiguration = 9;  // cudaErrorInvalidConfiguration
constexpr int kLaunchFailure = 719;       // cudaErrorLaunchFailure

}  // namespace

int ImmediateStream::Launch(std::string_view kernel, const LaunchShape& shape,
                            std::function<void()> thread) {
  ++launches_;
  const absl::Status status = emulator_.Run(kernel, shape, thread);
  if (status.ok()) return 0;
  const int error = absl::IsInvalidArgument(status) ? kInvalidConfiguration : kLaunchFailure;
  if (status_.ok()) status_ = status;
  return error;
}

absl::Status ImmediateStream::TakeStatus() { return std::exchange(status_, absl::OkStatus()); }

}  // namespace gantry
