// Chat templates: the Jinja that models publish with their tokenizers, as transformers'
// apply_chat_template renders it, to the byte: trim_blocks and lstrip_blocks on, break and
// continue, {% generation %}, raise_exception, strftime_now, its tojson, and Jinja's sandbox.
//
//   GANTRY_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Compile(source));
//   GANTRY_ASSIGN_OR_RETURN(const RenderedChat rendered,
//                           chat.Render({.messages = messages, .variables = special_tokens}));
//
// What published templates do not use is left out and refused: extends, include, import, block,
// autoescape, do, and the filters groupby, pprint, random, striptags, urlencode, urlize, wordwrap,
// xmlattr, filesizeformat. An int has 64 bits.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_CHAT_TEMPLATE_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_CHAT_TEMPLATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/chat_template/civil_time.h"
#include "trainer/chat_template/value.h"

namespace gantry {

struct TemplateSyntax;

// What one render may use. The defaults are far above what conversations need.
struct RenderLimits {
  int64_t steps = 20'000'000;             // see Budget; a few seconds, and at most about 640 MB
  int64_t text_bytes = int64_t{1} << 26;  // of the output, and of any text on the way
};

struct ChatInput {
  Value messages = {};              // a list of dicts
  std::optional<Value> tools = {};  // likewise; none where the conversation has none
  std::optional<Value> documents = {};
  bool add_generation_prompt = false;
  CivilTime now = {};             // what strftime_now sees
  Value::Entries variables = {};  // more of them: bos_token, eos_token, enable_thinking, ...
  RenderLimits limits = {};
};

// Bytes begin .. end-1 of a text.
struct ByteSpan {
  size_t begin;
  size_t end;
};

struct RenderedChat {
  std::string text;
  // What {% generation %} blocks wrote, in order.
  std::vector<ByteSpan> generations;
  // False where one lay within a macro, a set or a filter block: then its place is not among them.
  bool generation_places_known = true;
};

// Immutable and thread-safe. Movable.
class ChatTemplate {
 public:
  // Source of at most 1 MiB. Errors: kInvalidArgument naming line and column; kResourceExhausted
  // for a longer one.
  static absl::StatusOr<ChatTemplate> Compile(std::string_view source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Errors: kInvalidArgument for what Python would raise and for what the template itself refuses
  // (raise_exception); kResourceExhausted beyond the limits, or 100 levels of lists, or 800 of
  // calls. Each names line and column.
  absl::StatusOr<RenderedChat> Render(const ChatInput& input) const;

  // Whether it marks what the model generates.
  bool has_generation() const;

 private:
  explicit ChatTemplate(std::unique_ptr<const TemplateSyntax> syntax);
  std::unique_ptr<const TemplateSyntax> syntax_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_CHAT_TEMPLATE_H_
