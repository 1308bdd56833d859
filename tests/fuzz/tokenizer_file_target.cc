// A tokenizer.json that is taken encodes and decodes without harm: offsets lie within the text, ids
// within the vocabulary, and decoding in parts gives the same.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/tokenizer/encoding.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {
namespace {

void Use(const Tokenizer& tokenizer, std::string_view text) {
  const absl::StatusOr<Encoding> encoding = tokenizer.Encode(text, {.want_offsets = true});
  if (!encoding.ok()) return;
  GANTRY_CHECK(encoding->ids.size() == encoding->offsets.size());
  for (const int32_t id : encoding->ids) {
    GANTRY_CHECK(id >= 0 && id < tokenizer.vocabulary_size());
  }
  const auto size = static_cast<int64_t>(text.size());
  for (const TextRange& range : encoding->offsets) {
    GANTRY_CHECK(0 <= range.begin && range.begin <= range.end && range.end <= size)
        << range.begin << " " << range.end;
  }
  const absl::StatusOr<Encoding> plain = tokenizer.Encode(text, {});
  GANTRY_CHECK_OK(plain.status());
  GANTRY_CHECK(plain->ids == encoding->ids);
  StreamingDecoder decoder(tokenizer, {});
  std::string streamed;
  for (const int32_t id : encoding->ids) streamed += decoder.Next(id);
  streamed += decoder.Finish();
  GANTRY_CHECK(streamed == tokenizer.Decode(encoding->ids, {}));
}

}  // namespace

bool Fuzz(std::string_view json) {
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Parse(json);
  if (!tokenizer.ok()) return false;
  for (const std::string_view text :
       {"", "ab  abc\n<s> \u00e9\u0301\u180e12", "\xff<x>\xe2\x82", "\u3000aAb c\u0130"}) {
    Use(**tokenizer, text);
  }
  return true;
}

}  // namespace gantry
