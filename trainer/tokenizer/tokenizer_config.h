// What tokenizer_config.json and its neighbours say beside tokenizer.json, as plain data.
#ifndef GANTRY_TRAINER_TOKENIZER_TOKENIZER_CONFIG_H_
#define GANTRY_TRAINER_TOKENIZER_TOKENIZER_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/file_calls.h"

namespace gantry {

// A key that is absent or null is empty here.
struct TokenizerConfig {
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  // The tokens' texts; Tokenizer::TokenId gives their ids.
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> pad_token;
  std::optional<std::string> unk_token;
  std::optional<int64_t> model_max_length;  // tokens; absent when the file gives "no limit", 1e30
  // By name. A file's only template is "default".
  std::map<std::string, std::string> chat_templates;
};

// From the text of tokenizer_config.json. Errors: kInvalidArgument, naming the key.
absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view json);

// Reads a model's folder. A missing tokenizer_config.json is an empty one. chat_template.jinja,
// where it exists, is the default template instead of the one in tokenizer_config.json. Blocks.
// Errors: those of ReadFileToString and ParseTokenizerConfig, with the file's path.
absl::StatusOr<TokenizerConfig> LoadTokenizerConfig(FileCalls& files, const std::string& folder);

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_TOKENIZER_CONFIG_H_
