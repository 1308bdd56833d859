// One example of a data set: a line of JSON.
//
//   {"messages": [{"role": "user", "content": "Hi"}, ...], "tools": [...]}
//   [{"role": "user", "content": "Hi"}, ...]                         the messages alone
//   {"messages": [{"from": "human", "content": "Hi"}, ...]}          as Colossal-AI writes them
//   {"conversations": [{"from": "human", "value": "Hi"}, ...]}       as ShareGPT does
//   {"prompt": "1+1=", "completion": "2"}
//   {"text": "Once upon a time ..."}
//
// human, gpt and bot, observation and function_call become user, assistant, tool and assistant.
// "chat_template_kwargs" beside messages are further variables of the template. Other keys beside
// these are ignored; a message keeps all of its keys.
#ifndef GANTRY_TRAINER_DATA_EXAMPLE_H_
#define GANTRY_TRAINER_DATA_EXAMPLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/chat_template/value.h"

namespace gantry {

struct Example {
  enum class Kind : uint8_t { kMessages, kPromptCompletion, kText };
  Kind kind = Kind::kText;
  // A list of dicts with "role"; keys whose value is null are left out, and what a model thought is
  // under "reasoning_content" and "thinking", whichever of them or "reasoning" the line has: so
  // transformers hands messages to a template.
  Value messages = {};
  std::optional<Value> tools = {};  // a list
  Value::Entries variables = {};    // for the template
  std::string prompt = {};
  std::string completion = {};
  std::string text = {};
};

// Errors: kInvalidArgument saying what is wrong and where in the line, without file and number.
absl::StatusOr<Example> ParseExample(std::string_view line);

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_EXAMPLE_H_
