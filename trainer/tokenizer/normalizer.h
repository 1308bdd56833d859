// The normalizers of tokenizer.json: what changes a text before it is cut into words.
#ifndef GANTRY_TRAINER_TOKENIZER_NORMALIZER_H_
#define GANTRY_TRAINER_TOKENIZER_NORMALIZER_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/tokenizer/json_view.h"
#include "trainer/tokenizer/regex.h"
#include "trainer/tokenizer/text_pieces.h"

namespace gantry {

// Immutable and thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;

  // Rewrites each piece that is no token. Errors: those of matching a regular expression.
  virtual absl::Status Apply(TextPieces& pieces, RegexScratch& scratch) const = 0;
};

// Errors: kInvalidArgument, naming the field.
absl::StatusOr<std::unique_ptr<Normalizer>> ParseNormalizer(const JsonView& json);

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_NORMALIZER_H_
