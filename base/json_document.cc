#include "base/json_document.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

using Json = nlohmann::json;

// Long values are cut in messages.
constexpr size_t kShownBytesMax = 40;

// Builds a document from the parser's events and stops it at the first thing that is too much, so
// that memory is bounded before anything is stored.
class Builder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  explicit Builder(const JsonDocument::Limits& limits) : limits_(limits) {}

  // The names are the parser's.
  // NOLINTBEGIN(readability-identifier-naming)
  bool null() { return Add(nullptr); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(number_integer_t value) { return Add(value); }
  bool number_unsigned(number_unsigned_t value) { return Add(value); }
  bool number_float(number_float_t value, const string_t&) { return Add(value); }
  bool string(string_t& value) { return Add(std::move(value)); }
  bool binary(binary_t&) { return Stop("it holds binary data"); }
  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(string_t& name) {
    const auto [place, is_new] = open_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    if (!is_new) return Stop(StrCat("the key '", Shown(name), "' is there twice"));
    member_ = &place->second;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    return Stop(StrCat("no JSON from byte ", position, " on; is it cut off or changed?"));
  }
  // NOLINTEND(readability-identifier-naming)

  const std::string& error() const { return error_; }
  Json& root() { return root_; }

  static std::string Shown(std::string_view text) {
    // Control characters would reach a terminal.
    std::string shown = JsonQuoted(text.substr(0, std::min(text.size(), kShownBytesMax)));
    shown = shown.substr(1, shown.size() - 2);
    return text.size() <= kShownBytesMax ? shown : shown + "...";
  }

 private:
  bool Stop(std::string why) {
    if (error_.empty()) error_ = std::move(why);
    return false;
  }

  bool Add(Json value) { return Place(std::move(value)) != nullptr; }

  bool Open(Json value) {
    if (static_cast<int>(open_.size()) == limits_.depth_max) {
      return Stop(StrCat("lists and objects are nested deeper than ", limits_.depth_max));
    }
    Json* const place = Place(std::move(value));
    if (place == nullptr) return false;
    open_.push_back(place);
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  // Null when there are too many.
  Json* Place(Json value) {
    if (++values_ > limits_.values_max) {
      Stop(StrCat("it has more than ", limits_.values_max, " values"));
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_object()) {
      *member_ = std::move(value);
      return member_;
    }
    // Elements of open lists are not moved: only the last one of each can be open.
    auto& list = open_.back()->get_ref<Json::array_t&>();
    list.push_back(std::move(value));
    return &list.back();
  }

  const JsonDocument::Limits& limits_;
  Json root_;
  std::vector<Json*> open_;
  Json* member_ = nullptr;
  int64_t values_ = 0;
  std::string error_;
};

std::string Shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return StrCat("a list of ", value.size());
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kShownBytesMax ? text : StrCat(text.substr(0, kShownBytesMax), "...");
}

std::string Suggestion(std::string_view key, std::span<const std::string_view> keys) {
  const std::vector<std::string> names(keys.begin(), keys.end());
  const std::string nearest = NearestName(key, names.data(), names.size());
  if (!nearest.empty()) return StrCat("did you mean '", nearest, "'?");
  std::string all;
  for (const std::string_view known : keys) all += StrCat(all.empty() ? "" : ", ", known);
  return StrCat("known are ", all);
}

}  // namespace

absl::StatusOr<JsonDocument> JsonDocument::Parse(std::string_view text, const Limits& limits) {
  const std::string begin = limits.what.empty() ? "" : StrCat(limits.what, ": ");
  if (text.size() > limits.text_bytes_max) {
    return InvalidArgument(begin, "it has ", text.size(), " bytes; the most is ",
                           limits.text_bytes_max);
  }
  // To the parser a zero byte is the end of the text.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return InvalidArgument(begin, "no JSON from byte ", zero + 1, " on: a zero byte");
  }
  Builder builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return InvalidArgument(begin, builder.error());
  }
  return JsonDocument(std::move(builder.root()), limits.what);
}

absl::Status JsonDocument::ExpectFormat(std::string_view format, int64_t version) const {
  const JsonNode node = root();
  GANTRY_RETURN_IF_ERROR(node.ExpectObject());
  GANTRY_ASSIGN_OR_RETURN(const JsonNode format_node, node.Member("format"));
  GANTRY_ASSIGN_OR_RETURN(const std::string_view name, format_node.Text());
  if (name != format) return format_node.Error(StrCat("not ", JsonQuoted(format)));
  GANTRY_ASSIGN_OR_RETURN(const JsonNode version_node, node.Member("version"));
  GANTRY_ASSIGN_OR_RETURN(const int64_t number, version_node.Integer({}));
  if (number == version) return absl::OkStatus();
  return version_node.Error(StrCat("but this program reads version ", version, " only"));
}

absl::Status JsonNode::ExpectObject() const {
  return value_->is_object() ? absl::OkStatus() : Error("not an object");
}

absl::Status JsonNode::ExpectKeys(std::span<const std::string_view> keys) const {
  GANTRY_RETURN_IF_ERROR(ExpectObject());
  for (const auto& [key, value] : value_->get_ref<const Json::object_t&>()) {
    if (std::ranges::find(keys, key) != keys.end()) continue;
    return InvalidArgument(Path(), parent_ == nullptr ? ": " : ".", Builder::Shown(key),
                           " is not known; ", Suggestion(key, keys));
  }
  return absl::OkStatus();
}

std::optional<JsonNode> JsonNode::Find(std::string_view key) const {
  const auto& members = value_->get_ref<const Json::object_t&>();
  const auto found = members.find(key);
  if (found == members.end()) return std::nullopt;
  return JsonNode(&found->second, this, key, kNoIndex);
}

absl::StatusOr<JsonNode> JsonNode::Member(std::string_view key) const {
  const std::optional<JsonNode> node = Find(key);
  if (node.has_value()) return *node;
  return InvalidArgument(Path(), parent_ == nullptr ? ": " : ".", key, " is missing");
}

absl::StatusOr<size_t> JsonNode::ListSize() const {
  if (!value_->is_array()) return Error("not a list");
  return value_->size();
}

absl::Status JsonNode::ExpectListOf(size_t size) const {
  if (value_->is_array() && value_->size() == size) return absl::OkStatus();
  return Error(StrCat("not a list of ", size));
}

JsonNode JsonNode::At(size_t index) const {
  return JsonNode(&value_->get_ref<const Json::array_t&>()[index], this, {}, index);
}

JsonNode JsonNode::Field(size_t index, std::string_view name) const {
  return JsonNode(&value_->get_ref<const Json::array_t&>()[index], this, name, index);
}

absl::StatusOr<int64_t> JsonNode::Integer(IntegerRange range) const {
  GANTRY_CHECK_LE(range.most, kJsonIntegerMax);
  if (!value_->is_number_integer()) {
    if (value_->is_number_float() && std::abs(value_->get<double>()) > kJsonIntegerMax) {
      return Error(StrCat("outside [", range.least, ", ", range.most, "]"));
    }
    return Error("not an integer");
  }
  const bool too_large = value_->is_number_unsigned() &&
                         value_->get<uint64_t>() > static_cast<uint64_t>(kJsonIntegerMax);
  if (too_large || value_->get<int64_t>() < range.least || value_->get<int64_t>() > range.most) {
    return Error(StrCat("outside [", range.least, ", ", range.most, "]"));
  }
  return value_->get<int64_t>();
}

absl::StatusOr<double> JsonNode::Real(RealRange range) const {
  if (!value_->is_number()) return Error("not a number");
  const auto value = value_->get<double>();
  if (value >= range.least && value <= range.most) return value;
  return Error(StrCat("outside [", range.least, ", ", range.most, "]"));
}

absl::StatusOr<bool> JsonNode::Flag() const {
  if (value_->is_boolean()) return value_->get<bool>();
  return Error("neither true nor false");
}

absl::StatusOr<std::string_view> JsonNode::Text() const {
  if (!value_->is_string()) return Error("not a text");
  return std::string_view(value_->get_ref<const std::string&>());
}

absl::Status JsonNode::Error(std::string_view why) const {
  return InvalidArgument(Path(), parent_ == nullptr ? ": the file" : "", " is ", Shown(*value_),
                         ", ", why);
}

std::string JsonNode::Path() const {
  if (parent_ == nullptr) return std::string(key_);
  const std::string before = parent_->Path();
  const bool first = parent_->parent_ == nullptr;
  if (key_.empty()) return StrCat(before, "[", index_, "]");
  return StrCat(before, first ? ": " : ".", key_);
}

std::string JsonQuoted(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gantry
