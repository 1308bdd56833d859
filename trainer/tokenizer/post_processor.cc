#include "trainer/tokenizer/post_processor.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/tokenizer/unicode.h"
#include "trainer/tokenizer/utf8.h"

namespace gantry {
namespace {

using PostProcessorOr = absl::StatusOr<std::unique_ptr<PostProcessor>>;

constexpr char32_t kSpaceOfBytes = 0x120;  // "Ġ"

bool IsSpace(char32_t character) { return character == kSpaceOfBytes || IsWhitespace(character); }

enum class PrefixSpace { kNone, kAdded };

// Takes the white space of the tokens out of their offsets, but not what was added before the
// first.
class OffsetTrimmer : public PostProcessor {
 public:
  explicit OffsetTrimmer(PrefixSpace prefix_space) : prefix_space_(prefix_space) {}

  bool TrimsOffsets() const override { return true; }
  void Apply(const Context& context, Encoding& encoding) const override {
    for (size_t i = 0; i < encoding.offsets.size(); ++i) {
      TokenSpaces spaces = context.spaces[i];
      TextRange& range = encoding.offsets[i];
      const bool is_first = i == 0 || range.begin == 0;
      if (is_first && prefix_space_ == PrefixSpace::kAdded && spaces.leading == 1) {
        spaces.leading = 0;
      }
      for (; spaces.leading > 0 && range.begin < range.end; --spaces.leading) {
        range.begin +=
            static_cast<int64_t>(CharacterAt(context.text, static_cast<size_t>(range.begin)).size);
      }
      if (spaces.trailing > 0) TrimEnd(context.text, spaces.trailing, range);
    }
  }

 private:
  static void TrimEnd(std::string_view text, int32_t spaces, TextRange& range) {
    auto end = static_cast<size_t>(range.end);
    for (; spaces > 0; --spaces) {
      if (end == 0) return;  // more than there is: nothing is taken
      end = PreviousCharacter(text, end);
    }
    range.end = std::max(static_cast<int64_t>(end), range.begin);
  }

  const PrefixSpace prefix_space_;
};

class NoProcessing : public PostProcessor {
 public:
  bool TrimsOffsets() const override { return false; }
  void Apply(const Context&, Encoding&) const override {}
};

// Special tokens before, between and after copies of the text's tokens.
class Template : public PostProcessor {
 public:
  // The ids to add, or nothing for the text's tokens.
  using Part = std::optional<std::vector<int32_t>>;

  explicit Template(std::vector<Part> parts) : parts_(std::move(parts)) {}

  bool TrimsOffsets() const override { return false; }
  void Apply(const Context& context, Encoding& encoding) const override {
    Encoding result;
    std::vector<TokenSpaces> spaces;
    for (const Part& part : parts_) {
      if (!part.has_value()) {
        Append(encoding.ids, result.ids);
        Append(encoding.offsets, result.offsets);
        Append(context.spaces, spaces);
      } else if (context.options.add_special_tokens) {
        Append(*part, result.ids);
        if (context.options.want_offsets) result.offsets.resize(result.ids.size());
        spaces.resize(result.ids.size());
      }
    }
    encoding = std::move(result);
    context.spaces = std::move(spaces);
  }

 private:
  template <typename T>
  static void Append(const std::vector<T>& from, std::vector<T>& to) {
    to.insert(to.end(), from.begin(), from.end());
  }

  const std::vector<Part> parts_;
};

class PostProcessorSequence : public PostProcessor {
 public:
  explicit PostProcessorSequence(std::vector<std::unique_ptr<PostProcessor>> steps)
      : steps_(std::move(steps)) {}

  bool TrimsOffsets() const override {
    return std::any_of(steps_.begin(), steps_.end(),
                       [](const auto& step) { return step->TrimsOffsets(); });
  }
  void Apply(const Context& context, Encoding& encoding) const override {
    for (const auto& step : steps_) step->Apply(context, encoding);
  }

 private:
  const std::vector<std::unique_ptr<PostProcessor>> steps_;
};

class Parser {
 public:
  explicit Parser(int64_t ids_end) : ids_end_(ids_end) {}

  PostProcessorOr Run(const JsonView& json) const {
    GANTRY_ASSIGN_OR_RETURN(const std::string type, json.Type());
    if (type == "Sequence") return Sequence(json);
    if (type == "ByteLevel") return ByteLevel(json);
    if (type == "TemplateProcessing") return TemplateProcessing(json);
    if (type == "BertProcessing" || type == "RobertaProcessing") return Frame(json, type);
    return json.Error(StrCat("the post-processor '", type,
                             "' is not supported; these are: ByteLevel, TemplateProcessing, "
                             "BertProcessing, RobertaProcessing, Sequence"));
  }

 private:
  PostProcessorOr Sequence(const JsonView& json) const {
    GANTRY_ASSIGN_OR_RETURN(const JsonView list, json.Member("processors"));
    GANTRY_RETURN_IF_ERROR(list.ExpectList());
    std::vector<std::unique_ptr<PostProcessor>> steps;
    for (size_t i = 0; i < list.value().size(); ++i) {
      GANTRY_ASSIGN_OR_RETURN(auto step, Run(list.At(i)));
      steps.push_back(std::move(step));
    }
    return std::make_unique<PostProcessorSequence>(std::move(steps));
  }

  PostProcessorOr ByteLevel(const JsonView& json) const {
    GANTRY_ASSIGN_OR_RETURN(const bool trims, json.FlagOr("trim_offsets", true));
    GANTRY_ASSIGN_OR_RETURN(const bool adds, json.FlagOr("add_prefix_space", true));
    if (!trims) return std::make_unique<NoProcessing>();
    return std::make_unique<OffsetTrimmer>(adds ? PrefixSpace::kAdded : PrefixSpace::kNone);
  }

  absl::StatusOr<int32_t> Id(const JsonView& json) const {
    GANTRY_ASSIGN_OR_RETURN(const int64_t id, json.Integer(0, ids_end_ - 1));
    return static_cast<int32_t>(id);
  }

  PostProcessorOr TemplateProcessing(const JsonView& json) const {
    GANTRY_ASSIGN_OR_RETURN(const JsonView list, json.Member("single"));
    GANTRY_RETURN_IF_ERROR(list.ExpectList());
    std::vector<Template::Part> parts;
    for (size_t i = 0; i < list.value().size(); ++i) {
      const JsonView entry = list.At(i);
      if (const auto sequence = entry.Find("Sequence"); sequence.has_value()) {
        GANTRY_ASSIGN_OR_RETURN(const JsonView id, sequence->Member("id"));
        GANTRY_ASSIGN_OR_RETURN(const std::string name, id.Text());
        if (name != "A") return id.Error("a template for one text can hold only A");
        parts.emplace_back(std::nullopt);
        continue;
      }
      GANTRY_ASSIGN_OR_RETURN(const JsonView special, entry.Member("SpecialToken"));
      GANTRY_ASSIGN_OR_RETURN(const JsonView id, special.Member("id"));
      GANTRY_ASSIGN_OR_RETURN(const std::string name, id.Text());
      GANTRY_ASSIGN_OR_RETURN(const JsonView tokens, json.Member("special_tokens"));
      GANTRY_ASSIGN_OR_RETURN(const JsonView token, tokens.Member(name));
      GANTRY_ASSIGN_OR_RETURN(const JsonView ids, token.Member("ids"));
      GANTRY_RETURN_IF_ERROR(ids.ExpectList());
      std::vector<int32_t> added;
      for (size_t k = 0; k < ids.value().size(); ++k) {
        GANTRY_ASSIGN_OR_RETURN(const int32_t number, Id(ids.At(k)));
        added.push_back(number);
      }
      parts.emplace_back(std::move(added));
    }
    return std::make_unique<Template>(std::move(parts));
  }

  // ["</s>", 2]
  absl::StatusOr<std::vector<int32_t>> TokenPair(const JsonView& json, std::string_view key) const {
    GANTRY_ASSIGN_OR_RETURN(const JsonView pair, json.Member(key));
    GANTRY_RETURN_IF_ERROR(pair.ExpectList());
    if (pair.value().size() != 2) return pair.Error("it must be a token and its id");
    GANTRY_ASSIGN_OR_RETURN(const int32_t id, Id(pair.At(1)));
    return std::vector<int32_t>{id};
  }

  PostProcessorOr Frame(const JsonView& json, std::string_view type) const {
    GANTRY_ASSIGN_OR_RETURN(std::vector<int32_t> before, TokenPair(json, "cls"));
    GANTRY_ASSIGN_OR_RETURN(std::vector<int32_t> after, TokenPair(json, "sep"));
    std::vector<std::unique_ptr<PostProcessor>> steps;
    if (type == "RobertaProcessing") {
      GANTRY_ASSIGN_OR_RETURN(auto trimmer, ByteLevel(json));
      steps.push_back(std::move(trimmer));
    }
    std::vector<Template::Part> parts;
    parts.emplace_back(std::move(before));
    parts.emplace_back(std::nullopt);
    parts.emplace_back(std::move(after));
    steps.push_back(std::make_unique<Template>(std::move(parts)));
    return std::make_unique<PostProcessorSequence>(std::move(steps));
  }

  const int64_t ids_end_;
};

}  // namespace

TokenSpaces SpacesOf(std::string_view token) {
  TokenSpaces spaces;
  for (size_t at = 0; at < token.size();) {
    const Utf8Character character = CharacterAt(token, at);
    if (!IsSpace(character.value)) break;
    ++spaces.leading;
    at += character.size;
  }
  for (size_t at = token.size(); at > 0;) {
    at = PreviousCharacter(token, at);
    if (!IsSpace(CharacterAt(token, at).value)) break;
    ++spaces.trailing;
  }
  return spaces;
}

PostProcessorOr ParsePostProcessor(const JsonView& json, int64_t ids_end) {
  return Parser(ids_end).Run(json);
}

}  // namespace gantry
