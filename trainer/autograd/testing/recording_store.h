// A ParameterStore that passes all calls on and writes down, in order, what a tracer sees: leases,
// readiness, and the arena's allocations and frees. Two runs with equal events make equal traces.
#ifndef GANTRY_TRAINER_AUTOGRAD_TESTING_RECORDING_STORE_H_
#define GANTRY_TRAINER_AUTOGRAD_TESTING_RECORDING_STORE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemini/layer_activations.h"
#include "gemini/parameter_store.h"

namespace gantry {

class RecordingStore final : public ParameterStore, private ArenaObserver {
 public:
  // `inner` outlives the store. Observes its arena until destruction.
  explicit RecordingStore(ParameterStore* inner);
  ~RecordingStore() override;

  // "acquire linear forward t3:r", "ready t3", "allocate 256+1024", "free 256+1024", ...
  std::vector<std::string> TakeEvents();

  absl::StatusOr<TensorId> Register(const TensorSpec& spec,
                                    const RegistrationOptions& options) override {
    return inner_->Register(spec, options);
  }
  absl::Status Alias(std::string_view name, TensorId tensor) override {
    return inner_->Alias(name, tensor);
  }
  absl::Status Seal() override { return inner_->Seal(); }
  bool dry_run() const override { return inner_->dry_run(); }
  const ChunkLayout& layout() const override { return inner_->layout(); }
  ActivationArena& arena() override { return inner_->arena(); }
  LayerActivations& layer_activations() override { return inner_->layer_activations(); }
  absl::Status BeginStep(const StepOptions& options) override;
  absl::Status BeginMicroBatch() override;
  absl::StatusOr<Lease> Acquire(std::span<const ParameterUse> uses, std::string_view name,
                                Phase phase) override;
  void GradientReady(TensorId tensor) override;
  absl::StatusOr<StepResult> EndStep() override;
  absl::Status ReadState(StateKind kind, TensorId tensor, int64_t first,
                         std::span<std::byte> bytes) override {
    return inner_->ReadState(kind, tensor, first, bytes);
  }
  absl::Status WriteState(StateKind kind, TensorId tensor, int64_t first,
                          std::span<const std::byte> bytes) override {
    return inner_->WriteState(kind, tensor, first, bytes);
  }

 private:
  void OnAllocate(int64_t offset, int64_t bytes) override;
  void OnFree(int64_t offset, int64_t bytes) override;
  void ReleaseLease(const Lease& lease) override;  // never called: leases belong to inner

  ParameterStore* inner_;
  std::vector<std::string> events_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_AUTOGRAD_TESTING_RECORDING_STORE_H_
