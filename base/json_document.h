// Reading JSON files that somebody else wrote: bounded in size, depth and number of values, without
// doubled keys, and with errors that name the field ("trace file: moments[3].compute is -1, ...").
//
//   GANTRY_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, {.what =
//   "..."})); const JsonNode root = document.root(); GANTRY_RETURN_IF_ERROR(root.ExpectKeys(keys));
//   GANTRY_ASSIGN_OR_RETURN(const JsonNode tokens, root.Member("tokens"));
//   GANTRY_ASSIGN_OR_RETURN(trace.tokens, tokens.Integer({.least = 0}));
//
// All errors are kInvalidArgument.
#ifndef GANTRY_BASE_JSON_DOCUMENT_H_
#define GANTRY_BASE_JSON_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gantry {

// The largest integer up to which a double, and so every JSON reader, tells integers apart.
inline constexpr int64_t kJsonIntegerMax = int64_t{1} << 53;

struct IntegerRange {
  int64_t least = 0;
  int64_t most = kJsonIntegerMax;
};

struct RealRange {
  double least;
  double most;
};

// One value, with the way to it. A view of the document and of the node that it was reached by:
// both must outlive it.
class JsonNode {
 public:
  JsonNode(const nlohmann::json* value, std::string_view what) : value_(value), key_(what) {}

  // Every member's key must be one of `keys`; otherwise the error names the nearest.
  absl::Status ExpectKeys(std::span<const std::string_view> keys) const;
  // REQUIRES of both: ExpectKeys was OK, so this is an object. `key` outlives the node.
  absl::StatusOr<JsonNode> Member(std::string_view key) const;  // an error when it is missing
  std::optional<JsonNode> Find(std::string_view key) const;

  // The number of elements. Errors: not a list, or of another than the given length.
  absl::StatusOr<size_t> ListSize() const;
  absl::Status ExpectListOf(size_t size) const;
  // REQUIRES of both: index < ListSize().
  JsonNode At(size_t index) const;
  // With a name in place of the index, for the fields of a row. `name` outlives the node.
  JsonNode Field(size_t index, std::string_view name) const;

  absl::StatusOr<int64_t> Integer(IntegerRange range) const;
  absl::StatusOr<double> Real(RealRange range) const;
  absl::StatusOr<bool> Flag() const;
  absl::StatusOr<std::string_view> Text() const;  // points into the document
  absl::Status ExpectObject() const;
  const nlohmann::json& value() const { return *value_; }

  // An error about this value: "PATH is VALUE, WHY".
  absl::Status Error(std::string_view why) const;
  std::string Path() const;

 private:
  static constexpr size_t kNoIndex = static_cast<size_t>(-1);

  JsonNode(const nlohmann::json* value, const JsonNode* parent, std::string_view key, size_t index)
      : value_(value), parent_(parent), key_(key), index_(index) {}

  const nlohmann::json* value_;
  const JsonNode* parent_ = nullptr;
  std::string_view key_;
  size_t index_ = kNoIndex;
};

// Owns the values. Movable; nodes of a moved document are invalid.
class JsonDocument {
 public:
  struct Limits {
    std::string_view what;  // begins every message, with ": "; may be empty; static text
    size_t text_bytes_max;
    int depth_max;       // of lists and objects inside each other
    int64_t values_max;  // each takes some 100 bytes of memory at most, beside its text
  };
  static absl::StatusOr<JsonDocument> Parse(std::string_view text, const Limits& limits);

  JsonNode root() const { return {&value_, what_}; }
  // Checks the members `format` and `version` of a versioned file.
  absl::Status ExpectFormat(std::string_view format, int64_t version) const;

 private:
  JsonDocument(nlohmann::json value, std::string_view what)
      : value_(std::move(value)), what_(what) {}

  nlohmann::json value_;
  std::string_view what_;
};

// `text` as a JSON string, quotes included; bytes that are no UTF-8 are replaced.
std::string JsonQuoted(std::string_view text);

}  // namespace gantry

#endif  // GANTRY_BASE_JSON_DOCUMENT_H_
