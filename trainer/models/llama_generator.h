// Token-by-token evaluation of a LlamaModel with a cache of keys and values: one sequence.
//
//   GANTRY_ASSIGN_OR_RETURN(auto generator, LlamaGenerator::Create(model, 2048));
//   GANTRY_RETURN_IF_ERROR(generator->Append(prompt, logits));
//   for (...) GANTRY_RETURN_IF_ERROR(generator->Append({&token, 1}, logits));
//
// Each Append is one evaluation step of the model's store ("prefill" for several tokens, "decode"
// for one), so it must not run inside another step. The cache is host memory of its own: 2 * layers
// * capacity * kv_heads * head_dim elements of the compute type.
//
// Thread-compatible. The model outlives the generator.
#ifndef GANTRY_TRAINER_MODELS_LLAMA_GENERATOR_H_
#define GANTRY_TRAINER_MODELS_LLAMA_GENERATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/views.h"
#include "trainer/autograd/tape.h"
#include "trainer/models/llama.h"

namespace gantry {

class LlamaGenerator {
 public:
  // Errors: kInvalidArgument unless capacity is in [1, max_sequence].
  static absl::StatusOr<std::unique_ptr<LlamaGenerator>> Create(const LlamaModel* model,
                                                                int64_t capacity);

  // Appends the tokens and writes the logits of the next one, [vocabulary].
  // Errors: kInvalidArgument for no tokens, more than fit, an id outside the vocabulary or a wrong
  // number of logits; those of the store and the kernels. After an error the length is as before.
  absl::Status Append(std::span<const int32_t> tokens, std::span<float> logits);
  // Forgets all tokens from `length` on. REQUIRES: 0 <= length <= this->length().
  void Truncate(int64_t length);

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }

 private:
  LlamaGenerator(const LlamaModel* model, int64_t capacity);

  absl::Status CheckTokens(std::span<const int32_t> tokens, std::span<float> logits) const;
  absl::Status RunStep(std::span<const int32_t> tokens, std::span<float> logits);
  absl::StatusOr<Var> Hidden(Tape& tape, std::span<const int32_t> tokens);
  // Final norm and head of the last row.
  absl::Status Logits(Tape& tape, const Var& hidden, std::span<float> logits) const;
  // Keys (part 0) or values (part 1) of a layer.
  MatrixView Cache(int64_t layer, int64_t part);

  const LlamaModel* model_;
  int64_t capacity_;
  int64_t length_ = 0;
  std::vector<std::byte> cache_;  // [layers, 2, capacity, kv_heads * head_dim]
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_LLAMA_GENERATOR_H_
