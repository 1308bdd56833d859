// A text on its way to tokens: cut into pieces, its characters changed, each byte still knowing
// which characters of the input it stands for.
#ifndef GANTRY_TRAINER_TOKENIZER_TEXT_PIECES_H_
#define GANTRY_TRAINER_TOKENIZER_TEXT_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/tokenizer/unicode.h"

namespace gantry {

// Bytes [begin, end) of the input.
struct Origin {
  uint32_t begin;
  uint32_t end;
};

// Bytes [begin, end) of the current text; not empty.
struct TextPiece {
  static constexpr int32_t kNoToken = -1;

  uint32_t begin;
  uint32_t end;
  int32_t token = kNoToken;  // of an added token, whose piece no later step touches
};

// Reused from text to text. One thread at a time.
class TextPieces {
 public:
  // Writes the next form of the text, piece by piece.
  class Writer {
   public:
    // Bytes [begin, end) of the current text as they are.
    void Keep(size_t begin, size_t end);
    // `bytes` for the character at `from` of the current text.
    void Put(std::string_view bytes, size_t from);
    // `bytes` that nothing stands for, at the beginning of `piece`.
    void PutNew(std::string_view bytes, const TextPiece& piece);

   private:
    friend class TextPieces;
    explicit Writer(TextPieces& pieces) : pieces_(pieces) {}

    TextPieces& pieces_;
  };

  // Begins with all of `text` as one piece (none when it is empty), which must stay where it is
  // until the next Reset. Without tracking, OriginOf is not to be called. REQUIRES: valid UTF-8 of
  // less than 2^32 bytes.
  void Reset(std::string_view text, bool tracks_origins);

  std::string_view text() const { return text_; }
  std::string_view TextOf(const TextPiece& piece) const {
    return text_.substr(piece.begin, piece.end - piece.begin);
  }
  const std::vector<TextPiece>& pieces() const { return pieces_; }

  // Replaces each piece that is no token by pieces of it: `split(piece, out)` appends them in
  // order; empty ones are dropped.
  template <typename Split>
  void SplitEach(Split split) {
    next_pieces_.clear();
    for (const TextPiece& piece : pieces_) {
      if (piece.token != TextPiece::kNoToken) {
        next_pieces_.push_back(piece);
      } else {
        split(piece, next_pieces_);
      }
    }
    std::swap(pieces_, next_pieces_);
    std::erase_if(pieces_, [](const TextPiece& piece) { return piece.begin == piece.end; });
  }

  // Rewrites the text: `rewrite(piece, writer)` writes what takes the place of a piece that is no
  // token; a piece that becomes empty is dropped.
  template <typename Rewrite>
  void RewriteEach(Rewrite rewrite) {
    BeginRewrite();
    Writer writer(*this);
    for (TextPiece& piece : pieces_) {
      const auto begin = static_cast<uint32_t>(next_text_.size());
      if (piece.token != TextPiece::kNoToken) {
        writer.Keep(piece.begin, piece.end);
      } else {
        rewrite(piece, writer);
      }
      piece.begin = begin;
      piece.end = static_cast<uint32_t>(next_text_.size());
    }
    FinishRewrite();
  }

  // The input's characters that bytes [begin, end) of the current text stand for.
  // REQUIRES: begin < end <= text().size().
  Origin OriginOf(size_t begin, size_t end) const {
    return {ByteOrigin(begin).begin, ByteOrigin(end - 1).end};
  }

 private:
  Origin ByteOrigin(size_t at) const;
  void BeginRewrite();
  void FinishRewrite();

  std::string_view text_;  // the input at first, then own_text_
  bool tracks_origins_ = false;
  bool is_input_ = true;  // every character stands for itself
  std::string own_text_;
  std::vector<Origin> origins_;  // of each byte, when tracked and not the input
  std::vector<TextPiece> pieces_;
  std::string next_text_;
  std::vector<Origin> next_origins_;
  std::vector<TextPiece> next_pieces_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_TEXT_PIECES_H_
