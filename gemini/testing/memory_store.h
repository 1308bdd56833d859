// A ParameterStore that holds everything in plain memory: no tiers, no moves, no threads of its
// own. It is the oracle for gemini::Engine (placement never changes numbers) and what tests of the
// trainer run on, so it is strict: whatever the interface leaves undefined shows here as NaN, a
// fault or an error.
//
//   - At BeginStep every gradient is filled with NaN, so an operator that adds to kEmpty shows.
//   - Before Seal, leases give an address in the zero page: a kernel that runs there faults.
//   - A lease on a tensor that another live lease holds is an error.
//
// Norm segments are counted over the extent of each trainable group (from its first element to the
// end of its last tensor; padding is zero), group after group, and gemini/step_decision.h decides.
// So the norm does not depend on the chunk size.
//
// One thread makes all calls. Owns its memory; `team` is the caller's.
#ifndef GANTRY_GEMINI_TESTING_MEMORY_STORE_H_
#define GANTRY_GEMINI_TESTING_MEMORY_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "base/parallel_for.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"
#include "device/activation_arena.h"
#include "device/device.h"
#include "device/slot_pool.h"
#include "gemini/layer_activations.h"
#include "gemini/parameter_store.h"
#include "gemini/testing/kept_layers.h"
#include "gemini/testing/moment_array.h"
#include "offload/adafactor.h"
#include "offload/optimizer.h"
#include "placement_policy/trace.h"

namespace gantry {

class MemoryStore final : public ParameterStore, private SlotSource {
 public:
  struct Options {
    int64_t chunk_elements = kChunkGranularityElements;
    DType gradient_dtype = DType::kF32;  // of parameters that are not f32
    int64_t activation_slots = 512;      // of chunk_elements x 2 bytes
    ThreadTeam* team = nullptr;          // outlives the store
    OptimizerKind optimizer = OptimizerKind::kAdamW;
    // kSplitMaster is kept as kF32, which must make no difference. Eight-bit moments are kept as
    // f32 and rounded to what their codes hold, block by block.
    StateFormat state_format = StateFormat::kF32;
  };

  // Errors: kInvalidArgument for a bad option; kResourceExhausted without memory for activations.
  static absl::StatusOr<std::unique_ptr<MemoryStore>> Create(Options options);
  ~MemoryStore() override;

  absl::StatusOr<TensorId> Register(const TensorSpec& spec,
                                    const RegistrationOptions& options) override;
  absl::Status Alias(std::string_view name, TensorId tensor) override;
  absl::Status Seal() override;
  bool dry_run() const override { return !layout_.has_value(); }
  const ChunkLayout& layout() const override;
  ActivationArena& arena() override { return *arena_; }
  LayerActivations& layer_activations() override { return layers_; }

  absl::Status BeginStep(const StepOptions& options) override;
  absl::Status BeginMicroBatch() override;
  // Errors: kInvalidArgument for no such tensor, a tensor twice, too many tensors, or the gradient
  // of a frozen tensor; kFailedPrecondition outside a micro-batch, for a gradient in an evaluation
  // step, a tensor whose gradient is ready, or a tensor in another live lease.
  absl::StatusOr<Lease> Acquire(std::span<const ParameterUse> uses, std::string_view name,
                                Phase phase) override;
  // Aborts on a frozen tensor, a second call in one micro-batch, or a live lease of the tensor.
  void GradientReady(TensorId tensor) override;
  // Errors: kFailedPrecondition outside a step, with a live lease, or when fewer micro-batches ran
  // than announced. Ends the step in any case, so it also abandons a step that failed half way.
  absl::StatusOr<StepResult> EndStep() override;

  absl::Status ReadState(StateKind kind, TensorId tensor, int64_t first,
                         std::span<std::byte> bytes) override;
  absl::Status WriteState(StateKind kind, TensorId tensor, int64_t first,
                          std::span<const std::byte> bytes) override;

  // The gradient that the last step (or the running one, so far) gathered; zeros where untouched.
  // Errors: kFailedPrecondition before Seal; kInvalidArgument for a frozen tensor.
  absl::StatusOr<std::vector<float>> Gradient(TensorId tensor) const;
  // Leases that live now.
  int64_t open_leases() const { return open_leases_; }

 private:
  struct TensorState {
    TensorSpec spec;
    RegistrationOptions options;
    int64_t elements = 0;
    bool gradient_written = false;  // this step
    bool gradient_ready = false;    // this micro-batch
    bool leased = false;
  };
  // One group's spaces. f32 parameters are their own master.
  struct GroupStorage {
    std::vector<std::byte> parameter;
    std::vector<std::byte> gradient;
    std::vector<float> master;
    MomentArray momentum;
    MomentArray variance;
    int64_t extent = 0;
  };
  struct StateRange {
    std::byte* begin;
    int64_t element_bytes;
  };

  explicit MemoryStore(Options options) : options_(options) {}
  absl::Status CreateArena();
  void ReleaseLease(const Lease& lease) override;
  absl::StatusOr<SlotId> AcquireActivationSlot() override;
  void ReleaseActivationSlot(SlotId slot) override;

  bool Has(TensorId tensor) const;
  TensorState& state(TensorId tensor) { return tensors_[static_cast<size_t>(tensor.value())]; }
  const TensorState& state(TensorId tensor) const {
    return tensors_[static_cast<size_t>(tensor.value())];
  }
  DType GradientDType(DType parameter) const {
    return parameter == DType::kF32 ? DType::kF32 : options_.gradient_dtype;
  }
  absl::Status CheckUse(const ParameterUse& use, std::string_view name) const;
  LeasedTensor MakeLeased(const ParameterUse& use);
  std::byte* GradientOf(TensorId tensor);
  void FillGradients(std::byte value);
  void FillUntouchedGradients();
  void FillGradient(TensorId tensor, std::byte value);
  std::vector<double> NormPartials() const;
  void Update(const OptimizerStep& step, float gradient_factor);
  void UpdateTensor(TensorId tensor, const OptimizerSlice& slice, const OptimizerStep& step,
                    float gradient_factor);
  absl::StatusOr<StateRange> FindState(StateKind kind, TensorId tensor, int64_t first,
                                       int64_t bytes);
  ChunkLayout::Options LayoutOptions() const;
  void RoundMoments();
  void DeriveFromWrite(StateKind kind, TensorId tensor, int64_t first, int64_t count);

  Options options_;
  MonotonicClock clock_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Slab> slab_;
  std::unique_ptr<SlotPool> pool_;
  std::unique_ptr<ActivationArena> arena_;
  KeptLayers layers_;

  std::vector<TensorState> tensors_;
  absl::flat_hash_map<std::string, TensorId> names_;
  std::vector<std::pair<std::string, std::string>> aliases_;
  std::optional<ChunkLayout> layout_;
  std::vector<GroupStorage> groups_;
  std::vector<std::optional<AdafactorFactors>> factors_;  // by tensor; empty without adafactor

  std::optional<StepOptions> step_;  // the running step
  int64_t micro_batches_begun_ = 0;
  int64_t open_leases_ = 0;
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_TESTING_MEMORY_STORE_H_
