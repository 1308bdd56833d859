#include "trainer/tokenizer/json_view.h"

#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

using Json = nlohmann::json;

constexpr size_t kTextBytesMax = size_t{256} << 20;
constexpr int kDepthMax = 32;
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

}  // namespace

absl::StatusOr<JsonDocument> ParseTokenizerJson(std::string_view text) {
  return JsonDocument::Parse(text, {.what = "",
                                    .text_bytes_max = kTextBytesMax,
                                    .depth_max = kDepthMax,
                                    .values_max = kValuesMax});
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
