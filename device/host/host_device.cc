#include "device/host/host_device.h"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/strings.h"
#include "device/host/host_address_space.h"
#include "device/host/host_copy_lane.h"
#include "device/host/host_slab.h"
#include "device/host/memory_limits.h"
#include "device/host/virtual_memory.h"

namespace gantry {
namespace {

// Work is done at once, by whoever submits it.
class HostQueue final : public Queue {
 public:
  absl::Status FillWithZeros(std::byte* address, Bytes bytes) override {
    std::memset(address, 0, static_cast<size_t>(bytes.count()));
    return absl::OkStatus();
  }
  absl::StatusOr<QueuePoint> Mark() override { return QueuePoint(); }
  bool Reached(QueuePoint /*point*/) override { return true; }
  absl::Status Wait(QueuePoint /*point*/) override { return absl::OkStatus(); }
  absl::Status RunAfter(CopyLane& lane) override {
    auto* host_lane = dynamic_cast<HostCopyLane*>(&lane);
    GANTRY_CHECK(host_lane != nullptr) << "a lane of another device";
    host_lane->WaitForAll();
    return absl::OkStatus();
  }
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options)
      : options_(options),
        move_method_(ProbeMoveMethod()),
        mapping_budget_({.mappings_now = CountMappings(), .limit = MappingLimit()}) {}

  std::string_view name() const override {
    return options_.topology == DeviceTopology::kUnified ? "host" : "emulated";
  }
  DeviceTopology topology() const override { return options_.topology; }
  Bytes slot_granularity() const override { return Bytes(sysconf(_SC_PAGESIZE)); }
  Queue& queue() override { return queue_; }

  absl::StatusOr<std::unique_ptr<Slab>> CreateSlab(const SlabOptions& options) override {
    return HostSlab::Create(
        {.slab = options, .move_method = move_method_, .mapping_budget = &mapping_budget_});
  }

  absl::StatusOr<std::unique_ptr<AddressSpace>> ReserveAddressSpace(Slab* slab,
                                                                    int64_t pages) override {
    auto* host_slab = dynamic_cast<HostSlab*>(slab);
    GANTRY_CHECK(host_slab != nullptr) << "a slab of another device";
    GANTRY_CHECK(host_slab->kind() == MemoryKind::kDevice) << "slots of host kind have no homes";
    return HostAddressSpace::Create(host_slab, pages);
  }

  // Both directions are alike here: neither side of the copy needs an engine of its own.
  absl::StatusOr<std::unique_ptr<CopyLane>> CreateCopyLane(CopyDirection /*direction*/,
                                                           CopySink* sink) override {
    return HostCopyLane::Create({.bandwidth_bytes_per_second = options_.bandwidth_bytes_per_second,
                                 .latency_nanoseconds = options_.latency_nanoseconds,
                                 .clock = options_.clock,
                                 .sink = sink});
  }

 private:
  const HostDeviceOptions options_;
  const MoveMethod move_method_;
  MappingBudget mapping_budget_;
  HostQueue queue_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateHostDevice(const HostDeviceOptions& options) {
  GANTRY_CHECK(options.clock != nullptr);
  if (options.bandwidth_bytes_per_second < 0) {
    return InvalidArgument("lanes of ", options.bandwidth_bytes_per_second, " bytes/s");
  }
  if (options.latency_nanoseconds < 0) {
    return InvalidArgument("lanes with a latency of ", options.latency_nanoseconds, " ns");
  }
  return std::make_unique<HostDevice>(options);
}

}  // namespace gantry
