// What a training framework asks of whoever holds its parameters: registration, leases around each
// operator, gradient readiness, steps, and memory for activations. gemini::Engine implements it
// over all tiers; MemoryStore (testing) holds everything in plain memory and is the oracle.
//
// Life of a store:
//   Register ... Register            declare parameters
//   [dry_run() is true: one step may be run without kernels, so that its trace is known]
//   Seal                             lay out, place, map; addresses are fixed from here on
//   WriteState                       initial values
//   per step: BeginStep, per micro-batch: BeginMicroBatch, leases forward and backward,
//             GradientReady once per trainable parameter, and EndStep
// What a caller takes through its operators together is one micro-batch here.
//
// One thread, the compute thread, makes all calls.
#ifndef GANTRY_GEMINI_PARAMETER_STORE_H_
#define GANTRY_GEMINI_PARAMETER_STORE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"
#include "device/activation_arena.h"
#include "gemini/layer_activations.h"
#include "placement_policy/trace.h"

namespace gantry {

enum class ParameterAccess : uint8_t {
  kRead,             // the parameter's value
  kGradient,         // its gradient, to be written or added to
  kReadAndGradient,  // both
};

struct ParameterUse {
  TensorId tensor;
  ParameterAccess access;
};

// Whether the gradient already carries contributions of this step.
enum class GradientContent : uint8_t {
  kEmpty,    // undefined bytes: the operator overwrites all of them
  kPartial,  // the operator adds to them
};

struct LeasedTensor {
  TensorId tensor;
  const std::byte* parameter;  // null when the use does not read
  std::byte* gradient;         // null when the use does not touch the gradient
  GradientContent gradient_content;
  DType dtype;
  DType gradient_dtype;
  int64_t elements;
};

class ParameterStore;

// The right to use the leased tensors at their addresses; ends with the object. Move-only.
// After the end of a gradient lease that gradient's content is kPartial.
class [[nodiscard]] Lease {
 public:
  static constexpr int kTensorsMax = 8;

  Lease() = default;
  Lease(Lease&& other) noexcept { Take(other); }
  Lease& operator=(Lease&& other) noexcept {
    if (this == &other) return *this;
    Release();
    Take(other);
    return *this;
  }
  ~Lease() { Release(); }
  void Release();

  // The i-th tensor in the order of the uses given to Acquire.
  const LeasedTensor& operator[](int i) const {
    GANTRY_CHECK(i >= 0 && i < count_) << "lease of " << count_ << " tensors";
    return entries_.at[static_cast<size_t>(i)].tensor;
  }
  int size() const { return count_; }

 private:
  friend class LeaseAccess;

  struct Entry {
    LeasedTensor tensor;
    ParameterAccess access;
  };
  // The first count_ are set. A union, so that making and moving a lease costs what it holds.
  union Entries {
    Entries() {}  // NOLINT(modernize-use-equals-default): = default would be deleted
    std::array<Entry, kTensorsMax> at;
  };
  void Take(Lease& other) {
    store_ = std::exchange(other.store_, nullptr);
    count_ = other.count_;
    phase_ = other.phase_;
    std::copy_n(other.entries_.at.begin(), count_, entries_.at.begin());
  }

  ParameterStore* store_ = nullptr;
  int count_ = 0;
  Phase phase_ = Phase::kForward;
  Entries entries_;
};

// For stores: reads and fills a lease.
class LeaseAccess {
 public:
  static Lease Make(ParameterStore* store, Phase phase) {
    Lease lease;
    lease.store_ = store;
    lease.phase_ = phase;
    return lease;
  }
  static void Add(Lease& lease, ParameterAccess access, const LeasedTensor& tensor) {
    GANTRY_CHECK_LT(lease.count_, Lease::kTensorsMax);
    lease.entries_.at[static_cast<size_t>(lease.count_++)] = {tensor, access};
  }
  static ParameterAccess access(const Lease& lease, int i) {
    return lease.entries_.at[static_cast<size_t>(i)].access;
  }
  static Phase phase(const Lease& lease) { return lease.phase_; }
  // The lease was abandoned before it was handed out: nothing to release.
  static void Disarm(Lease& lease) { lease.store_ = nullptr; }
};

// The optimizer's hyperparameters of one step; per-tensor factors come from registration. What each
// kind makes of them: offload/optimizer.h.
struct OptimizerStep {
  OptimizerKind kind = OptimizerKind::kAdamW;  // the store's
  double learning_rate;
  double beta1 = 0.9;  // sgd: the momentum
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  int64_t step = 1;                // 1-based, for bias correction
  double max_gradient_norm = 0.0;  // clip by the global norm; 0 = off
  double loss_scale = 1.0;         // gradients carry this factor
  // Exact skipping of a step with a non-finite gradient makes every update wait for all gradients.
  enum class NonFinite { kSkipStep, kUpdateAnyway };
  NonFinite non_finite = NonFinite::kSkipStep;
};

// When updates run that wait for the global norm. The numbers are the same.
enum class UpdateOrder : uint8_t {
  kExact,        // after the norm is known
  kSpeculative,  // states that come from files are updated as gradients arrive, and once more if
                 // the norm then clips or a gradient is not finite; takes file space for two
                 // versions
};

struct StepOptions {
  // Steps with one key make the same sequence of leases, with activations of the same sizes. One
  // that does not costs time only. A key whose steps have changed is traced again when two in a row
  // did the same; steps of several shapes that take turns are better given a key each.
  std::string trace_key = "train";
  int64_t micro_batches = 1;
  std::optional<OptimizerStep> optimizer = std::nullopt;  // none: evaluation, no gradients
  LayerSaving dry_layers = LayerSaving::kKeep;  // in a dry step: kKeep or kRecompute, if planned
};

struct StepResult {
  double gradient_norm = 0.0;  // global L2 norm of the unscaled gradients; 0 in evaluation
  double clip_factor = 1.0;
  enum class Outcome { kUpdated, kSkippedNonFinite, kEvaluated };
  Outcome outcome = Outcome::kEvaluated;
};

struct RegistrationOptions {
  double weight_decay_factor = 1.0;  // 0 for norms and biases
  double learning_rate_factor = 1.0;
};

class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  // REQUIRES: before Seal. Errors: kInvalidArgument, as ChunkLayout::Create.
  virtual absl::StatusOr<TensorId> Register(const TensorSpec& spec,
                                            const RegistrationOptions& options) = 0;
  // A further name of a registered tensor (tied weights).
  virtual absl::Status Alias(std::string_view name, TensorId tensor) = 0;
  virtual absl::Status Seal() = 0;
  // True before Seal: leases give addresses that must not be touched, kernels must not run.
  virtual bool dry_run() const = 0;
  // Valid after Seal.
  virtual const ChunkLayout& layout() const = 0;
  virtual ActivationArena& arena() = 0;
  virtual LayerActivations& layer_activations() = 0;

  // Errors: kInvalidArgument for another kind of optimizer than the store's, or a bad value.
  virtual absl::Status BeginStep(const StepOptions& options) = 0;
  virtual absl::Status BeginMicroBatch() = 0;
  // Blocks until the tensors are where compute can use them. `name` names the operator in traces
  // and errors. At most Lease::kTensorsMax uses, each tensor once.
  // Errors: kResourceExhausted (budget too small for this operator, with figures), any error of the
  // file tier, kFailedPrecondition for a parameter whose gradient was declared ready this step.
  virtual absl::StatusOr<Lease> Acquire(std::span<const ParameterUse> uses, std::string_view name,
                                        Phase phase) = 0;
  // The tensor's last contribution of this micro-batch is in, and no operator of this micro-batch
  // reads it again. Trainable tensors without a call count as zero gradient.
  virtual void GradientReady(TensorId tensor) = 0;
  // Returns when the step's result is decided; updates may still be running behind it.
  virtual absl::StatusOr<StepResult> EndStep() = 0;

  // Copies elements [first, first + n) of one kind of state of a tensor, n = bytes / element size;
  // waits for pending updates. Between steps only. All but kParameter are f32, in any format.
  // Writing kMaster also writes the rounded parameter; writing kParameter of a trainable tensor
  // also sets its master. Momentum and variance start at zero; no variance is negative. Adafactor's
  // variance of a matrix is its factors: ChunkLayout::StateElements says how many.
  //
  // Eight-bit moments are rounded to codes in blocks of 2048 elements of a group. What is written
  // to them is kept as it is, and read so, until each of the block's elements has been written, or
  // the block is updated: then the block is rounded. So the order of writes makes no difference,
  // and what was read comes back as the same bits when all of it is written. Split masters keep no
  // payload of a NaN.
  virtual absl::Status ReadState(StateKind kind, TensorId tensor, int64_t first,
                                 std::span<std::byte> bytes) = 0;
  virtual absl::Status WriteState(StateKind kind, TensorId tensor, int64_t first,
                                  std::span<const std::byte> bytes) = 0;

 private:
  friend class Lease;
  virtual void ReleaseLease(const Lease& lease) = 0;
};

inline void Lease::Release() {
  if (store_ == nullptr) return;
  ParameterStore* store = store_;
  store_ = nullptr;
  store->ReleaseLease(*this);
}

}  // namespace gantry

#endif  // GANTRY_GEMINI_PARAMETER_STORE_H_
