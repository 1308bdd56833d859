// Reading tokenizer.json and tokenizer_config.json: bounded in depth and number of values, without
// doubled keys, and with errors that name the field.
#ifndef GANTRY_TRAINER_TOKENIZER_JSON_VIEW_H_
#define GANTRY_TRAINER_TOKENIZER_JSON_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json_document.h"

namespace gantry {

// Errors: kInvalidArgument: no JSON, over 256 MiB, deeper than 32, more than 8 million values, or a
// key that is there twice.
absl::StatusOr<JsonDocument> ParseTokenizerJson(std::string_view text);

// A value and the way to it. Points into a document that must outlive it. All errors are
// kInvalidArgument and begin with the path.
class JsonView {
 public:
  JsonView(const nlohmann::json& value, std::string path)
      : value_(&value), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  // A member that is there and not null.
  std::optional<JsonView> Find(std::string_view key) const;
  absl::StatusOr<JsonView> Member(std::string_view key) const;
  // An element of a list. REQUIRES: index < value().size().
  JsonView At(size_t index) const;

  absl::Status ExpectObject() const;
  absl::Status ExpectList() const;
  absl::StatusOr<std::string> Text() const;
  absl::StatusOr<int64_t> Integer(int64_t least, int64_t most) const;
  absl::StatusOr<bool> Flag() const;

  // A member's value, or `otherwise` where it is absent or null.
  absl::StatusOr<std::string> TextOr(std::string_view key, std::string_view otherwise) const;
  absl::StatusOr<bool> FlagOr(std::string_view key, bool otherwise) const;
  // The text of the member `type`.
  absl::StatusOr<std::string> Type() const;

  // "PATH is VALUE; WHY".
  absl::Status Error(std::string_view why) const;

 private:
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_JSON_VIEW_H_
