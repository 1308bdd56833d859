#include "device/fake/fake_device.h"

#include <atomic>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/fake/fake_copy_lane.h"
#include "device/host/host_device.h"

namespace gantry {
namespace {

// What an operation reports when the plan makes it fail; OK otherwise. Slowness is for lanes only.
absl::Status Injected(FaultPlan& faults, FaultPoint point, std::string_view what) {
  const FaultPlan::Verdict verdict = faults.Next(point);
  if (verdict.effect != FaultEffect::kFail) return absl::OkStatus();
  const absl::Status status = ErrnoStatus(verdict.error_number, StrCat("injected: ", what));
  const bool room = verdict.error_number == ENOMEM &&
                    (point == FaultPoint::kSlab || point == FaultPoint::kAddresses);
  return room ? absl::Status(absl::StatusCode::kResourceExhausted, status.message()) : status;
}

// Bytes that are out, of a limit.
class Capacity {
 public:
  explicit Capacity(Bytes limit) : limit_(limit.count()) {}
  absl::Status Take(int64_t bytes) {
    const int64_t before = used_.fetch_add(bytes);
    if (limit_ == 0 || before + bytes <= limit_) return absl::OkStatus();
    used_.fetch_sub(bytes);
    return ResourceExhausted("a slab of ", Bytes(bytes), " on a device with ",
                             Bytes(limit_ - before), " of ", Bytes(limit_), " free");
  }
  void Give(int64_t bytes) { used_.fetch_sub(bytes); }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_ = 0;
};

class FakeSlab final : public Slab {
 public:
  FakeSlab(std::unique_ptr<Slab> inner, Capacity* capacity)
      : inner_(std::move(inner)), capacity_(capacity) {}
  ~FakeSlab() override {
    if (capacity_ != nullptr) capacity_->Give(slot_bytes().count() * slot_count());
  }
  Bytes slot_bytes() const override { return inner_->slot_bytes(); }
  int64_t slot_count() const override { return inner_->slot_count(); }
  std::byte* parking(SlotId slot) const override { return inner_->parking(slot); }
  Slab* inner() const { return inner_.get(); }

 private:
  std::unique_ptr<Slab> inner_;
  Capacity* capacity_;  // null: of host memory
};

class FakeAddressSpace final : public AddressSpace {
 public:
  FakeAddressSpace(std::unique_ptr<AddressSpace> inner, FaultPlan* faults)
      : inner_(std::move(inner)), faults_(faults) {}
  std::byte* base() const override { return inner_->base(); }
  int64_t page_count() const override { return inner_->page_count(); }
  absl::Status Map(int64_t page, SlotId slot) override {
    GANTRY_RETURN_IF_ERROR(
        Injected(*faults_, FaultPoint::kMap, StrCat("mapping ", slot, " at page ", page)));
    return inner_->Map(page, slot);
  }
  absl::Status Unmap(int64_t page) override {
    GANTRY_RETURN_IF_ERROR(Injected(*faults_, FaultPoint::kUnmap, StrCat("unmapping page ", page)));
    return inner_->Unmap(page);
  }

 private:
  std::unique_ptr<AddressSpace> inner_;
  FaultPlan* faults_;
};

// The host's, but for lanes, which need the loop to go on.
class FakeQueue final : public Queue {
 public:
  explicit FakeQueue(Queue* inner) : inner_(*inner) {}
  absl::Status FillWithZeros(std::byte* address, Bytes bytes) override {
    return inner_.FillWithZeros(address, bytes);
  }
  absl::StatusOr<QueuePoint> Mark() override { return inner_.Mark(); }
  bool Reached(QueuePoint point) override { return inner_.Reached(point); }
  absl::Status Wait(QueuePoint point) override { return inner_.Wait(point); }
  absl::Status RunAfter(CopyLane& lane) override {
    auto* fake_lane = dynamic_cast<FakeCopyLane*>(&lane);
    GANTRY_CHECK(fake_lane != nullptr) << "a lane of another device";
    fake_lane->Finish();
    return absl::OkStatus();
  }

 private:
  Queue& inner_;
};

class FakeDevice final : public Device {
 public:
  FakeDevice(const FakeDeviceOptions& options, std::unique_ptr<Device> inner)
      : options_(options),
        capacity_(options.capacity),
        inner_(std::move(inner)),
        queue_(&inner_->queue()) {}

  std::string_view name() const override { return "fake"; }
  DeviceTopology topology() const override { return options_.topology; }
  Bytes slot_granularity() const override { return inner_->slot_granularity(); }
  Queue& queue() override { return queue_; }

  absl::StatusOr<std::unique_ptr<Slab>> CreateSlab(const SlabOptions& options) override {
    GANTRY_RETURN_IF_ERROR(
        Injected(*options_.faults, FaultPoint::kSlab,
                 StrCat("a slab of ", options.slot_count, " slots of ", options.slot_bytes)));
    GANTRY_ASSIGN_OR_RETURN(auto slab, inner_->CreateSlab(options));
    Capacity* capacity = options.kind == MemoryKind::kDevice ? &capacity_ : nullptr;
    if (capacity != nullptr) {
      GANTRY_RETURN_IF_ERROR(capacity->Take(options.slot_bytes.count() * options.slot_count));
    }
    return std::make_unique<FakeSlab>(std::move(slab), capacity);
  }

  absl::StatusOr<std::unique_ptr<AddressSpace>> ReserveAddressSpace(Slab* slab,
                                                                    int64_t pages) override {
    auto* fake = dynamic_cast<FakeSlab*>(slab);
    GANTRY_CHECK(fake != nullptr) << "a slab of another device";
    GANTRY_RETURN_IF_ERROR(Injected(*options_.faults, FaultPoint::kAddresses,
                                    StrCat("reserving addresses for ", pages, " pages")));
    GANTRY_ASSIGN_OR_RETURN(auto space, inner_->ReserveAddressSpace(fake->inner(), pages));
    return std::make_unique<FakeAddressSpace>(std::move(space), options_.faults);
  }

  absl::StatusOr<std::unique_ptr<CopyLane>> CreateCopyLane(CopyDirection direction,
                                                           CopySink* sink) override {
    GANTRY_RETURN_IF_ERROR(Injected(*options_.faults, FaultPoint::kCopyLane, "making a copy lane"));
    return std::make_unique<FakeCopyLane>(
        FakeCopyLane::Options{.direction = direction,
                              .bandwidth_bytes_per_second = options_.bandwidth_bytes_per_second,
                              .latency = options_.latency,
                              .loop = options_.loop,
                              .clock = options_.clock,
                              .faults = options_.faults,
                              .sink = sink});
  }

 private:
  const FakeDeviceOptions options_;
  Capacity capacity_;
  std::unique_ptr<Device> inner_;
  FakeQueue queue_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateFakeDevice(const FakeDeviceOptions& options) {
  GANTRY_CHECK(options.clock != nullptr && options.loop != nullptr && options.faults != nullptr);
  if (options.capacity < Bytes(0) || options.bandwidth_bytes_per_second < 0 ||
      options.latency < 0) {
    return InvalidArgument("a fake device of ", options.capacity.count(), " bytes with lanes of ",
                           options.bandwidth_bytes_per_second, " bytes/s and ", options.latency,
                           " ns");
  }
  GANTRY_ASSIGN_OR_RETURN(auto inner,
                          CreateHostDevice({.topology = options.topology, .clock = options.clock}));
  return std::make_unique<FakeDevice>(options, std::move(inner));
}

}  // namespace gantry
