#include "tests/gpu/device_costs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/stream.h"
#include "device/device.h"
#include "device/testing/recording_sink.h"

namespace gantry {
namespace {

// Slabs of one slot size, and lanes.
class Bench {
 public:
  static absl::StatusOr<std::unique_ptr<Bench>> Create(const DeviceCostsOptions& options,
                                                       Bytes slot_bytes) {
    std::unique_ptr<Bench> bench(new Bench(options, slot_bytes));
    Device& device = *options.device;
    const Nanoseconds begin = options.clock->Now();
    GANTRY_ASSIGN_OR_RETURN(bench->slab_, device.CreateSlab({.kind = MemoryKind::kDevice,
                                                             .slot_bytes = slot_bytes,
                                                             .slot_count = options.slots}));
    bench->made_ = options.clock->Now() - begin;
    GANTRY_ASSIGN_OR_RETURN(bench->host_, device.CreateSlab({.kind = MemoryKind::kHostPinned,
                                                             .slot_bytes = slot_bytes,
                                                             .slot_count = 2 * options.slots}));
    GANTRY_ASSIGN_OR_RETURN(bench->space_,
                            device.ReserveAddressSpace(bench->slab_.get(), options.slots));
    GANTRY_ASSIGN_OR_RETURN(bench->up_,
                            device.CreateCopyLane(CopyDirection::kHostToDevice, &bench->up_sink_));
    GANTRY_ASSIGN_OR_RETURN(
        bench->down_, device.CreateCopyLane(CopyDirection::kDeviceToHost, &bench->down_sink_));
    return bench;
  }

  absl::StatusOr<std::string> Run() {
    GANTRY_ASSIGN_OR_RETURN(const Nanoseconds map,
                            Median([this] { return MapAll(); }, [this] { return UnmapAll(); }));
    GANTRY_RETURN_IF_ERROR(MapAll());
    GANTRY_ASSIGN_OR_RETURN(const Nanoseconds unmap,
                            Median([this] { return UnmapAll(); }, [this] { return MapAll(); }));
    GANTRY_RETURN_IF_ERROR(UnmapAll());
    GANTRY_ASSIGN_OR_RETURN(const Nanoseconds up, Median([this] { return Copy(true, false); }));
    GANTRY_ASSIGN_OR_RETURN(const Nanoseconds down, Median([this] { return Copy(false, true); }));
    GANTRY_ASSIGN_OR_RETURN(const Nanoseconds both, Median([this] { return Copy(true, true); }));
    GANTRY_ASSIGN_OR_RETURN(const Nanoseconds bare_up, Median([this] { return CopyBare(true); }));
    GANTRY_ASSIGN_OR_RETURN(const Nanoseconds bare_down,
                            Median([this] { return CopyBare(false); }));
    return StrCat("{\"slot_bytes\": ", slot_bytes_.count(), ", \"slots\": ", options_.slots,
                  ", \"make_us\": ", EachSlot(made_), ", \"map_us\": ", EachSlot(map),
                  ", \"unmap_us\": ", EachSlot(unmap), ", \"up_gb_s\": ", Rate(up, 1),
                  ", \"down_gb_s\": ", Rate(down, 1), ", \"both_gb_s\": ", Rate(both, 2),
                  ", \"bare_up_gb_s\": ", Rate(bare_up, 1),
                  ", \"bare_down_gb_s\": ", Rate(bare_down, 1), "}");
  }

 private:
  Bench(const DeviceCostsOptions& options, Bytes slot_bytes)
      : options_(options), slot_bytes_(slot_bytes) {}

  double EachSlot(Nanoseconds time) const {
    return static_cast<double>(time) / 1e3 / static_cast<double>(options_.slots);
  }
  double Rate(Nanoseconds time, int64_t directions) const {
    const int64_t bytes = directions * options_.slots * slot_bytes_.count();
    return static_cast<double>(bytes) / static_cast<double>(std::max<Nanoseconds>(time, 1));
  }

  // The median time of `measured`; `undo` comes after each, and is not counted.
  absl::StatusOr<Nanoseconds> Median(
      const std::function<absl::Status()>& measured,
      const std::function<absl::Status()>& undo = [] { return absl::OkStatus(); }) {
    std::vector<Nanoseconds> times;
    for (int64_t round = 0; round < options_.rounds; ++round) {
      const Nanoseconds begin = options_.clock->Now();
      GANTRY_RETURN_IF_ERROR(measured());
      times.push_back(options_.clock->Now() - begin);
      GANTRY_RETURN_IF_ERROR(undo());
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  absl::Status MapAll() {
    for (int64_t slot = 0; slot < options_.slots; ++slot) {
      GANTRY_RETURN_IF_ERROR(space_->Map(slot, SlotId(slot)));
    }
    return absl::OkStatus();
  }
  absl::Status UnmapAll() {
    for (int64_t slot = 0; slot < options_.slots; ++slot) {
      GANTRY_RETURN_IF_ERROR(space_->Unmap(slot));
    }
    return absl::OkStatus();
  }

  // Each direction has host memory and half of the device's slots for itself when both run.
  absl::Status Copy(bool up, bool down) {
    const size_t ups = up_sink_.completions().size();
    const size_t downs = down_sink_.completions().size();
    const int64_t half = options_.slots / 2;
    for (int64_t i = 0; i < options_.slots; ++i) {
      const int64_t near = up && down ? i % std::max<int64_t>(half, 1) : i;
      if (up) {
        up_->Submit({.destination = slab_->parking(SlotId(near)),
                     .source = host_->parking(SlotId(i)),
                     .bytes = slot_bytes_,
                     .tag = 0});
      }
      if (down) {
        const int64_t far = up ? options_.slots - 1 - near : i;
        down_->Submit({.destination = host_->parking(SlotId(options_.slots + i)),
                       .source = slab_->parking(SlotId(far)),
                       .bytes = slot_bytes_,
                       .tag = 0});
      }
    }
    const auto count = static_cast<size_t>(options_.slots);
    if (up) GANTRY_RETURN_IF_ERROR(up_sink_.WaitFor(ups + count).back().status);
    if (down) GANTRY_RETURN_IF_ERROR(down_sink_.WaitFor(downs + count).back().status);
    return absl::OkStatus();
  }

  absl::Status CopyBare(bool up) {
    CudaCalls& calls = *options_.calls;
    if (bare_ == nullptr) GANTRY_RETURN_IF_ERROR(StatusOf(calls.CreateStream(&bare_)));
    for (int64_t i = 0; i < options_.slots; ++i) {
      std::byte* const near = slab_->parking(SlotId(i));
      std::byte* const far = host_->parking(SlotId(i));
      GANTRY_RETURN_IF_ERROR(StatusOf(
          up ? calls.CopyToDevice({.destination = near, .source = far, .bytes = slot_bytes_}, bare_)
             : calls.CopyToHost({.destination = far, .source = near, .bytes = slot_bytes_},
                                bare_)));
    }
    return StatusOf(calls.SynchronizeStream(bare_));
  }
  absl::Status StatusOf(CudaError error) const {
    if (error == CudaError::kNone) return absl::OkStatus();
    return absl::Status(StatusCodeOf(error), ToAbsl(options_.calls->Describe(error)));
  }

 public:
  ~Bench() {
    if (bare_ != nullptr) static_cast<void>(options_.calls->DestroyStream(bare_));
  }

 private:
  const DeviceCostsOptions& options_;
  const Bytes slot_bytes_;
  Nanoseconds made_ = 0;
  std::unique_ptr<Slab> slab_;
  std::unique_ptr<Slab> host_;
  std::unique_ptr<AddressSpace> space_;
  RecordingSink up_sink_{nullptr};
  RecordingSink down_sink_{nullptr};
  std::unique_ptr<CopyLane> up_;
  std::unique_ptr<CopyLane> down_;
  CudaStream bare_ = nullptr;
};

}  // namespace

absl::StatusOr<std::string> MeasureDeviceCosts(const DeviceCostsOptions& options) {
  std::string text = StrCat("{\"device\": \"", options.device->name(), "\", \"sizes\": [");
  const char* separator = "";
  for (const Bytes slot_bytes : options.slot_bytes) {
    GANTRY_ASSIGN_OR_RETURN(const auto bench, Bench::Create(options, slot_bytes));
    GANTRY_ASSIGN_OR_RETURN(const std::string size, bench->Run());
    text += StrCat(separator, "\n  ", size);
    separator = ",";
  }
  return text + "]}";
}

}  // namespace gantry
