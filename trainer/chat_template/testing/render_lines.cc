// Renders templates for testdata/compare_with_jinja.py: reads lines of JSON, each with "template"
// and "variables", and writes for each {"ok": true, "text": ..., "spans": ...} or
// {"ok": false, "error": ...}.
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/json_text.h"
#include "trainer/chat_template/parser.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/renderer.h"
#include "trainer/chat_template/syntax.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"

namespace gantry {
namespace {

constexpr Budget::Limits kLimits{.steps = 5'000'000, .text_bytes = 1 << 24};

absl::StatusOr<Renderer::Result> Render(const std::string& line) {
  GANTRY_ASSIGN_OR_RETURN(const Value request, ParseJson(line));
  const Value* source = FindText(request.entries(), "template");
  const Value* variables = FindText(request.entries(), "variables");
  if (source == nullptr || variables == nullptr) return InvalidArgument("no such request");
  GANTRY_ASSIGN_OR_RETURN(const TemplateSyntax syntax, ParseTemplate(source->string()));
  RenderState state(kLimits, {.year = 2026, .month = 12, .day = 1});
  return Renderer(syntax, state).Run(variables->entries());
}

Value Answer(const absl::StatusOr<Renderer::Result>& result) {
  Value::Entries entries;
  entries.emplace_back(Value::String("ok"), Value::Bool(result.ok()));
  if (!result.ok()) {
    entries.emplace_back(Value::String("error"),
                         Value::String(FromAbsl(result.status().message())));
    return Value::Dict(entries);
  }
  std::vector<Value> spans;
  for (const Renderer::Span& span : result->generations) {
    spans.push_back(Value::List({Value::Integer(static_cast<int64_t>(span.begin)),
                                 Value::Integer(static_cast<int64_t>(span.end))}));
  }
  entries.emplace_back(Value::String("text"), Value::String(result->text));
  entries.emplace_back(Value::String("spans"), Value::List(spans));
  return Value::Dict(entries);
}

}  // namespace
}  // namespace gantry

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    gantry::Budget budget(gantry::kLimits);
    const gantry::Value answer = gantry::Answer(gantry::Render(line));
    std::cout << gantry::WriteJson(answer, {}, budget).value_or("{\"ok\": false}") << std::endl;
  }
  return 0;
}
