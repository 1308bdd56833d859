// A line of a data set: what is taken holds messages with roles, or some text.
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"
#include "trainer/data/example.h"

namespace gantry {

bool Fuzz(std::string_view text) {
  const absl::StatusOr<Example> example = ParseExample(text);
  if (!example.ok()) return false;
  switch (example->kind) {
    case Example::Kind::kMessages:
      GANTRY_CHECK(!example->messages.items().empty());
      for (const Value& message : example->messages.items()) {
        const Value* role = FindText(message.entries(), "role");
        GANTRY_CHECK(role != nullptr && !role->string().empty());
      }
      break;
    case Example::Kind::kPromptCompletion:
      GANTRY_CHECK(!example->completion.empty());
      break;
    case Example::Kind::kText:
      GANTRY_CHECK(!example->text.empty());
      break;
  }
  return true;
}

}  // namespace gantry
