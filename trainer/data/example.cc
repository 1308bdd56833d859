#include "trainer/data/example.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/json_text.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

using Kind = Value::Kind;

constexpr size_t kMessagesMax = 100'000;
constexpr std::string_view kReasoningKeys[] = {"reasoning_content", "thinking", "reasoning"};

// What ShareGPT and Colossal-AI call them.
std::string_view RoleOf(std::string_view name) {
  if (name == "human") return "user";
  if (name == "gpt" || name == "bot") return "assistant";
  if (name == "function_call") return "assistant";
  if (name == "observation") return "tool";
  return name;
}

absl::StatusOr<std::string> TextAt(const Value& dict, std::string_view key) {
  const Value* found = FindText(dict.entries(), key);
  if (found == nullptr) return InvalidArgument("no \"", key, "\"");
  if (!found->Is(Kind::kString)) {
    return InvalidArgument("\"", key, "\" is no text, but ", TypeName(*found));
  }
  return found->string();
}

// The first of a message's names for what was thought.
const Value* ReasoningOf(const Value::Entries& entries) {
  for (const std::string_view key : kReasoningKeys) {
    const Value* found = FindText(entries, key);
    if (found != nullptr && !found->Is(Kind::kNone)) return found;
  }
  return nullptr;
}

void Set(Value::Entries& entries, std::string_view key, const Value& value) {
  for (auto& [known, old] : entries) {
    if (known.string() != key) continue;
    old = value;
    return;
  }
  entries.emplace_back(Value::String(key), value);
}

absl::StatusOr<Value> NormalizeMessage(const Value& message) {
  if (!message.Is(Kind::kDict)) return InvalidArgument("no object, but ", TypeName(message));
  const Value::Entries& given = message.entries();
  const bool from = FindText(given, "role") == nullptr && FindText(given, "from") != nullptr;
  const bool value = FindText(given, "content") == nullptr && FindText(given, "value") != nullptr;
  GANTRY_ASSIGN_OR_RETURN(const std::string name, TextAt(message, from ? "from" : "role"));
  const std::string_view role = from ? RoleOf(name) : std::string_view(name);
  if (role.empty()) return InvalidArgument("an empty role");
  Value::Entries entries;
  const Value* reasoning = ReasoningOf(given);
  if (reasoning != nullptr) Set(entries, "thinking", *reasoning);
  for (const auto& [key, item] : given) {
    if (item.Is(Kind::kNone)) continue;
    if (from && key.string() == "from") {
      Set(entries, "role", Value::String(role));
    } else if (value && key.string() == "value") {
      Set(entries, "content", item);
    } else {
      Set(entries, key.string(), item);
    }
  }
  if (reasoning != nullptr) Set(entries, "reasoning_content", *reasoning);
  const Value* content = FindText(entries, "content");
  if (content != nullptr && !content->Is(Kind::kString) && !content->Is(Kind::kList)) {
    return InvalidArgument("its content is neither a text nor a list of parts, but ",
                           TypeName(*content));
  }
  if (content == nullptr && FindText(entries, "tool_calls") == nullptr) {
    return InvalidArgument("neither content nor tool_calls");
  }
  return Value::Dict(std::move(entries));
}

absl::StatusOr<Value> NormalizeMessages(const Value& messages, std::string_view key) {
  if (!messages.Is(Kind::kList)) {
    return InvalidArgument("\"", key, "\" is no list, but ", TypeName(messages));
  }
  if (messages.items().empty()) return InvalidArgument("\"", key, "\" is empty");
  if (messages.items().size() > kMessagesMax) {
    return InvalidArgument("\"", key, "\" holds more than ", kMessagesMax, " messages");
  }
  std::vector<Value> normalized;
  for (size_t i = 0; i < messages.items().size(); ++i) {
    absl::StatusOr<Value> message = NormalizeMessage(messages.items()[i]);
    if (!message.ok()) {
      return InvalidArgument(key, "[", i, "]: ", FromAbsl(message.status().message()));
    }
    normalized.push_back(*std::move(message));
  }
  return Value::List(std::move(normalized));
}

absl::StatusOr<Example> Conversation(const Value& line, const Value& messages,
                                     std::string_view key) {
  Example example{.kind = Example::Kind::kMessages};
  GANTRY_ASSIGN_OR_RETURN(example.messages, NormalizeMessages(messages, key));
  if (!line.Is(Kind::kDict)) return example;
  const Value* tools = FindText(line.entries(), "tools");
  if (tools != nullptr && !tools->Is(Kind::kNone)) {
    if (!tools->Is(Kind::kList)) {
      return InvalidArgument("\"tools\" is no list, but ", TypeName(*tools));
    }
    // None of them are as good as none given.
    if (!tools->items().empty()) example.tools = *tools;
  }
  const Value* variables = FindText(line.entries(), "chat_template_kwargs");
  if (variables != nullptr && !variables->Is(Kind::kNone)) {
    if (!variables->Is(Kind::kDict)) {
      return InvalidArgument("\"chat_template_kwargs\" is no object, but ", TypeName(*variables));
    }
    example.variables = variables->entries();
  }
  return example;
}

}  // namespace

absl::StatusOr<Example> ParseExample(std::string_view line) {
  GANTRY_ASSIGN_OR_RETURN(const Value value, ParseJson(line));
  if (value.Is(Kind::kList)) return Conversation(value, value, "messages");
  if (!value.Is(Kind::kDict)) {
    return InvalidArgument("neither an object nor a list of messages, but ", TypeName(value));
  }
  const auto has = [&](std::string_view key) { return FindText(value.entries(), key) != nullptr; };
  const bool completion = has("prompt") && has("completion");
  const int kinds = (has("messages") ? 1 : 0) + (has("conversations") ? 1 : 0) +
                    (completion ? 1 : 0) + (has("text") ? 1 : 0);
  if (kinds != 1) {
    return InvalidArgument(kinds == 0 ? "none" : "more than one",
                           " of \"messages\", \"conversations\", \"prompt\" with \"completion\", "
                           "and \"text\"");
  }
  for (const std::string_view key : {"messages", "conversations"}) {
    if (has(key)) return Conversation(value, *FindText(value.entries(), key), key);
  }
  Example example;
  if (completion) {
    example.kind = Example::Kind::kPromptCompletion;
    GANTRY_ASSIGN_OR_RETURN(example.prompt, TextAt(value, "prompt"));
    GANTRY_ASSIGN_OR_RETURN(example.completion, TextAt(value, "completion"));
    if (example.completion.empty()) return InvalidArgument("\"completion\" is empty");
    return example;
  }
  GANTRY_ASSIGN_OR_RETURN(example.text, TextAt(value, "text"));
  if (example.text.empty()) return InvalidArgument("\"text\" is empty");
  return example;
}

}  // namespace gantry
