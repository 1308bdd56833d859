// Token-by-token evaluation of a DecoderModel with a cache of keys and values: one sequence, or
// several of any lengths side by side.
//
//   GANTRY_ASSIGN_OR_RETURN(auto generator,
//                           DecoderGenerator::Create(model, {.sequences = 2, .capacity = 2048}));
//   const SequenceTokens prompts[] = {{.sequence = 0, .tokens = first},
//                                     {.sequence = 1, .tokens = second}};
//   GANTRY_RETURN_IF_ERROR(generator->Append(prompts, logits));    // [2, vocabulary]
//   ... one token each, or of those sequences only that still go on
//
// Tokens pass through the layers up to step_tokens at a time; each time is one evaluation step of
// the model's store ("prefill", or "decode" where each sequence has one token), so it must not run
// inside another step. So activations need memory for step_tokens, however long prompts are. The
// cache is host memory of its own: 2 * sequences * layers * capacity * kv_heads * head_dim elements
// of the compute type. Steps of one shape allocate nothing after the first.
//
// Thread-compatible. The model outlives the generator.
#ifndef GANTRY_TRAINER_MODELS_DECODER_GENERATOR_H_
#define GANTRY_TRAINER_MODELS_DECODER_GENERATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/views.h"
#include "trainer/autograd/tape.h"
#include "trainer/models/decoder.h"
#include "trainer/nn/cached_attention.h"

namespace gantry {

// Tokens to append to one sequence, at least one.
struct SequenceTokens {
  int64_t sequence;
  std::span<const int32_t> tokens;
};

class DecoderGenerator {
 public:
  struct Options {
    int64_t sequences = 1;
    int64_t capacity;            // tokens of a sequence
    int64_t step_tokens = 1024;  // of all sequences, that pass through the layers together
  };
  // Errors: kInvalidArgument unless capacity is in [1, max_sequence], sequences and step_tokens at
  // least 1, or for a cache of more than 2^40 elements.
  static absl::StatusOr<std::unique_ptr<DecoderGenerator>> Create(const DecoderModel* model,
                                                                  const Options& options);

  // Appends to sequences, each named at most once, and writes the logits of the next token of each,
  // [appended.size(), vocabulary] in that order. Errors: kInvalidArgument for a sequence that there
  // is not or twice, no tokens, more than fit, an id outside the vocabulary or a wrong number of
  // logits; those of the store and the kernels. After an error all lengths are as before.
  absl::Status Append(std::span<const SequenceTokens> appended, std::span<float> logits);
  // To sequence 0 alone; [vocabulary].
  absl::Status Append(std::span<const int32_t> tokens, std::span<float> logits);

  // Forgets a sequence's tokens from `length` on. REQUIRES: 0 <= length <= this->length(sequence).
  void Truncate(int64_t sequence, int64_t length);

  int64_t sequences() const { return options_.sequences; }
  int64_t length(int64_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  int64_t capacity() const { return options_.capacity; }

 private:
  // Of one entry of `appended`, what one step takes.
  struct Piece {
    size_t entry;
    int64_t first;
    int64_t count;
    bool is_last;
  };

  DecoderGenerator(const DecoderModel* model, const Options& options);

  absl::Status CheckTokens(std::span<const SequenceTokens> appended, std::span<float> logits) const;
  // Takes up to step_tokens tokens from *next on.
  void FillStep(std::span<const SequenceTokens> appended, Piece* next);
  absl::Status RunStep(std::span<const SequenceTokens> appended, std::span<float> logits);
  absl::Status RunLayers(std::span<const SequenceTokens> appended, std::span<float> logits);
  absl::StatusOr<Var> Hidden(Tape& tape);
  // Final norm and head of the last rows of the pieces that end an entry.
  absl::Status Logits(Tape& tape, const Var& hidden, std::span<float> logits) const;
  // Keys (part 0) or values (part 1) of a layer.
  MatrixView Cache(int64_t sequence, int64_t layer, int64_t part);

  const DecoderModel* model_;
  Options options_;
  std::vector<int64_t> lengths_;  // by sequence
  std::vector<std::byte> cache_;  // [sequences, layers, 2, capacity, kv_heads * head_dim]
  int64_t longest_ = 0;           // sequence when Append is done: some rotations depend on it
  // Of the step under way; kept for their memory.
  std::vector<Piece> pieces_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> positions_;
  std::vector<CachedSequence> cached_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_DECODER_GENERATOR_H_
