#include "trainer/data/testing/byte_tokenizer.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {
namespace {

using Json = nlohmann::json;

// GPT-2's letter for a byte, in UTF-8.
std::string LetterOf(int byte, int& next) {
  const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  const int code = itself ? byte : next++;
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

}  // namespace

std::string ByteTokenizerFile(AddsBos adds_bos, TrimsOffsets trims_offsets) {
  Json vocabulary = Json::object();
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) vocabulary[LetterOf(byte, next)] = byte;
  vocabulary["=4"] = kEquals4;
  Json added = Json::array();
  const std::pair<int32_t, const char*> specials[] = {
      {kBos, "<s>"}, {kEos, "</s>"}, {kTurnStart, "<|im_start|>"}, {kTurnEnd, "<|im_end|>"}};
  for (const auto& [id, content] : specials) {
    added.push_back({{"id", id}, {"content", content}, {"special", true}, {"normalized", false}});
  }
  Json post_processor = nullptr;
  if (adds_bos == AddsBos::kYes) {
    post_processor = Json::parse(R"({
      "type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [257], "tokens": ["<s>"]}}})");
  }
  if (trims_offsets == TrimsOffsets::kYes) {
    post_processor = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", false}};
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  const Json file = {{"version", "1.0"},
                     {"added_tokens", added},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", byte_level},
                     {"post_processor", post_processor},
                     {"decoder", byte_level},
                     {"model",
                      {{"type", "BPE"},
                       {"vocab", vocabulary},
                       {"merges", Json::array({Json::array({"=", "4"})})}}}};
  return file.dump();
}

std::unique_ptr<Tokenizer> MakeByteTokenizer(AddsBos adds_bos, TrimsOffsets trims_offsets) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      Tokenizer::Parse(ByteTokenizerFile(adds_bos, trims_offsets));
  GANTRY_CHECK_OK(tokenizer.status());
  return *std::move(tokenizer);
}

}  // namespace gantry
