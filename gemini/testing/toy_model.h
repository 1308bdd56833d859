// A deterministic pretend model for tests of parameter stores: layers with tensors of awkward
// sizes, a tied tensor used first and last, a frozen tensor, one that never gets a gradient,
// activations that live from forward to backward, and gradients that are simple functions of
// everything read, so that any wrong byte anywhere changes the final parameters.
#ifndef GANTRY_GEMINI_TESTING_TOY_MODEL_H_
#define GANTRY_GEMINI_TESTING_TOY_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "device/activation_arena.h"
#include "gemini/layer_activations.h"
#include "gemini/parameter_store.h"
#include "placement_policy/trace.h"

namespace gantry {

class ToyModel {
 public:
  struct Options {
    int64_t layers = 5;
    int64_t layer_elements = 40'001;
    int64_t tied_elements = 30'011;
    int64_t frozen_elements = 20'003;
    int64_t activation_bytes = 50'000;
    DType dtype = DType::kBF16;
    int64_t micro_batches = 1;
    int64_t infinite_step = 0;  // in this one (1-based) a gradient is infinite; 0: in none
    // Tensors of 1000 elements and more are matrices of so many rows, as long as the elements
    // allow; 0: vectors.
    int64_t rows = 0;
    // How layers save their activations, by turns; empty: they do not say where they begin and end.
    std::vector<LayerSaving> savings = {};
  };
  // What a training step does other than Options say.
  struct Variation {
    int64_t skipped_layer = -1;    // is not used at all
    int64_t constant_layer = -1;   // is used, but gets no gradient
    int64_t activation_bytes = 0;  // not 0: instead of the Options'
    int64_t micro_batches = 0;     // likewise
  };
  // `store` outlives the model.
  ToyModel(ParameterStore* store, const Options& options);

  absl::Status Register();
  // Steps before Seal that show the store all that it can know.
  int64_t dry_steps() const;
  // Values from counter-based random numbers. REQUIRES: sealed.
  absl::Status Initialize();
  // One whole step; `step` is 1-based. Returns the result of EndStep and adds the loss to `losses`.
  absl::StatusOr<StepResult> TrainStep(const OptimizerStep& hyper);
  // From the next step on.
  void Vary(const Variation& variation) { variation_ = variation; }
  // Goes on as if so many steps had been made: with state from a checkpoint.
  void ResumeAfter(int64_t steps) { steps_ = steps; }
  // Forward passes only.
  absl::Status Evaluate();
  // XXH3 over all tensors' state of one kind; tensors without it are passed over.
  absl::StatusOr<uint64_t> Hash(StateKind kind);

  const std::vector<double>& losses() const { return losses_; }
  const std::vector<TensorId>& tensors() const { return tensors_; }
  int64_t tensor_count() const { return static_cast<int64_t>(tensors_.size()); }

 private:
  struct Layer {
    TensorId weight;
    TensorId norm;
  };
  absl::Status Forward(int64_t micro_batch);
  absl::Status Backward(int64_t micro_batch);
  absl::Status Read(TensorId tensor, std::string_view name);
  // What a layer makes in the forward pass: its activations, and its output for the next one.
  struct Made {
    std::vector<ArenaBuffer> activations;
    ArenaBuffer output;
    LayerPass pass;
  };
  absl::Status ForwardLayer(size_t l, int64_t micro_batch);
  absl::Status BackwardLayer(size_t l, int64_t micro_batch);
  absl::StatusOr<std::vector<ArenaBuffer>> RunLayer(size_t l, int64_t micro_batch, Phase phase);
  absl::Status CheckActivations(const std::vector<ArenaBuffer>& activations, size_t l,
                                int64_t micro_batch) const;
  std::byte PatternOf(size_t l, int64_t micro_batch) const;
  absl::Status Contribute(const std::vector<TensorId>& tensors, std::string_view name,
                          int64_t salt);
  void Mix(const LeasedTensor& tensor);
  void AddGradient(const LeasedTensor& tensor, double factor, int64_t salt);

  ParameterStore* store_;
  Options options_;
  Variation variation_;
  // Tables, so that a step is cheap enough for thousands of simulated runs. Their period divides no
  // chunk, so that neighbouring chunks differ.
  std::vector<float> normals_;
  std::vector<float> wave_;
  std::vector<TensorId> tensors_;  // all
  std::vector<Layer> layers_;
  std::vector<TensorId> special_;  // tied, frozen, untouched
  std::vector<Made> made_;         // by layer
  bool training_ = false;
  int64_t dry_steps_made_ = 0;
  double x_ = 0.0;
  int64_t steps_ = 0;
  std::vector<double> losses_;
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_TESTING_TOY_MODEL_H_
