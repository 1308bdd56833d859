// A template that is taken ends within its limits, and renders to the same again.
#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/chat_template/chat_template.h"
#include "trainer/chat_template/json_text.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"

namespace gantry {
namespace {

constexpr std::string_view kVariables = R"({
  "messages": [{"role": "system", "content": " Be é. "},
               {"role": "user", "content": "a\nb <c>"},
               {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "x": [1, 2.5]}]}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": null}}}],
  "bos_token": "<s>", "n": 3, "words": ["b", "A", ""]})";

}  // namespace

bool Fuzz(std::string_view text) {
  const absl::StatusOr<ChatTemplate> chat = ChatTemplate::Compile(text);
  if (!chat.ok()) return false;
  const Value variables = ParseJson(kVariables).value();
  ChatInput input{.messages = *FindText(variables.entries(), "messages"),
                  .tools = *FindText(variables.entries(), "tools"),
                  .add_generation_prompt = true,
                  .variables = variables.entries(),
                  .limits = {.steps = 20'000, .text_bytes = 1 << 16}};
  const absl::StatusOr<RenderedChat> rendered = chat->Render(input);
  const absl::StatusOr<RenderedChat> again = chat->Render(input);
  GANTRY_CHECK(rendered.ok() == again.ok());
  if (!rendered.ok()) return true;
  GANTRY_CHECK(rendered->text == again->text) << rendered->text;
  size_t end = 0;
  for (const ByteSpan& span : rendered->generations) {
    GANTRY_CHECK(span.begin <= span.end && span.end <= rendered->text.size());
    GANTRY_CHECK(span.begin >= end || span.end >= end);
    end = span.end;
  }
  return true;
}

}  // namespace gantry
