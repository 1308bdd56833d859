// What becomes of the parts of a piece that a pre-tokenizer's pattern matches.
#ifndef GANTRY_TRAINER_TOKENIZER_SPLITTING_H_
#define GANTRY_TRAINER_TOKENIZER_SPLITTING_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/tokenizer/json_view.h"
#include "trainer/tokenizer/text_pieces.h"

namespace gantry {

// For "the-final--countdown" and a pattern that matches "-":
enum class SplitBehavior {
  kRemoved,             // the final countdown
  kIsolated,            // the - final - - countdown
  kMergedWithPrevious,  // the- final- - countdown
  kMergedWithNext,      // the -final - -countdown
  kContiguous,          // the - final -- countdown
};

// A member that names a behavior as the file writes it; `otherwise` where it is absent.
absl::StatusOr<SplitBehavior> SplitBehaviorOr(const JsonView& json, SplitBehavior otherwise);
absl::StatusOr<SplitBehavior> RequiredSplitBehavior(const JsonView& json);

// Bytes [begin, end) of the text. One piece's parts touch each other.
struct SplitPart {
  uint32_t begin;
  uint32_t end;
  bool is_match;
};

// Appends the pieces that `parts`, all those of one piece, become.
void ApplySplitBehavior(SplitBehavior behavior, std::vector<SplitPart>& parts,
                        std::vector<TextPiece>& out);

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_SPLITTING_H_
