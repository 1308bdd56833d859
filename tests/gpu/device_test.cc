// The conformance suite on this machine's first GPU. Without one its cases are skipped and say why.
#include "device/device.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/strings.h"
#include "device/testing/device_conformance.h"
#include "tests/gpu/gpus.h"

namespace gantry {
namespace {

// The device, and all that must outlive it.
class OwningDevice final : public Device {
 public:
  explicit OwningDevice(std::unique_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  std::string_view name() const override { return gpu_->device->name(); }
  DeviceTopology topology() const override { return gpu_->device->topology(); }
  Bytes slot_granularity() const override { return gpu_->device->slot_granularity(); }
  Queue& queue() override { return gpu_->device->queue(); }
  absl::StatusOr<std::unique_ptr<Slab>> CreateSlab(const SlabOptions& options) override {
    return gpu_->device->CreateSlab(options);
  }
  absl::StatusOr<std::unique_ptr<AddressSpace>> ReserveAddressSpace(Slab* slab,
                                                                    int64_t pages) override {
    return gpu_->device->ReserveAddressSpace(slab, pages);
  }
  absl::StatusOr<std::unique_ptr<CopyLane>> CreateCopyLane(CopyDirection direction,
                                                           CopySink* sink) override {
    return gpu_->device->CreateCopyLane(direction, sink);
  }

 private:
  std::unique_ptr<Gpu> gpu_;
};

std::vector<DeviceUnderTest> Devices() {
  const absl::StatusOr<std::unique_ptr<Gpu>> gpu = OpenGpu(0);
  const std::string missing(FromAbsl(gpu.status().message()));
  const int64_t granularity =
      gpu.ok() ? (*gpu)->device->slot_granularity().count() : int64_t{2} << 20;
  const auto create = []() -> std::unique_ptr<Device> {
    auto opened = OpenGpu(0);
    GANTRY_CHECK_OK(opened.status());
    return std::make_unique<OwningDevice>(*std::move(opened));
  };
  return {{.name = "LeastSlots",
           .create = create,
           .slot_bytes = Bytes(granularity),
           .missing = missing},
          {.name = "LargeSlots",
           .create = create,
           .slot_bytes = Bytes(8 * granularity),
           .missing = missing}};
}

INSTANTIATE_TEST_SUITE_P(Gpu, DeviceConformanceTest, ::testing::ValuesIn(Devices()),
                         DeviceUnderTestName);

}  // namespace
}  // namespace gantry
