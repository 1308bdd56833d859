#include "device/cuda/emulation/emulated_stream.h"

#include <functional>
#include <string_view>
#include <utility>

#include "device/cuda/launch_shape.h"

namespace gantry {

int EmulatedStream::Launch(std::string_view kernel, const LaunchShape& shape,
                           std::function<void()> thread) {
  return options_.launch(*this, kernel, shape, std::move(thread));
}

}  // namespace gantry
