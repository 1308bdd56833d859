#include "trainer/booster/text_codec.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr size_t kCharacterBytesMax = 4;

// Whether more bytes could make the text a character: completes it with the least and the most
// that could follow.
bool IsPartOfCharacter(std::string_view text) {
  for (size_t missing = 1; text.size() + missing <= kCharacterBytesMax; ++missing) {
    for (const char next : {'\x80', '\x90', '\xa0', '\xbf'}) {
      std::string whole(text);
      whole += next;
      whole.append(missing - 1, '\x80');
      if (Utf8SequenceSize(whole) == whole.size()) return true;
    }
  }
  return false;
}

class ByteDecoder final : public TextDecoder {
 public:
  std::string Next(int32_t token) override {
    held_ += static_cast<char>(static_cast<unsigned char>(token));
    std::string text;
    while (!held_.empty()) {
      size_t size = Utf8SequenceSize(held_);
      if (size == 0) {
        if (IsPartOfCharacter(held_)) break;
        size = 1;  // no character begins here
      }
      text += held_.substr(0, size);
      held_.erase(0, size);
    }
    return text;
  }
  std::string Finish() override { return std::exchange(held_, {}); }

 private:
  std::string held_;
};

}  // namespace

absl::StatusOr<std::vector<int32_t>> ByteCodec::Encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::unique_ptr<TextDecoder> ByteCodec::NewDecoder() const {
  return std::make_unique<ByteDecoder>();
}

}  // namespace gantry
