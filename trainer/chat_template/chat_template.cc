#include "trainer/chat_template/chat_template.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/parser.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/renderer.h"
#include "trainer/chat_template/syntax.h"
#include "trainer/chat_template/value.h"

namespace gantry {
namespace {

constexpr size_t kSourceBytesMax = size_t{1} << 20;

absl::Status WithSubject(const absl::Status& status) {
  return MakeStatus(status.code(), "chat template, ", FromAbsl(status.message()));
}

Value OrNone(const std::optional<Value>& value) { return value.has_value() ? *value : Value(); }

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const TemplateSyntax> syntax)
    : syntax_(std::move(syntax)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<ChatTemplate> ChatTemplate::Compile(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return ResourceExhausted("chat template, of ", source.size(), " bytes; ", kSourceBytesMax,
                             " are allowed");
  }
  absl::StatusOr<TemplateSyntax> syntax = ParseTemplate(source);
  if (!syntax.ok()) return WithSubject(syntax.status());
  return ChatTemplate(std::make_unique<const TemplateSyntax>(*std::move(syntax)));
}

bool ChatTemplate::has_generation() const { return syntax_->has_generation; }

absl::StatusOr<RenderedChat> ChatTemplate::Render(const ChatInput& input) const {
  Value::Entries variables = input.variables;
  variables.emplace_back(Value::String("messages"), input.messages);
  variables.emplace_back(Value::String("tools"), OrNone(input.tools));
  variables.emplace_back(Value::String("documents"), OrNone(input.documents));
  variables.emplace_back(Value::String("add_generation_prompt"),
                         Value::Bool(input.add_generation_prompt));
  RenderState state({.steps = input.limits.steps, .text_bytes = input.limits.text_bytes},
                    input.now);
  Renderer renderer(*syntax_, state);
  absl::StatusOr<Renderer::Result> result = renderer.Run(variables);
  if (!result.ok()) return WithSubject(result.status());
  RenderedChat chat{.text = std::move(result->text),
                    .generations = {},
                    .generation_places_known = result->generation_places_known};
  for (const Renderer::Span& span : result->generations) {
    chat.generations.push_back({.begin = span.begin, .end = span.end});
  }
  return chat;
}

}  // namespace gantry
