#include "trainer/tokenizer/splitting.h"

#include <algorithm>
#include <string>

#include "base/status_macros.h"

namespace gantry {

absl::StatusOr<SplitBehavior> RequiredSplitBehavior(const JsonView& json) {
  GANTRY_ASSIGN_OR_RETURN(const JsonView field, json.Member("behavior"));
  GANTRY_ASSIGN_OR_RETURN(const std::string name, field.Text());
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return field.Error(
      "it must be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

absl::StatusOr<SplitBehavior> SplitBehaviorOr(const JsonView& json, SplitBehavior otherwise) {
  if (!json.Find("behavior").has_value()) return otherwise;
  return RequiredSplitBehavior(json);
}

void ApplySplitBehavior(SplitBehavior behavior, std::vector<SplitPart>& parts,
                        std::vector<TextPiece>& out) {
  const size_t first = out.size();
  bool previous_is_match = false;
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const SplitPart& part : parts) {
        if (!part.is_match) out.push_back({part.begin, part.end});
      }
      break;
    case SplitBehavior::kIsolated:
      for (const SplitPart& part : parts) out.push_back({part.begin, part.end});
      break;
    case SplitBehavior::kContiguous:
      for (const SplitPart& part : parts) {
        if (part.is_match == previous_is_match && out.size() > first) {
          out.back().end = part.end;
        } else {
          out.push_back({part.begin, part.end});
        }
        previous_is_match = part.is_match;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const SplitPart& part : parts) {
        if (part.is_match && !previous_is_match && out.size() > first) {
          out.back().end = part.end;
        } else {
          out.push_back({part.begin, part.end});
        }
        previous_is_match = part.is_match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      std::reverse(parts.begin(), parts.end());
      for (const SplitPart& part : parts) {
        if (part.is_match && !previous_is_match && out.size() > first) {
          out.back().begin = part.begin;
        } else {
          out.push_back({part.begin, part.end});
        }
        previous_is_match = part.is_match;
      }
      std::reverse(out.begin() + static_cast<ptrdiff_t>(first), out.end());
      break;
  }
}

}  // namespace gantry
