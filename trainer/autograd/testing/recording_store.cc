#include "trainer/autograd/testing/recording_store.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr std::array<const char*, 3> kAccessNames = {"r", "g", "rg"};
constexpr std::array<const char*, 3> kPhaseNames = {"forward", "backward", "optimizer"};

}  // namespace

RecordingStore::RecordingStore(ParameterStore* inner) : inner_(inner) {
  inner_->arena().SetObserver(this);
}

RecordingStore::~RecordingStore() { inner_->arena().SetObserver(nullptr); }

std::vector<std::string> RecordingStore::TakeEvents() { return std::exchange(events_, {}); }

absl::Status RecordingStore::BeginStep(const StepOptions& options) {
  events_.push_back(StrCat("step ", options.trace_key));
  return inner_->BeginStep(options);
}

absl::Status RecordingStore::BeginMicroBatch() {
  events_.emplace_back("micro-batch");
  return inner_->BeginMicroBatch();
}

absl::StatusOr<Lease> RecordingStore::Acquire(std::span<const ParameterUse> uses,
                                              std::string_view name, Phase phase) {
  absl::StatusOr<Lease> lease = inner_->Acquire(uses, name, phase);
  std::string event = StrCat("acquire ", name, " ", kPhaseNames[static_cast<size_t>(phase)]);
  for (size_t i = 0; i < uses.size(); ++i) {
    event += StrCat(" t", uses[i].tensor.value(), ":",
                    kAccessNames[static_cast<size_t>(uses[i].access)]);
    if (!lease.ok() || uses[i].access == ParameterAccess::kRead) continue;
    const bool adds = (*lease)[static_cast<int>(i)].gradient_content == GradientContent::kPartial;
    event += adds ? "+" : "=";
  }
  events_.push_back(std::move(event));
  return lease;
}

void RecordingStore::GradientReady(TensorId tensor) {
  events_.push_back(StrCat("ready t", tensor.value()));
  inner_->GradientReady(tensor);
}

absl::StatusOr<StepResult> RecordingStore::EndStep() {
  events_.emplace_back("end");
  return inner_->EndStep();
}

void RecordingStore::OnAllocate(int64_t offset, int64_t bytes) {
  events_.push_back(StrCat("allocate ", offset, "+", bytes));
}

void RecordingStore::OnFree(int64_t offset, int64_t bytes) {
  events_.push_back(StrCat("free ", offset, "+", bytes));
}

void RecordingStore::ReleaseLease(const Lease& /*lease*/) {
  GANTRY_CHECK(false) << "leases belong to the inner store";
}

}  // namespace gantry
