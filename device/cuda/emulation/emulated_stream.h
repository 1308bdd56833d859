// A stream of an emulated GPU: work in order. Plain data of EmulatedCudaCalls, whose mutex guards
// it, but for Launch, which emulated kernels' launch functions call.
#ifndef GANTRY_DEVICE_CUDA_EMULATION_EMULATED_STREAM_H_
#define GANTRY_DEVICE_CUDA_EMULATION_EMULATED_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/cuda/emulation/access_log.h"
#include "device/cuda/emulation/stream_runner.h"
#include "device/cuda/launch_shape.h"

namespace gantry {

// One recording of an event.
struct EmulatedRecord {
  VectorClock clock;  // of the work before it
  bool done = false;
  int64_t nanoseconds = 0;  // of the device's time
};

// What a stream does next. Exactly one kind of it.
struct EmulatedWork {
  struct Span {
    std::byte* destination;
    const std::byte* source;  // null: zeros
    int64_t bytes;
  };
  std::vector<Span> spans = {};                 // to be copied
  std::function<void()> thread = {};            // a kernel's
  std::string kernel = {};                      // its name
  LaunchShape shape = {};                       // its shape
  uint32_t* word = nullptr;                     // to be written
  uint32_t value = 0;                           // the word's
  std::shared_ptr<EmulatedRecord> record = {};  // to be done; shared with the event
  std::shared_ptr<EmulatedRecord> wait = {};    // to be waited for; shared with the event
  std::shared_ptr<const WorkOrder> order = {};  // shared with what it touches
};

class EmulatedStream final : public StreamRunner {
 public:
  using LaunchFunction = std::function<int(EmulatedStream&, std::string_view, const LaunchShape&,
                                           std::function<void()>)>;
  struct Options {
    size_t number;  // from 1; its actor
    int device;
    LaunchFunction launch;
  };
  explicit EmulatedStream(Options options) : options_(std::move(options)) {}

  int Launch(std::string_view kernel, const LaunchShape& shape,
             std::function<void()> thread) override;
  size_t number() const { return options_.number; }
  int device() const { return options_.device; }

  VectorClock clock;  // what is done before what is submitted next
  std::deque<EmulatedWork> queue;
  bool busy = false;       // its first work is being done
  bool destroyed = false;  // takes nothing any more

 private:
  const Options options_;
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_EMULATION_EMULATED_STREAM_H_
