#include "trainer/tokenizer/pre_tokenizer.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/tokenizer/splitting.h"
#include "trainer/tokenizer/unicode.h"
#include "trainer/tokenizer/utf8.h"

namespace gantry {
namespace {

using ParsedOr = absl::StatusOr<ParsedPreTokenizer>;

constexpr std::string_view kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// Adds what lies between matches.
class PartList {
 public:
  // Whether what does not match counts as the match.
  enum class Sense { kMatches, kGaps };

  PartList(std::vector<SplitPart>& parts, const TextPiece& piece, Sense sense)
      : parts_(parts), at_(piece.begin), end_(piece.end), is_inverted_(sense == Sense::kGaps) {
    parts_.clear();
  }

  void AddMatch(size_t begin, size_t end) {
    if (at_ < begin) parts_.push_back({at_, static_cast<uint32_t>(begin), is_inverted_});
    at_ = static_cast<uint32_t>(end);
    parts_.push_back({static_cast<uint32_t>(begin), at_, !is_inverted_});
  }
  void Finish() {
    if (at_ < end_) parts_.push_back({at_, end_, is_inverted_});
  }

 private:
  std::vector<SplitPart>& parts_;
  uint32_t at_;
  const uint32_t end_;
  const bool is_inverted_;
};

class RegexSplit : public PreTokenizer {
 public:
  RegexSplit(std::unique_ptr<Regex> regex, SplitBehavior behavior, PartList::Sense sense)
      : regex_(std::move(regex)), behavior_(behavior), sense_(sense) {}

  absl::Status Apply(TextPieces& pieces, RegexScratch& scratch) const override {
    absl::Status status;
    std::vector<SplitPart> parts;
    pieces.SplitEach([&](const TextPiece& piece, std::vector<TextPiece>& out) {
      PartList list(parts, piece, sense_);
      status.Update(regex_->ForEachMatch(pieces.TextOf(piece), scratch, [&](Regex::Match match) {
        list.AddMatch(piece.begin + match.begin, piece.begin + match.end);
      }));
      list.Finish();
      ApplySplitBehavior(behavior_, parts, out);
    });
    return status;
  }

 private:
  const std::unique_ptr<Regex> regex_;
  const SplitBehavior behavior_;
  const PartList::Sense sense_;
};

class TextSplit : public PreTokenizer {
 public:
  TextSplit(std::string pattern, SplitBehavior behavior, PartList::Sense sense)
      : pattern_(std::move(pattern)), behavior_(behavior), sense_(sense) {}

  absl::Status Apply(TextPieces& pieces, RegexScratch&) const override {
    std::vector<SplitPart> parts;
    pieces.SplitEach([&](const TextPiece& piece, std::vector<TextPiece>& out) {
      PartList list(parts, piece, sense_);
      const std::string_view text = pieces.text().substr(0, piece.end);
      for (size_t at = text.find(pattern_, piece.begin); at != std::string_view::npos;
           at = text.find(pattern_, at + pattern_.size())) {
        list.AddMatch(at, at + pattern_.size());
      }
      list.Finish();
      ApplySplitBehavior(behavior_, parts, out);
    });
    return absl::OkStatus();
  }

 private:
  const std::string pattern_;
  const SplitBehavior behavior_;
  const PartList::Sense sense_;
};

// Every character of a class is a match by itself.
class CharacterSplit : public PreTokenizer {
 public:
  using Class = bool (*)(char32_t);
  CharacterSplit(Class is_match, SplitBehavior behavior)
      : is_match_(is_match), behavior_(behavior) {}

  absl::Status Apply(TextPieces& pieces, RegexScratch&) const override {
    std::vector<SplitPart> parts;
    pieces.SplitEach([&](const TextPiece& piece, std::vector<TextPiece>& out) {
      PartList list(parts, piece, PartList::Sense::kMatches);
      for (size_t at = piece.begin; at < piece.end;) {
        const Utf8Character character = CharacterAt(pieces.text(), at);
        if (is_match_(character.value)) list.AddMatch(at, at + character.size);
        at += character.size;
      }
      list.Finish();
      ApplySplitBehavior(behavior_, parts, out);
    });
    return absl::OkStatus();
  }

 private:
  const Class is_match_;
  const SplitBehavior behavior_;
};

// Runs of word characters, runs of others, and no white space.
class WordSplit : public PreTokenizer {
 public:
  absl::Status Apply(TextPieces& pieces, RegexScratch&) const override {
    pieces.SplitEach([&](const TextPiece& piece, std::vector<TextPiece>& out) {
      Kind last = Kind::kSpace;
      for (size_t at = piece.begin; at < piece.end;) {
        const Utf8Character character = CharacterAt(pieces.text(), at);
        const Kind kind = KindOf(character.value);
        const auto begin = static_cast<uint32_t>(at);
        at += character.size;
        if (kind != Kind::kSpace) {
          if (kind != last) out.push_back({begin, begin});
          out.back().end = static_cast<uint32_t>(at);
        }
        last = kind;
      }
    });
    return absl::OkStatus();
  }

 private:
  enum class Kind { kSpace, kWord, kOther };
  static Kind KindOf(char32_t character) {
    if (IsWhitespace(character)) return Kind::kSpace;
    return IsWordCharacter(character) ? Kind::kWord : Kind::kOther;
  }
};

class PrefixSpace : public PreTokenizer {
 public:
  absl::Status Apply(TextPieces& pieces, RegexScratch&) const override {
    pieces.RewriteEach([&](const TextPiece& piece, TextPieces::Writer& writer) {
      if (pieces.text()[piece.begin] != ' ') writer.Put(" ", piece.begin);
      writer.Keep(piece.begin, piece.end);
    });
    return absl::OkStatus();
  }
};

enum class PrependScheme { kAlways, kFirst, kNever };

class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme)
      : replacement_(std::move(replacement)), scheme_(scheme) {}

  absl::Status Apply(TextPieces& pieces, RegexScratch&) const override {
    pieces.RewriteEach([&](const TextPiece& piece, TextPieces::Writer& writer) {
      const std::string_view text = pieces.TextOf(piece);
      const bool has_it = text[0] == ' ' || text.substr(0, replacement_.size()) == replacement_;
      if (!has_it && Prepends(pieces, piece)) writer.Put(replacement_, piece.begin);
      size_t at = 0;
      while (true) {
        const size_t space = text.find(' ', at);
        if (space == std::string_view::npos) break;
        writer.Keep(piece.begin + at, piece.begin + space);
        writer.Put(replacement_, piece.begin + space);
        at = space + 1;
      }
      writer.Keep(piece.begin + at, piece.end);
    });
    return absl::OkStatus();
  }

 private:
  bool Prepends(const TextPieces& pieces, const TextPiece& piece) const {
    if (scheme_ != PrependScheme::kFirst) return scheme_ == PrependScheme::kAlways;
    return pieces.OriginOf(piece.begin, piece.begin + 1).begin == 0;
  }

  const std::string replacement_;
  const PrependScheme scheme_;
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> steps)
      : steps_(std::move(steps)) {}

  absl::Status Apply(TextPieces& pieces, RegexScratch& scratch) const override {
    for (const auto& step : steps_) GANTRY_RETURN_IF_ERROR(step->Apply(pieces, scratch));
    return absl::OkStatus();
  }

 private:
  const std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

ParsedOr Of(std::unique_ptr<PreTokenizer> step) {
  return ParsedPreTokenizer{.steps = std::move(step)};
}

ParsedOr Two(std::unique_ptr<PreTokenizer> first, std::unique_ptr<PreTokenizer> second) {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  steps.push_back(std::move(first));
  steps.push_back(std::move(second));
  return Of(std::make_unique<PreTokenizerSequence>(std::move(steps)));
}

ParsedOr ParseByteLevel(const JsonView& json) {
  GANTRY_ASSIGN_OR_RETURN(const bool add_prefix_space, json.FlagOr("add_prefix_space", true));
  GANTRY_ASSIGN_OR_RETURN(const bool use_regex, json.FlagOr("use_regex", true));
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  if (add_prefix_space) steps.push_back(std::make_unique<PrefixSpace>());
  if (use_regex) {
    GANTRY_ASSIGN_OR_RETURN(auto regex, Regex::Create(kGpt2Pattern));
    steps.push_back(std::make_unique<RegexSplit>(std::move(regex), SplitBehavior::kIsolated,
                                                 PartList::Sense::kMatches));
  }
  return ParsedPreTokenizer{.steps = std::make_unique<PreTokenizerSequence>(std::move(steps)),
                            .is_byte_level = true};
}

ParsedOr ParseSplit(const JsonView& json) {
  GANTRY_ASSIGN_OR_RETURN(const SplitBehavior behavior, RequiredSplitBehavior(json));
  GANTRY_ASSIGN_OR_RETURN(const bool invert, json.FlagOr("invert", false));
  const PartList::Sense sense = invert ? PartList::Sense::kGaps : PartList::Sense::kMatches;
  GANTRY_ASSIGN_OR_RETURN(const JsonView pattern, json.Member("pattern"));
  if (const auto text = pattern.Find("String"); text.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(std::string delimiter, text->Text());
    if (delimiter.empty()) return text->Error("it must not be empty");
    return Of(std::make_unique<TextSplit>(std::move(delimiter), behavior, sense));
  }
  GANTRY_ASSIGN_OR_RETURN(const JsonView field, pattern.Member("Regex"));
  GANTRY_ASSIGN_OR_RETURN(const std::string expression, field.Text());
  absl::StatusOr<std::unique_ptr<Regex>> regex = Regex::Create(expression);
  if (!regex.ok()) return field.Error(FromAbsl(regex.status().message()));
  return Of(std::make_unique<RegexSplit>(*std::move(regex), behavior, sense));
}

ParsedOr ParseMetaspace(const JsonView& json) {
  GANTRY_ASSIGN_OR_RETURN(const std::string replacement, json.TextOr("replacement", "▁"));
  if (replacement.empty() || CharacterAt(replacement, 0).size != replacement.size()) {
    return json.Error("its replacement must be one character");
  }
  GANTRY_ASSIGN_OR_RETURN(const std::string name, json.TextOr("prepend_scheme", "always"));
  GANTRY_ASSIGN_OR_RETURN(const bool adds_prefix, json.FlagOr("add_prefix_space", name != "never"));
  if (name != "always" && name != "first" && name != "never") {
    return json.Error("its prepend_scheme must be always, first or never");
  }
  if (adds_prefix != (name != "never")) {
    return json.Error("its add_prefix_space does not match its prepend_scheme");
  }
  GANTRY_ASSIGN_OR_RETURN(const bool splits, json.FlagOr("split", true));
  const PrependScheme scheme = name == "always"  ? PrependScheme::kAlways
                               : name == "first" ? PrependScheme::kFirst
                                                 : PrependScheme::kNever;
  auto metaspace = std::make_unique<Metaspace>(replacement, scheme);
  ParsedOr parsed =
      splits ? Two(std::move(metaspace),
                   std::make_unique<TextSplit>(replacement, SplitBehavior::kMergedWithNext,
                                               PartList::Sense::kMatches))
             : Of(std::move(metaspace));
  parsed->needs_origins = scheme == PrependScheme::kFirst;
  return parsed;
}

ParsedOr ParseSequence(const JsonView& json) {
  GANTRY_ASSIGN_OR_RETURN(const JsonView list, json.Member("pretokenizers"));
  GANTRY_RETURN_IF_ERROR(list.ExpectList());
  ParsedPreTokenizer sequence;
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  for (size_t i = 0; i < list.value().size(); ++i) {
    if (sequence.is_byte_level) {
      return list.At(i).Error("nothing is supported after ByteLevel");
    }
    GANTRY_ASSIGN_OR_RETURN(ParsedPreTokenizer parsed, ParsePreTokenizer(list.At(i)));
    steps.push_back(std::move(parsed.steps));
    sequence.is_byte_level = parsed.is_byte_level;
    sequence.needs_origins = sequence.needs_origins || parsed.needs_origins;
  }
  sequence.steps = std::make_unique<PreTokenizerSequence>(std::move(steps));
  return sequence;
}

}  // namespace

ParsedOr ParsePreTokenizer(const JsonView& json) {
  GANTRY_ASSIGN_OR_RETURN(const std::string type, json.Type());
  if (type == "Sequence") return ParseSequence(json);
  if (type == "ByteLevel") return ParseByteLevel(json);
  if (type == "Split") return ParseSplit(json);
  if (type == "Metaspace") return ParseMetaspace(json);
  if (type == "Whitespace") return Of(std::make_unique<WordSplit>());
  if (type == "WhitespaceSplit") {
    return Of(std::make_unique<CharacterSplit>(&IsWhitespace, SplitBehavior::kRemoved));
  }
  if (type == "Digits") {
    GANTRY_ASSIGN_OR_RETURN(const bool individual, json.FlagOr("individual_digits", false));
    return Of(std::make_unique<CharacterSplit>(
        &IsNumeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  }
  if (type == "Punctuation") {
    GANTRY_ASSIGN_OR_RETURN(const SplitBehavior behavior,
                            SplitBehaviorOr(json, SplitBehavior::kIsolated));
    return Of(std::make_unique<CharacterSplit>(&IsPunctuation, behavior));
  }
  if (type == "BertPreTokenizer") {
    return Two(std::make_unique<CharacterSplit>(&IsWhitespace, SplitBehavior::kRemoved),
               std::make_unique<CharacterSplit>(&IsPunctuation, SplitBehavior::kIsolated));
  }
  return json.Error(StrCat("the pre-tokenizer '", type,
                           "' is not supported; these are: ByteLevel, Split, Digits, Metaspace, "
                           "Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, Sequence"));
}

}  // namespace gantry
