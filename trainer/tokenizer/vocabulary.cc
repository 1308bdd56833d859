#include "trainer/tokenizer/vocabulary.h"

#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr int64_t kIdsPerToken = 4;
constexpr int64_t kIdsMore = 65'536;

}  // namespace

absl::StatusOr<Vocabulary> Vocabulary::Parse(const JsonView& json) {
  GANTRY_RETURN_IF_ERROR(json.ExpectObject());
  if (json.value().empty()) return json.Error("it must not be empty");
  const int64_t ids_max = kIdsPerToken * static_cast<int64_t>(json.value().size()) + kIdsMore;
  Vocabulary vocabulary;
  vocabulary.ids_.reserve(json.value().size());
  for (const auto& [text, value] : json.value().items()) {
    const JsonView field(value, StrCat(json.path(), "[\"", text, "\"]"));
    GANTRY_ASSIGN_OR_RETURN(const int64_t id, field.Integer(0, ids_max - 1));
    if (static_cast<size_t>(id) >= vocabulary.texts_.size()) {
      vocabulary.texts_.resize(static_cast<size_t>(id) + 1, nullptr);
    }
    const std::string*& place = vocabulary.texts_[static_cast<size_t>(id)];
    if (place != nullptr) {
      return field.Error(StrCat("the id of the token '", *place, "' too"));
    }
    place = &vocabulary.storage_.emplace_back(text);
    vocabulary.ids_.emplace(*place, static_cast<int32_t>(id));
  }
  return vocabulary;
}

std::optional<std::string_view> Vocabulary::TextOf(int32_t id) const {
  if (id < 0 || id > id_max()) return std::nullopt;
  const std::string* const text = texts_[static_cast<size_t>(id)];
  if (text == nullptr) return std::nullopt;
  return *text;
}

}  // namespace gantry
