// The coarse tape: an eager record of fused operators, each with a hand-written backward pass.
//
// An operator is a function over Vars (trainer/nn). It makes its outputs (Allocate, MakeVar), hands
// what its backward pass needs to Save, runs its kernels in Forward, which leases its parameters
// from the store for exactly that long, and records a Node. Backward runs the nodes in reverse
// order; a node takes the gradient of its output, runs its kernels in BackwardKernels, which leases
// values and gradients, and contributes to the gradients of its inputs. The order is always: save
// inputs, run kernels, save outputs, record.
//
//   - A value is freed when the last Var or node that holds it is gone; a node goes when its
//   backward
//     pass ran.
//   - A gradient is allocated by its first contribution; later ones add to it. Where a contribution
//   is
//     the gradient of another Var as it is (residual additions), the two share memory until one of
//     them grows.
//   - Uses of trainable parameters are counted forward and struck off backward; at zero the store
//     hears GradientReady. Tied weights are one tensor used twice.
//   - In a dry run (ParameterStore::dry_run) everything happens except the kernels: Run is the one
//     place that knows. So a dry run makes the very sequence of leases and allocations that real
//     steps make. Nothing here may depend on values.
//
// Thread-compatible; one tape per micro-batch, or for several that go through the layers together.
#ifndef GANTRY_TRAINER_AUTOGRAD_TAPE_H_
#define GANTRY_TRAINER_AUTOGRAD_TAPE_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "device/activation_arena.h"
#include "gemini/parameter_store.h"
#include "kernels/views.h"
#include "placement_policy/trace.h"
#include "trainer/autograd/activation.h"
#include "trainer/autograd/execution_context.h"
#include "trainer/autograd/parameter_lease.h"

namespace gantry {

// What has been contributed to the gradient of one Var so far: nothing at first.
struct GradientCell {
  Activation sum;
};
using GradientCellPtr = std::shared_ptr<GradientCell>;  // shared by a Var and the nodes about it

// The value of an operator and, when a loss can depend on a trainable parameter through it, the
// cell where its gradient gathers. Cheap to copy.
class Var {
 public:
  Var() = default;
  Var(Activation value, GradientCellPtr gradient)
      : value_(std::move(value)), gradient_(std::move(gradient)) {}

  const Activation& value() const { return value_; }
  const GradientCellPtr& gradient() const { return gradient_; }  // null when none flows
  bool requires_gradient() const { return gradient_ != nullptr; }

 private:
  Activation value_;
  GradientCellPtr gradient_;
};

class Tape;

// A recorded operator.
class Node {
 public:
  virtual ~Node() = default;
  // Contributes to the gradients of the inputs and parameters. Runs once. When the output's
  // gradient is empty (nothing used the output) it does nothing.
  virtual absl::Status Backward(Tape& tape) = 0;
};

// Where a kernel writes a contribution to a gradient.
struct GradientTarget {
  Activation activation;
  Accumulate accumulate;
};

// Kernels know f32 and bf16. Parameters and gradients that are f16 in the store are f32 copies to
// them, in memory of the arena that lasts as long as the operator.
class Tape {
 public:
  enum class Mode {
    kTraining,    // saves, records, counts
    kEvaluation,  // values only
  };
  // `context` holds pointers that outlive the tape.
  Tape(const ExecutionContext& context, Mode mode) : context_(context), mode_(mode) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  const ExecutionContext& context() const { return context_; }
  Mode mode() const { return mode_; }

  // Runs all recorded nodes in reverse order. Afterwards every parameter counted is ready, also
  // those that only fed unused outputs. After an error the step cannot be continued.
  absl::Status Backward();

  // ---- For operators and nodes. ----
  using Kernels = absl::FunctionRef<absl::Status(const LeasedParameters&)>;

  // Uninitialised memory. Errors: kResourceExhausted.
  absl::StatusOr<Activation> Allocate(MatrixShape shape, DType dtype);
  // Scratch memory for a kernel; gone with the result.
  absl::StatusOr<ArenaBuffer> AllocateWorkspace(Bytes bytes);
  // An operator's output. A gradient flows to it when one flows to any input or a parameter is
  // trainable; never in evaluation.
  Var MakeVar(Activation value, std::initializer_list<const Var*> inputs,
              std::span<const Parameter> parameters) const;
  // What a node keeps of a value: a handle, or nothing while the tape does not record.
  Activation Save(const Activation& value);
  // Counts a use of each trainable parameter, then leases all of them for reading and runs
  // `kernels`. Does only the counting while a recomputation skips what nothing reads.
  absl::Status Forward(std::string_view name, std::span<const Parameter> parameters,
                       Kernels kernels);
  // Keeps the node for Backward, or drops it while the tape does not record.
  void Record(std::unique_ptr<Node> node);

  // Leases the gradients of trainable parameters and the values that are read, runs `kernels`, then
  // strikes off one use of each trainable parameter.
  absl::Status BackwardKernels(std::string_view name, std::span<const BackwardUse> uses,
                               Kernels kernels);
  // Moves the gradient out of the cell; without memory when nothing contributed.
  static Activation TakeGradient(const GradientCellPtr& cell);
  // Where to write (nothing contributed yet) or add a contribution of this shape.
  absl::StatusOr<GradientTarget> TargetOf(const GradientCellPtr& cell, MatrixShape shape);
  // Contributes a whole activation; the first is kept as it is, without a copy.
  absl::Status Contribute(const GradientCellPtr& cell, Activation contribution);

  // Whether values made now are kept for a backward pass.
  bool recording() const { return mode_ == Mode::kTraining && scope_.records; }

 private:
  friend class CheckpointScope;
  // How operators behave now; see checkpoint.h.
  struct Scope {
    bool records = true;        // keeps nodes and saved values
    bool counts = true;         // this is the first forward pass of these operators
    bool recomputes = false;    // within the backward pass
    bool skips = false;         // nothing reads any further value
    int64_t saves = 0;          // calls of Save so far
    int64_t saves_needed = -1;  // after so many, nothing reads any further value; -1: unknown
  };

  bool skipping() const { return scope_.skips || scope_.saves == scope_.saves_needed; }
  // The one place that knows about dry runs.
  absl::Status Run(const LeasedParameters& parameters, Kernels kernels);
  absl::Status RunLeased(std::string_view name, Phase phase, std::span<const BackwardUse> uses,
                         Kernels kernels);
  // With what is f16 in the lease as f32 in scratch memory; `positions` are those in the operator's
  // list.
  absl::Status RunWidened(const Lease& lease, std::span<const int> positions, Kernels kernels);
  void CountUse(const Parameter& parameter);
  void StrikeUse(const Parameter& parameter);
  // Runs and removes nodes until `count` are left.
  absl::Status RunNodesDownTo(size_t count);

  ExecutionContext context_;
  Mode mode_;
  Scope scope_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<int32_t> pending_uses_;  // by tensor
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_AUTOGRAD_TAPE_H_
