// The token embedding as an operator: rows of a table by token id.
// Thread-compatible, as the tape; owns nothing.
#ifndef GANTRY_TRAINER_NN_EMBEDDING_H_
#define GANTRY_TRAINER_NN_EMBEDDING_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/views.h"
#include "trainer/autograd/parameter_lease.h"
#include "trainer/autograd/tape.h"

namespace gantry {

struct EmbeddingTable {
  Parameter parameter;
  MatrixShape shape;  // [vocabulary, width]
};

// [tokens.size(), width] in the compute type. `tokens` must stay until the tape's Backward is done.
// REQUIRES: token ids are in [0, vocabulary). Errors: those of the store and the arena.
absl::StatusOr<Var> Embedding(Tape& tape, std::span<const int32_t> tokens,
                              const EmbeddingTable& table);

}  // namespace gantry

#endif  // GANTRY_TRAINER_NN_EMBEDDING_H_
