#include "trainer/tokenizer/json_view.h"

#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

using Json = nlohmann::json;

constexpr size_t kTextBytesMax = size_t{256} << 20;
constexpr size_t kDepthMax = 32;
constexpr int64_t kValuesMax = 8'000'000;
constexpr size_t kShownBytesMax = 60;

std::string Cut(std::string_view text) {
  if (text.size() <= kShownBytesMax) return std::string(text);
  return StrCat(text.substr(0, kShownBytesMax), "...");
}

std::string Shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return StrCat("a list of ", value.size());
  return Cut(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Builds the document from the parser's events, and stops it at the first thing that is too much.
class Builder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  // The names are the parser's.
  // NOLINTBEGIN(readability-identifier-naming)
  bool null() { return Place(nullptr) != nullptr; }
  bool boolean(bool value) { return Place(value) != nullptr; }
  bool number_integer(number_integer_t value) { return Place(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) { return Place(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) { return Place(value) != nullptr; }
  bool string(string_t& value) { return Place(std::move(value)) != nullptr; }
  bool binary(binary_t&) { return Stop("it holds binary data"); }
  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(string_t& name) {
    const auto [place, is_new] = open_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    if (!is_new) return Stop(StrCat("the key '", Cut(name), "' is there twice"));
    member_ = &place->second;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    return Stop(StrCat("no JSON from byte ", position, " on; is it cut off or changed?"));
  }
  // NOLINTEND(readability-identifier-naming)

  const std::string& error() const { return error_; }
  Json TakeRoot() { return std::move(root_); }

 private:
  bool Stop(std::string why) {
    if (error_.empty()) error_ = std::move(why);
    return false;
  }

  bool Open(Json value) {
    if (open_.size() == kDepthMax) {
      return Stop(StrCat("lists and objects are nested deeper than ", kDepthMax));
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
    if (++values_ > kValuesMax) {
      Stop(StrCat("it has more than ", kValuesMax, " values"));
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
    // Only the last element of a list can be open, so that growing moves no open one.
    auto& list = open_.back()->get_ref<Json::array_t&>();
    list.push_back(std::move(value));
    return &list.back();
  }

  Json root_;
  std::vector<Json*> open_;
  Json* member_ = nullptr;
  int64_t values_ = 0;
  std::string error_;
};

}  // namespace

absl::StatusOr<Json> ParseBoundedJson(std::string_view text) {
  if (text.size() > kTextBytesMax) {
    return InvalidArgument("it has ", text.size(), " bytes; at most ", kTextBytesMax, " are taken");
  }
  Builder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return InvalidArgument(builder.error());
  }
  return builder.TakeRoot();
}

std::optional<JsonView> JsonView::Find(std::string_view key) const {
  if (!value_->is_object()) return std::nullopt;
  const auto member = value_->find(key);
  if (member == value_->end() || member->is_null()) return std::nullopt;
  return JsonView(*member, path_.empty() ? std::string(key) : StrCat(path_, ".", key));
}

absl::StatusOr<JsonView> JsonView::Member(std::string_view key) const {
  GANTRY_RETURN_IF_ERROR(ExpectObject());
  std::optional<JsonView> member = Find(key);
  if (!member.has_value()) {
    return InvalidArgument(path_, path_.empty() ? "" : ".", key, " is missing");
  }
  return *std::move(member);
}

JsonView JsonView::At(size_t index) const {
  return JsonView((*value_)[index], StrCat(path_, "[", index, "]"));
}

absl::Status JsonView::ExpectObject() const {
  return value_->is_object() ? absl::OkStatus() : Error("it must be an object");
}

absl::Status JsonView::ExpectList() const {
  return value_->is_array() ? absl::OkStatus() : Error("it must be a list");
}

absl::StatusOr<std::string> JsonView::Text() const {
  if (!value_->is_string()) return Error("it must be a text");
  return value_->get_ref<const std::string&>();
}

absl::StatusOr<int64_t> JsonView::Integer(int64_t least, int64_t most) const {
  if (value_->is_number_integer() &&
      !(value_->is_number_unsigned() && value_->get<uint64_t>() > INT64_MAX)) {
    const auto number = value_->get<int64_t>();
    if (number >= least && number <= most) return number;
  }
  return Error(StrCat("it must be an integer from ", least, " to ", most));
}

absl::StatusOr<bool> JsonView::Flag() const {
  if (!value_->is_boolean()) return Error("it must be true or false");
  return value_->get<bool>();
}

absl::StatusOr<std::string> JsonView::TextOr(std::string_view key,
                                             std::string_view otherwise) const {
  const std::optional<JsonView> member = Find(key);
  if (!member.has_value()) return std::string(otherwise);
  return member->Text();
}

absl::StatusOr<bool> JsonView::FlagOr(std::string_view key, bool otherwise) const {
  const std::optional<JsonView> member = Find(key);
  if (!member.has_value()) return otherwise;
  return member->Flag();
}

absl::StatusOr<std::string> JsonView::Type() const {
  GANTRY_ASSIGN_OR_RETURN(const JsonView type, Member("type"));
  return type.Text();
}

absl::Status JsonView::Error(std::string_view why) const {
  return InvalidArgument(path_.empty() ? "the file" : path_, " is ", Shown(*value_), "; ", why);
}

}  // namespace gantry
