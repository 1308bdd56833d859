#include "trainer/tokenizer/text_pieces.h"

#include <utility>

#include "base/check.h"
#include "trainer/tokenizer/utf8.h"

namespace gantry {

void TextPieces::Writer::Keep(size_t begin, size_t end) {
  pieces_.next_text_.append(pieces_.text_.substr(begin, end - begin));
  if (!pieces_.tracks_origins_) return;
  if (pieces_.is_input_) {
    for (size_t at = begin; at < end;) {
      const Origin origin = pieces_.ByteOrigin(at);
      for (; at < origin.end && at < end; ++at) pieces_.next_origins_.push_back(origin);
    }
    return;
  }
  pieces_.next_origins_.insert(pieces_.next_origins_.end(),
                               pieces_.origins_.begin() + static_cast<ptrdiff_t>(begin),
                               pieces_.origins_.begin() + static_cast<ptrdiff_t>(end));
}

void TextPieces::Writer::Put(std::string_view bytes, size_t from) {
  pieces_.next_text_.append(bytes);
  if (!pieces_.tracks_origins_) return;
  pieces_.next_origins_.insert(pieces_.next_origins_.end(), bytes.size(), pieces_.ByteOrigin(from));
}

void TextPieces::Writer::PutNew(std::string_view bytes, const TextPiece& piece) {
  pieces_.next_text_.append(bytes);
  if (!pieces_.tracks_origins_) return;
  const uint32_t begin = pieces_.ByteOrigin(piece.begin).begin;
  pieces_.next_origins_.insert(pieces_.next_origins_.end(), bytes.size(), Origin{begin, begin});
}

void TextPieces::Reset(std::string_view text, bool tracks_origins) {
  GANTRY_CHECK(text.size() < UINT32_MAX);
  text_ = text;
  tracks_origins_ = tracks_origins;
  is_input_ = true;
  pieces_.clear();
  if (!text.empty()) pieces_.push_back({0, static_cast<uint32_t>(text.size())});
}

Origin TextPieces::ByteOrigin(size_t at) const {
  GANTRY_CHECK(at < text_.size());
  if (!is_input_) return origins_[at];
  size_t begin = at;
  while (IsContinuation(text_[begin])) --begin;
  return {static_cast<uint32_t>(begin),
          static_cast<uint32_t>(begin + CharacterAt(text_, begin).size)};
}

void TextPieces::BeginRewrite() {
  next_text_.clear();
  next_origins_.clear();
}

void TextPieces::FinishRewrite() {
  GANTRY_CHECK(next_text_.size() < UINT32_MAX);
  std::swap(own_text_, next_text_);
  std::swap(origins_, next_origins_);
  text_ = own_text_;
  is_input_ = false;
  std::erase_if(pieces_, [](const TextPiece& piece) { return piece.begin == piece.end; });
}

}  // namespace gantry
