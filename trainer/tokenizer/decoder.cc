#include "trainer/tokenizer/decoder.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/regex.h"
#include "trainer/tokenizer/utf8.h"

namespace gantry {
namespace {

class Chain;

// Where a stage puts the tokens for the next one.
class Output {
 public:
  Output(Chain& chain, size_t next, std::string& text) : chain_(chain), next_(next), text_(text) {}
  void Put(std::string_view token);

 private:
  Chain& chain_;
  const size_t next_;
  std::string& text_;
};

// One decoder at work. A stage whose input is fused gets one token in parts.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual void Next(std::string_view token, Output& out) = 0;
  virtual void Finish(Output&) {}
};

using MakeStage = std::function<std::unique_ptr<Stage>()>;

class Chain : public DecodeStream {
 public:
  explicit Chain(const std::vector<MakeStage>& stages) {
    for (const MakeStage& make : stages) stages_.push_back(make());
  }

  void Next(std::string_view token, std::string& out) override { PutTo(0, token, out); }
  void Finish(std::string& out) override {
    for (size_t i = 0; i < stages_.size(); ++i) {
      Output next(*this, i + 1, out);
      stages_[i]->Finish(next);
    }
  }

  void PutTo(size_t stage, std::string_view token, std::string& out) {
    if (stage == stages_.size()) {
      out.append(token);
      return;
    }
    Output next(*this, stage + 1, out);
    stages_[stage]->Next(token, next);
  }

 private:
  std::vector<std::unique_ptr<Stage>> stages_;
};

void Output::Put(std::string_view token) { chain_.PutTo(next_, token, text_); }

class ChainDecoder : public Decoder {
 public:
  explicit ChainDecoder(std::vector<MakeStage> stages) : stages_(std::move(stages)) {}
  std::unique_ptr<DecodeStream> Begin() const override { return std::make_unique<Chain>(stages_); }

 private:
  const std::vector<MakeStage> stages_;
};

class Spacing : public Stage {
 public:
  void Next(std::string_view token, Output& out) override {
    if (!is_first_) out.Put(" ");
    is_first_ = false;
    out.Put(token);
  }

 private:
  bool is_first_ = true;
};

class ByteLevelStage : public Stage {
 public:
  void Next(std::string_view token, Output& out) override {
    const std::optional<std::string> bytes = BytesOfText(token);
    pending_.append(bytes.has_value() ? *bytes : token);
    std::string text;
    std::string_view rest = pending_;
    while (true) {
      const size_t valid = ValidUtf8Size(rest);
      text.append(rest.substr(0, valid));
      rest.remove_prefix(valid);
      if (rest.empty() || IsUnfinishedUtf8(rest)) break;
      const size_t broken = BrokenUtf8Size(rest);
      AppendValidUtf8(rest.substr(0, broken), text);
      rest.remove_prefix(broken);
    }
    pending_.erase(0, pending_.size() - rest.size());
    if (!text.empty()) out.Put(text);
  }
  void Finish(Output& out) override {
    std::string text;
    AppendValidUtf8(pending_, text);
    pending_.clear();
    if (!text.empty()) out.Put(text);
  }

 private:
  std::string pending_;  // the beginning of a character
};

class ByteFallbackStage : public Stage {
 public:
  void Next(std::string_view token, Output& out) override {
    if (const std::optional<char> byte = ByteOf(token); byte.has_value()) {
      pending_.push_back(*byte);
      return;
    }
    Finish(out);
    out.Put(token);
  }
  // A run of bytes is a text, or none of it is.
  void Finish(Output& out) override {
    if (pending_.empty()) return;
    if (ValidUtf8Size(pending_) == pending_.size()) {
      out.Put(pending_);
    } else {
      for (size_t i = 0; i < pending_.size(); ++i) out.Put("\xEF\xBF\xBD");
    }
    pending_.clear();
  }

 private:
  static std::optional<unsigned> HexDigit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return std::nullopt;
  }
  // "<0x0A>"; the reference reads "+A" as a number too.
  static std::optional<char> ByteOf(std::string_view token) {
    if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return std::nullopt;
    const std::optional<unsigned> high = token[3] == '+' ? 0U : HexDigit(token[3]);
    const std::optional<unsigned> low = HexDigit(token[4]);
    if (!high.has_value() || !low.has_value()) return std::nullopt;
    return static_cast<char>(*high << 4 | *low);
  }

  std::string pending_;
};

class ReplaceTextStage : public Stage {
 public:
  ReplaceTextStage(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void Next(std::string_view token, Output& out) override {
    if (token.find(pattern_) == std::string_view::npos) {
      out.Put(token);
      return;
    }
    std::string text;
    size_t at = 0;
    for (size_t found = token.find(pattern_); found != std::string_view::npos;
         found = token.find(pattern_, at)) {
      text.append(token.substr(at, found - at)).append(content_);
      at = found + pattern_.size();
    }
    out.Put(text.append(token.substr(at)));
  }

 private:
  const std::string pattern_;
  const std::string content_;
};

class ReplaceRegexStage : public Stage {
 public:
  ReplaceRegexStage(std::shared_ptr<const Regex> regex, std::string content)
      : regex_(std::move(regex)), content_(std::move(content)) {}

  void Next(std::string_view token, Output& out) override {
    std::string text;
    size_t at = 0;
    const absl::Status status = regex_->ForEachMatch(token, scratch_, [&](Regex::Match match) {
      text.append(token.substr(at, match.begin - at)).append(content_);
      at = match.end;
    });
    // A token that the expression gives up on stays as it is.
    out.Put(status.ok() ? std::string_view(text.append(token.substr(at))) : token);
  }

 private:
  const std::shared_ptr<const Regex> regex_;  // with the decoder
  const std::string content_;
  RegexScratch scratch_;
};

class MetaspaceStage : public Stage {
 public:
  // What becomes of the mark in the first token; a fused input is one token.
  enum class First { kSpace, kNothing };
  enum class Input { kTokens, kFused };
  MetaspaceStage(std::string mark, First first, Input input)
      : mark_(std::move(mark)), input_(input), drops_(first == First::kNothing) {}

  void Next(std::string_view token, Output& out) override {
    std::string text;
    size_t at = 0;
    for (size_t found = token.find(mark_); found != std::string_view::npos;
         found = token.find(mark_, at)) {
      text.append(token.substr(at, found - at));
      if (!drops_) text.push_back(' ');
      at = found + mark_.size();
    }
    text.append(token.substr(at));
    if (input_ == Input::kTokens) drops_ = false;
    out.Put(text);
  }

 private:
  const std::string mark_;
  const Input input_;
  bool drops_;
};

struct StripLimits {
  std::string character;
  int64_t at_start = 0;
  int64_t at_end = 0;
};

// One token, which may come in parts.
class FusedStripStage : public Stage {
 public:
  explicit FusedStripStage(StripLimits limits)
      : limits_(std::move(limits)), start_left_(limits_.at_start) {}

  void Next(std::string_view token, Output& out) override {
    std::string text;
    for (size_t at = 0; at < token.size();) {
      const size_t size = CharacterAt(token, at).size;
      const std::string_view character = token.substr(at, size);
      at += size;
      if (character != limits_.character) {
        start_left_ = 0;
        for (; held_ > 0; --held_) text.append(limits_.character);
        text.append(character);
      } else if (start_left_ > 0) {
        --start_left_;
      } else if (held_ < limits_.at_end) {
        ++held_;  // until it is known whether it is at the end
      } else {
        text.append(character);
      }
    }
    if (!text.empty()) out.Put(text);
  }
  void Finish(Output&) override { held_ = 0; }

 private:
  const StripLimits limits_;
  int64_t start_left_;
  int64_t held_ = 0;
};

// Each token by itself.
class StripStage : public Stage {
 public:
  explicit StripStage(StripLimits limits) : limits_(std::move(limits)) {}

  void Next(std::string_view token, Output& out) override {
    FusedStripStage strip(limits_);
    strip.Next(token, out);
  }

 private:
  const StripLimits limits_;
};

// Gives a stage the whole of a fused token at once.
class Gathering : public Stage {
 public:
  explicit Gathering(std::unique_ptr<Stage> stage) : stage_(std::move(stage)) {}

  void Next(std::string_view token, Output&) override { whole_.append(token); }
  void Finish(Output& out) override {
    stage_->Next(whole_, out);
    stage_->Finish(out);
  }

 private:
  const std::unique_ptr<Stage> stage_;
  std::string whole_;
};

class DecoderParser {
 public:
  absl::StatusOr<std::unique_ptr<Decoder>> Run(const JsonView& json) {
    GANTRY_RETURN_IF_ERROR(Add(json));
    return std::make_unique<ChainDecoder>(std::move(stages_));
  }

 private:
  absl::Status Add(const JsonView& json) {
    GANTRY_ASSIGN_OR_RETURN(const std::string type, json.Type());
    if (type == "Sequence") return AddSequence(json);
    if (type == "ByteLevel") {
      AddGathered([] { return std::make_unique<ByteLevelStage>(); });
      is_fused_ = true;
      return absl::OkStatus();
    }
    if (type == "ByteFallback") {
      AddGathered([] { return std::make_unique<ByteFallbackStage>(); });
      is_fused_ = false;
      return absl::OkStatus();
    }
    if (type == "Fuse") {
      is_fused_ = true;
      return absl::OkStatus();
    }
    if (type == "Replace") return AddReplace(json);
    if (type == "Metaspace") return AddMetaspace(json);
    if (type == "Strip") return AddStrip(json);
    return json.Error(StrCat("the decoder '", type,
                             "' is not supported; these are: ByteLevel, ByteFallback, Fuse, "
                             "Metaspace, Replace, Strip, Sequence"));
  }

  // For stages that need their whole input, where it is fused.
  template <typename Make>
  void AddGathered(Make make) {
    const bool is_fused = is_fused_;
    stages_.push_back([make, is_fused]() -> std::unique_ptr<Stage> {
      if (is_fused) return std::make_unique<Gathering>(make());
      return make();
    });
  }

  absl::Status AddSequence(const JsonView& json) {
    GANTRY_ASSIGN_OR_RETURN(const JsonView list, json.Member("decoders"));
    GANTRY_RETURN_IF_ERROR(list.ExpectList());
    for (size_t i = 0; i < list.value().size(); ++i) GANTRY_RETURN_IF_ERROR(Add(list.At(i)));
    return absl::OkStatus();
  }

  absl::Status AddReplace(const JsonView& json) {
    GANTRY_ASSIGN_OR_RETURN(const JsonView content_field, json.Member("content"));
    GANTRY_ASSIGN_OR_RETURN(const std::string content, content_field.Text());
    GANTRY_ASSIGN_OR_RETURN(const JsonView pattern, json.Member("pattern"));
    if (const auto field = pattern.Find("String"); field.has_value()) {
      GANTRY_ASSIGN_OR_RETURN(const std::string text, field->Text());
      if (text.empty()) return field->Error("it must not be empty");
      AddGathered([text, content] { return std::make_unique<ReplaceTextStage>(text, content); });
      return absl::OkStatus();
    }
    GANTRY_ASSIGN_OR_RETURN(const JsonView field, pattern.Member("Regex"));
    GANTRY_ASSIGN_OR_RETURN(const std::string expression, field.Text());
    absl::StatusOr<std::unique_ptr<Regex>> regex = Regex::Create(expression);
    if (!regex.ok()) return field.Error(FromAbsl(regex.status().message()));
    const std::shared_ptr<const Regex> shared = *std::move(regex);
    AddGathered([shared, content] { return std::make_unique<ReplaceRegexStage>(shared, content); });
    return absl::OkStatus();
  }

  absl::Status AddMetaspace(const JsonView& json) {
    GANTRY_ASSIGN_OR_RETURN(const std::string mark, json.TextOr("replacement", "▁"));
    if (mark.empty() || CharacterAt(mark, 0).size != mark.size()) {
      return json.Error("its replacement must be one character");
    }
    GANTRY_ASSIGN_OR_RETURN(const std::string scheme, json.TextOr("prepend_scheme", "always"));
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      return json.Error("its prepend_scheme must be always, first or never");
    }
    const auto first =
        scheme == "never" ? MetaspaceStage::First::kSpace : MetaspaceStage::First::kNothing;
    const auto input = is_fused_ ? MetaspaceStage::Input::kFused : MetaspaceStage::Input::kTokens;
    stages_.push_back([=] { return std::make_unique<MetaspaceStage>(mark, first, input); });
    return absl::OkStatus();
  }

  absl::Status AddStrip(const JsonView& json) {
    constexpr int64_t kCharactersMax = 1'000'000;
    StripLimits limits;
    GANTRY_ASSIGN_OR_RETURN(const JsonView content, json.Member("content"));
    GANTRY_ASSIGN_OR_RETURN(limits.character, content.Text());
    if (limits.character.empty() ||
        CharacterAt(limits.character, 0).size != limits.character.size()) {
      return content.Error("it must be one character");
    }
    GANTRY_ASSIGN_OR_RETURN(const JsonView start, json.Member("start"));
    GANTRY_ASSIGN_OR_RETURN(limits.at_start, start.Integer(0, kCharactersMax));
    GANTRY_ASSIGN_OR_RETURN(const JsonView stop, json.Member("stop"));
    GANTRY_ASSIGN_OR_RETURN(limits.at_end, stop.Integer(0, kCharactersMax));
    const bool is_fused = is_fused_;
    stages_.push_back([limits, is_fused]() -> std::unique_ptr<Stage> {
      if (is_fused) return std::make_unique<FusedStripStage>(limits);
      return std::make_unique<StripStage>(limits);
    });
    return absl::OkStatus();
  }

  std::vector<MakeStage> stages_;
  bool is_fused_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Decoder>> ParseDecoder(const JsonView& json) {
  return DecoderParser().Run(json);
}

std::unique_ptr<Decoder> SpacingDecoder() {
  std::vector<MakeStage> stages;
  stages.push_back([] { return std::make_unique<Spacing>(); });
  return std::make_unique<ChainDecoder>(std::move(stages));
}

}  // namespace gantry
