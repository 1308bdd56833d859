// Small decoders over a MemoryStore, with random batches: what the models' tests share.
#ifndef GANTRY_TRAINER_MODELS_TESTING_DECODER_BENCH_H_
#define GANTRY_TRAINER_MODELS_TESTING_DECODER_BENCH_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/autograd/testing/recording_store.h"
#include "trainer/autograd/testing/test_bench.h"
#include "trainer/models/decoder.h"
#include "trainer/models/testing/reference_decoder.h"

namespace gantry {

// Two layers, two query heads per key head, f32, nothing square.
DecoderConfig TinyLlamaConfig();
// Of any family, with what sets it apart: biases, windows of some layers, tied heads, a scaled
// rotation, heads that are no fraction of the width.
DecoderConfig TinyDecoderConfig(DecoderFamily family);

// Tokens and targets of a batch, drawn from `seed`; every fifth target is ignored.
struct RandomBatch {
  RandomBatch(const DecoderConfig& config, int64_t sequences, int64_t length, uint64_t seed);
  TokenBatch view() const {
    return {.sequences = sequences,
            .length = length,
            .tokens = tokens,
            .targets = targets,
            .documents = documents};
  }
  int64_t valid_tokens() const;

  int64_t sequences;
  int64_t length;
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  std::vector<int32_t> documents;  // none at first
};

class DecoderBench {
 public:
  DecoderBench(const DecoderConfig& config, const TestBench::Options& options,
               const DecoderRegistration& registration);

  MemoryStore& store() { return bench_.store(); }
  RecordingStore& recording() { return recording_; }
  DecoderModel& model() { return *model_; }

  // Seals and sets all parameters: normal with deviation 0.3, norms around 1, a function of `seed`.
  void SealWithValues(uint64_t seed);
  void BeginStep(const OptimizerStep& step, int64_t micro_batches);
  // One micro-batch, with the gradient of the loss sum times `scale`.
  LossSum MicroBatch(const RandomBatch& batch, double scale);
  StepResult EndStep();

  ReferenceParameters Parameters();
  // Of trained tensors, by name; within a step or after it.
  std::map<std::string, std::vector<float>> Gradients();

 private:
  TestBench bench_;
  RecordingStore recording_;
  DecoderConfig config_;
  std::unique_ptr<DecoderModel> model_;
};

// The L2 distance of two sets of gradients over the L2 norm of the second.
double RelativeDistance(const std::map<std::string, std::vector<float>>& a,
                        const std::map<std::string, std::vector<float>>& b);

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_TESTING_DECODER_BENCH_H_
