// What `loop` is within a for loop.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_LOOP_OBJECT_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_LOOP_OBJECT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"

namespace gantry {

// Walks over the items of a loop, and knows about it. It reads ahead only when asked for what lies
// ahead (last, nextitem, length of what has none). Thread-compatible.
class LoopObject final : public Callable {
 public:
  // Renders the loop's body for other items, one level deeper: what loop(items) does.
  using Recurse = std::function<absl::StatusOr<Value>(const Value& items, int64_t depth)>;

  struct Options {
    std::shared_ptr<ValueIterator> iterator;
    std::optional<int64_t> length;  // where it is known
    Recurse recurse;                // empty: the loop is not recursive
    int64_t depth;                  // 0 for the outermost
  };
  LoopObject(RenderState& state, Options options);

  // Moves to the next item, or ends.
  absl::StatusOr<std::optional<Value>> Next();

  std::string_view type_name() const override { return "LoopContext"; }
  absl::StatusOr<std::string> Describe(Budget&) override { return "<LoopContext>"; }
  absl::StatusOr<std::optional<Value>> Attribute(std::string_view name) override;
  absl::StatusOr<std::optional<int64_t>> Length() override;
  absl::StatusOr<Value> Call(RenderState& state, const Arguments& arguments) override;

 private:
  class Method;
  absl::StatusOr<Value> Cycle(const Arguments& arguments) const;
  absl::StatusOr<Value> Changed(const Arguments& arguments);
  absl::StatusOr<int64_t> CountItems();
  absl::StatusOr<std::optional<Value>> Peek();

  RenderState& state_;
  const Options options_;
  int64_t index_ = -1;  // from 0
  std::optional<int64_t> length_;
  std::optional<Value> before_;
  std::optional<Value> current_;
  std::vector<Value> ahead_;  // read already, nearest last
  bool ended_ = false;        // nothing lies behind `ahead_`
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_LOOP_OBJECT_H_
