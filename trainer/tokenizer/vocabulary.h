// Token texts and their ids. Built once, then immutable and thread-safe.
#ifndef GANTRY_TRAINER_TOKENIZER_VOCABULARY_H_
#define GANTRY_TRAINER_TOKENIZER_VOCABULARY_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/tokenizer/json_view.h"

namespace gantry {

class Vocabulary {
 public:
  // From an object of texts and ids. Errors: kInvalidArgument: empty, an id that is none, is there
  // twice, or is over four times the number of tokens plus 65,535 (which bounds memory).
  static absl::StatusOr<Vocabulary> Parse(const JsonView& json);

  std::optional<int32_t> Find(std::string_view text) const {
    const auto entry = ids_.find(text);
    if (entry == ids_.end()) return std::nullopt;
    return entry->second;
  }
  // Empty where there is no such token.
  std::optional<std::string_view> TextOf(int32_t id) const;

  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  int32_t id_max() const { return static_cast<int32_t>(texts_.size()) - 1; }
  // For all tokens, in no order.
  const std::unordered_map<std::string_view, int32_t>& ids() const { return ids_; }

 private:
  std::deque<std::string> storage_;  // does not move
  std::unordered_map<std::string_view, int32_t> ids_;
  std::vector<const std::string*> texts_;  // by id; null: none
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_VOCABULARY_H_
