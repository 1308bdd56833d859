#include "trainer/tokenizer/tokenizer_config.h"

#include <utility>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/files.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/tokenizer/json_view.h"

namespace gantry {
namespace {

constexpr std::string_view kConfigName = "tokenizer_config.json";
constexpr std::string_view kTemplateName = "chat_template.jinja";
constexpr std::string_view kDefaultTemplate = "default";
constexpr int64_t kFileBytesMax = int64_t{64} << 20;
constexpr int64_t kLengthMax = int64_t{1} << 40;

absl::Status ReadFlag(const JsonView& json, std::string_view key, std::optional<bool>& out) {
  const std::optional<JsonView> field = json.Find(key);
  if (!field.has_value()) return absl::OkStatus();
  GANTRY_ASSIGN_OR_RETURN(out, field->Flag());
  return absl::OkStatus();
}

// "<s>", or an object with its content.
absl::Status ReadToken(const JsonView& json, std::string_view key,
                       std::optional<std::string>& out) {
  const std::optional<JsonView> field = json.Find(key);
  if (!field.has_value()) return absl::OkStatus();
  if (!field->value().is_object()) {
    GANTRY_ASSIGN_OR_RETURN(out, field->Text());
    return absl::OkStatus();
  }
  GANTRY_ASSIGN_OR_RETURN(const JsonView content, field->Member("content"));
  GANTRY_ASSIGN_OR_RETURN(out, content.Text());
  return absl::OkStatus();
}

// Files without a limit hold 1e30, as an integer of 31 digits or a real number.
absl::Status ReadLength(const JsonView& json, std::optional<int64_t>& out) {
  const std::optional<JsonView> field = json.Find("model_max_length");
  if (!field.has_value()) return absl::OkStatus();
  if (!field->value().is_number()) return field->Error("it must be a number of tokens");
  const double length = field->value().get<double>();
  if (!(length >= 1)) return field->Error("it must be at least 1");
  if (length <= static_cast<double>(kLengthMax)) out = static_cast<int64_t>(length);
  return absl::OkStatus();
}

// A text, or a list of objects with a name and a template.
absl::Status ReadTemplates(const JsonView& json, std::map<std::string, std::string>& out) {
  const std::optional<JsonView> field = json.Find("chat_template");
  if (!field.has_value()) return absl::OkStatus();
  if (!field->value().is_array()) {
    GANTRY_ASSIGN_OR_RETURN(out[std::string(kDefaultTemplate)], field->Text());
    return absl::OkStatus();
  }
  for (size_t i = 0; i < field->value().size(); ++i) {
    const JsonView entry = field->At(i);
    GANTRY_ASSIGN_OR_RETURN(const JsonView name_field, entry.Member("name"));
    GANTRY_ASSIGN_OR_RETURN(const std::string name, name_field.Text());
    GANTRY_ASSIGN_OR_RETURN(const JsonView text_field, entry.Member("template"));
    GANTRY_ASSIGN_OR_RETURN(std::string text, text_field.Text());
    if (!out.emplace(name, std::move(text)).second) {
      return name_field.Error("a template of that name is there twice");
    }
  }
  return absl::OkStatus();
}

// Nothing where there is no such file.
absl::StatusOr<std::optional<std::string>> ReadIfThere(FileCalls& files, const std::string& path) {
  absl::StatusOr<std::string> text = ReadFileToString(files, path, Bytes(kFileBytesMax));
  if (text.status().code() == absl::StatusCode::kNotFound) return std::optional<std::string>();
  GANTRY_RETURN_IF_ERROR(text.status());
  return std::optional<std::string>(*std::move(text));
}

}  // namespace

absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view json) {
  GANTRY_ASSIGN_OR_RETURN(const JsonDocument document, ParseTokenizerJson(json));
  const JsonView root(document.root().value(), "");
  GANTRY_RETURN_IF_ERROR(root.ExpectObject());
  TokenizerConfig config;
  GANTRY_RETURN_IF_ERROR(ReadFlag(root, "add_bos_token", config.add_bos_token));
  GANTRY_RETURN_IF_ERROR(ReadFlag(root, "add_eos_token", config.add_eos_token));
  GANTRY_RETURN_IF_ERROR(ReadToken(root, "bos_token", config.bos_token));
  GANTRY_RETURN_IF_ERROR(ReadToken(root, "eos_token", config.eos_token));
  GANTRY_RETURN_IF_ERROR(ReadToken(root, "pad_token", config.pad_token));
  GANTRY_RETURN_IF_ERROR(ReadToken(root, "unk_token", config.unk_token));
  GANTRY_RETURN_IF_ERROR(ReadLength(root, config.model_max_length));
  GANTRY_RETURN_IF_ERROR(ReadTemplates(root, config.chat_templates));
  return config;
}

absl::StatusOr<TokenizerConfig> LoadTokenizerConfig(FileCalls& files, const std::string& folder) {
  const std::string path = StrCat(folder, "/", kConfigName);
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> json, ReadIfThere(files, path));
  absl::StatusOr<TokenizerConfig> config = ParseTokenizerConfig(json.value_or("{}"));
  if (!config.ok()) {
    return MakeStatus(config.status().code(), path, ": ", config.status().message());
  }
  GANTRY_ASSIGN_OR_RETURN(std::optional<std::string> text,
                          ReadIfThere(files, StrCat(folder, "/", kTemplateName)));
  if (text.has_value()) config->chat_templates[std::string(kDefaultTemplate)] = *std::move(text);
  return config;
}

}  // namespace gantry
