#include "trainer/tokenizer/normalizer.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/tokenizer/unicode.h"
#include "trainer/tokenizer/utf8.h"

namespace gantry {
namespace {

using NormalizerOr = absl::StatusOr<std::unique_ptr<Normalizer>>;

class NormalFormNormalizer : public Normalizer {
 public:
  explicit NormalFormNormalizer(NormalForm form) : normalization_(form) {}

  absl::Status Apply(TextPieces& pieces, RegexScratch&) const override {
    if (normalization_.UnchangedSize(pieces.text()) == pieces.text().size()) {
      return absl::OkStatus();
    }
    std::vector<NormalizedCharacter> characters;
    pieces.RewriteEach([&](const TextPiece& piece, TextPieces::Writer& writer) {
      for (size_t at = piece.begin; at < piece.end;) {
        const std::string_view rest = pieces.text().substr(at, piece.end - at);
        const size_t unchanged = normalization_.UnchangedSize(rest);
        writer.Keep(at, at + unchanged);
        at += unchanged;
        if (at == piece.end) break;
        const size_t changed = normalization_.ChangedSize(rest.substr(unchanged));
        characters.clear();
        normalization_.Normalize(rest.substr(unchanged, changed), characters);
        Write(pieces.text(), {piece.begin, at}, characters, writer);
        at += changed;
      }
    });
    return absl::OkStatus();
  }

 private:
  struct Place {
    size_t piece_begin;
    size_t at;
  };

  static void Write(std::string_view text, Place place,
                    const std::vector<NormalizedCharacter>& characters,
                    TextPieces::Writer& writer) {
    size_t at = place.at;
    for (const NormalizedCharacter& character : characters) {
      // An addition shares the place of the character before it.
      const bool is_addition = character.taken == 0 && at > place.piece_begin;
      writer.Put(ToUtf8(character.value), is_addition ? at - 1 : at);
      for (int32_t i = 0; i < character.taken; ++i) at += CharacterAt(text, at).size;
    }
  }

  const Normalization normalization_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  absl::Status Apply(TextPieces& pieces, RegexScratch&) const override {
    pieces.RewriteEach([&](const TextPiece& piece, TextPieces::Writer& writer) {
      for (size_t at = piece.begin; at < piece.end;) {
        const Utf8Character character = CharacterAt(pieces.text(), at);
        char32_t buffer[2];
        for (const char32_t lower : Lowercase(character.value, buffer)) {
          writer.Put(ToUtf8(lower), at);
        }
        at += character.size;
      }
    });
    return absl::OkStatus();
  }
};

class StripAccentsNormalizer : public Normalizer {
 public:
  absl::Status Apply(TextPieces& pieces, RegexScratch&) const override {
    pieces.RewriteEach([&](const TextPiece& piece, TextPieces::Writer& writer) {
      for (size_t at = piece.begin; at < piece.end;) {
        const Utf8Character character = CharacterAt(pieces.text(), at);
        if (!IsMark(character.value)) writer.Keep(at, at + character.size);
        at += character.size;
      }
    });
    return absl::OkStatus();
  }
};

class StripNormalizer : public Normalizer {
 public:
  struct Sides {
    bool left;
    bool right;
  };
  explicit StripNormalizer(Sides sides) : sides_(sides) {}

  absl::Status Apply(TextPieces& pieces, RegexScratch&) const override {
    pieces.RewriteEach([&](const TextPiece& piece, TextPieces::Writer& writer) {
      const std::string_view text = pieces.text();
      size_t begin = piece.begin;
      size_t end = piece.end;
      while (sides_.left && begin < end && IsWhitespace(CharacterAt(text, begin).value)) {
        begin += CharacterAt(text, begin).size;
      }
      while (sides_.right && end > begin) {
        const size_t last = PreviousCharacter(text, end);
        if (!IsWhitespace(CharacterAt(text, last).value)) break;
        end = last;
      }
      writer.Keep(begin, end);
    });
    return absl::OkStatus();
  }

 private:
  const Sides sides_;
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string text) : text_(std::move(text)) {}

  absl::Status Apply(TextPieces& pieces, RegexScratch&) const override {
    pieces.RewriteEach([&](const TextPiece& piece, TextPieces::Writer& writer) {
      writer.Put(text_, piece.begin);
      writer.Keep(piece.begin, piece.end);
    });
    return absl::OkStatus();
  }

 private:
  const std::string text_;
};

class ReplaceTextNormalizer : public Normalizer {
 public:
  ReplaceTextNormalizer(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  absl::Status Apply(TextPieces& pieces, RegexScratch&) const override {
    if (pieces.text().find(pattern_) == std::string_view::npos) return absl::OkStatus();
    pieces.RewriteEach([&](const TextPiece& piece, TextPieces::Writer& writer) {
      const std::string_view text = pieces.text().substr(0, piece.end);
      size_t at = piece.begin;
      while (true) {
        const size_t found = text.find(pattern_, at);
        if (found == std::string_view::npos) break;
        writer.Keep(at, found);
        at = found + pattern_.size();
        // The place of the last character replaced.
        writer.Put(content_, at - 1);
      }
      writer.Keep(at, piece.end);
    });
    return absl::OkStatus();
  }

 private:
  const std::string pattern_;
  const std::string content_;
};

class ReplaceRegexNormalizer : public Normalizer {
 public:
  ReplaceRegexNormalizer(std::unique_ptr<Regex> regex, std::string content)
      : regex_(std::move(regex)), content_(std::move(content)) {}

  absl::Status Apply(TextPieces& pieces, RegexScratch& scratch) const override {
    absl::Status status;
    pieces.RewriteEach([&](const TextPiece& piece, TextPieces::Writer& writer) {
      size_t at = piece.begin;
      status.Update(regex_->ForEachMatch(pieces.TextOf(piece), scratch, [&](Regex::Match match) {
        writer.Keep(at, piece.begin + match.begin);
        at = piece.begin + match.end;
        if (at > piece.begin) {
          writer.Put(content_, at - 1);
        } else {
          writer.PutNew(content_, piece);
        }
      }));
      writer.Keep(at, piece.end);
    });
    return status;
  }

 private:
  const std::unique_ptr<Regex> regex_;
  const std::string content_;
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> steps)
      : steps_(std::move(steps)) {}

  absl::Status Apply(TextPieces& pieces, RegexScratch& scratch) const override {
    for (const auto& step : steps_) GANTRY_RETURN_IF_ERROR(step->Apply(pieces, scratch));
    return absl::OkStatus();
  }

 private:
  const std::vector<std::unique_ptr<Normalizer>> steps_;
};

NormalizerOr ParseReplace(const JsonView& json) {
  GANTRY_ASSIGN_OR_RETURN(const JsonView content_field, json.Member("content"));
  GANTRY_ASSIGN_OR_RETURN(std::string content, content_field.Text());
  GANTRY_ASSIGN_OR_RETURN(const JsonView pattern, json.Member("pattern"));
  if (const auto text = pattern.Find("String"); text.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(std::string replaced, text->Text());
    if (replaced.empty()) return text->Error("it must not be empty");
    return std::make_unique<ReplaceTextNormalizer>(std::move(replaced), std::move(content));
  }
  GANTRY_ASSIGN_OR_RETURN(const JsonView field, pattern.Member("Regex"));
  GANTRY_ASSIGN_OR_RETURN(const std::string expression, field.Text());
  absl::StatusOr<std::unique_ptr<Regex>> regex = Regex::Create(expression);
  if (!regex.ok()) return field.Error(FromAbsl(regex.status().message()));
  return std::make_unique<ReplaceRegexNormalizer>(*std::move(regex), std::move(content));
}

NormalizerOr ParseSequence(const JsonView& json) {
  GANTRY_ASSIGN_OR_RETURN(const JsonView list, json.Member("normalizers"));
  GANTRY_RETURN_IF_ERROR(list.ExpectList());
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (size_t i = 0; i < list.value().size(); ++i) {
    GANTRY_ASSIGN_OR_RETURN(auto step, ParseNormalizer(list.At(i)));
    steps.push_back(std::move(step));
  }
  return std::make_unique<NormalizerSequence>(std::move(steps));
}

}  // namespace

NormalizerOr ParseNormalizer(const JsonView& json) {
  GANTRY_ASSIGN_OR_RETURN(const std::string type, json.Type());
  if (type == "Sequence") return ParseSequence(json);
  if (type == "NFC") return std::make_unique<NormalFormNormalizer>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<NormalFormNormalizer>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<NormalFormNormalizer>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<NormalFormNormalizer>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "Strip") {
    GANTRY_ASSIGN_OR_RETURN(const bool left, json.FlagOr("strip_left", true));
    GANTRY_ASSIGN_OR_RETURN(const bool right, json.FlagOr("strip_right", true));
    return std::make_unique<StripNormalizer>(StripNormalizer::Sides{left, right});
  }
  if (type == "Prepend") {
    GANTRY_ASSIGN_OR_RETURN(const JsonView text, json.Member("prepend"));
    GANTRY_ASSIGN_OR_RETURN(std::string prefix, text.Text());
    return std::make_unique<PrependNormalizer>(std::move(prefix));
  }
  if (type == "Replace") return ParseReplace(json);
  return json.Error(StrCat("the normalizer '", type,
                           "' is not supported; these are: NFC, NFD, NFKC, NFKD, Lowercase, "
                           "Prepend, Replace, Strip, StripAccents, Sequence"));
}

}  // namespace gantry
