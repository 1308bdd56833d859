#include "trainer/hugging_face/token_ids.h"

#include <limits>

#include "base/status_macros.h"

namespace gantry {
namespace {

constexpr IntegerRange kIds = {.least = -1, .most = std::numeric_limits<int32_t>::max()};

}  // namespace

absl::StatusOr<std::optional<int32_t>> ReadTokenId(const JsonNode& root, const char* key) {
  const std::optional<JsonNode> node = root.Find(key);
  if (!node.has_value() || node->value().is_null()) return std::optional<int32_t>();
  GANTRY_ASSIGN_OR_RETURN(const int64_t id, node->Integer(kIds));
  if (id < 0) return std::optional<int32_t>();
  return std::optional(static_cast<int32_t>(id));
}

absl::StatusOr<std::vector<int32_t>> ReadTokenIds(const JsonNode& root, const char* key) {
  std::vector<int32_t> ids;
  const std::optional<JsonNode> node = root.Find(key);
  if (node.has_value() && node->value().is_array()) {
    GANTRY_ASSIGN_OR_RETURN(const size_t count, node->ListSize());
    if (count > kEndTokensMax) return node->Error("of at most 1024 token ids");
    for (size_t i = 0; i < count; ++i) {
      GANTRY_ASSIGN_OR_RETURN(const int64_t id,
                              node->At(i).Integer({.least = 0, .most = kIds.most}));
      ids.push_back(static_cast<int32_t>(id));
    }
    return ids;
  }
  GANTRY_ASSIGN_OR_RETURN(const std::optional<int32_t> id, ReadTokenId(root, key));
  if (id.has_value()) ids.push_back(*id);
  return ids;
}

}  // namespace gantry
