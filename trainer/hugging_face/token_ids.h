// Token ids in JSON: eos_token_id may be one number or a list of them.
#ifndef GANTRY_TRAINER_HUGGING_FACE_TOKEN_IDS_H_
#define GANTRY_TRAINER_HUGGING_FACE_TOKEN_IDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json_document.h"

namespace gantry {

inline constexpr size_t kEndTokensMax = 1024;

// The id, or none where the key is absent or null, or -1, which some files write for none.
// REQUIRES of both: `root` is an object. Errors: kInvalidArgument naming the key.
absl::StatusOr<std::optional<int32_t>> ReadTokenId(const JsonNode& root, const char* key);
// One id or a list.
absl::StatusOr<std::vector<int32_t>> ReadTokenIds(const JsonNode& root, const char* key);

}  // namespace gantry

#endif  // GANTRY_TRAINER_HUGGING_FACE_TOKEN_IDS_H_
