#include "trainer/chat_template/loop_object.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"

namespace gantry {

// loop.cycle and loop.changed.
class LoopObject::Method final : public Callable {
 public:
  Method(LoopObject& loop, bool changed) : loop_(loop), changed_(changed) {}
  absl::StatusOr<std::string> Describe(Budget&) override { return "<bound method of LoopContext>"; }
  absl::StatusOr<Value> Call(RenderState&, const Arguments& arguments) override {
    if (!arguments.named.empty()) return InvalidArgument("no keyword arguments are taken here");
    return changed_ ? loop_.Changed(arguments) : loop_.Cycle(arguments);
  }

 private:
  LoopObject& loop_;
  const bool changed_;
};

LoopObject::LoopObject(RenderState& state, Options options)
    : state_(state), options_(std::move(options)), length_(options_.length) {}

absl::StatusOr<std::optional<Value>> LoopObject::Next() {
  std::optional<Value> next;
  if (!ahead_.empty()) {
    next = std::move(ahead_.back());
    ahead_.pop_back();
  } else if (!ended_) {
    GANTRY_ASSIGN_OR_RETURN(next, options_.iterator->Next());
  }
  if (!next.has_value()) {
    ended_ = true;
    return next;
  }
  ++index_;
  before_ = std::exchange(current_, next);
  return next;
}

absl::StatusOr<std::optional<Value>> LoopObject::Peek() {
  if (ahead_.empty() && !ended_) {
    GANTRY_ASSIGN_OR_RETURN(std::optional<Value> next, options_.iterator->Next());
    if (next.has_value()) {
      ahead_.push_back(*std::move(next));
    } else {
      ended_ = true;
    }
  }
  return ahead_.empty() ? std::optional<Value>() : ahead_.back();
}

absl::StatusOr<int64_t> LoopObject::CountItems() {
  if (length_.has_value()) return *length_;
  std::vector<Value> rest(ahead_.rbegin(), ahead_.rend());
  while (!ended_) {
    GANTRY_ASSIGN_OR_RETURN(std::optional<Value> next, options_.iterator->Next());
    ended_ = !next.has_value();
    if (next.has_value()) rest.push_back(*std::move(next));
  }
  ahead_.assign(rest.rbegin(), rest.rend());
  length_ = index_ + 1 + static_cast<int64_t>(ahead_.size());
  return *length_;
}

absl::StatusOr<std::optional<int64_t>> LoopObject::Length() {
  GANTRY_ASSIGN_OR_RETURN(const int64_t count, CountItems());
  return std::optional<int64_t>(count);
}

absl::StatusOr<std::optional<Value>> LoopObject::Attribute(std::string_view name) {
  if (name == "index") return Value::Integer(index_ + 1);
  if (name == "index0") return Value::Integer(index_);
  if (name == "first") return Value::Bool(index_ == 0);
  if (name == "depth") return Value::Integer(options_.depth + 1);
  if (name == "depth0") return Value::Integer(options_.depth);
  if (name == "length" || name == "revindex" || name == "revindex0") {
    GANTRY_ASSIGN_OR_RETURN(const int64_t count, CountItems());
    return Value::Integer(name == "length"     ? count
                          : name == "revindex" ? count - index_
                                               : count - index_ - 1);
  }
  if (name == "last") {
    GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> next, Peek());
    return Value::Bool(!next.has_value());
  }
  if (name == "nextitem") {
    GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> next, Peek());
    return next.has_value() ? *next : Value::Undefined("there is no next item");
  }
  if (name == "previtem") {
    return before_.has_value() ? *before_ : Value::Undefined("there is no previous item");
  }
  if (name == "cycle" || name == "changed") {
    GANTRY_RETURN_IF_ERROR(state_.budget().Spend(4));
    return Value::FromObject(state_.Make<Method>(*this, name == "changed"));
  }
  return std::optional<Value>();
}

absl::StatusOr<Value> LoopObject::Cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) return InvalidArgument("no items for cycling given");
  const auto count = static_cast<int64_t>(arguments.positional.size());
  return arguments.positional[static_cast<size_t>(index_ % count)];
}

absl::StatusOr<Value> LoopObject::Changed(const Arguments& arguments) {
  if (last_changed_.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(
        const bool equal,
        Equal(Value::Tuple(*last_changed_), Value::Tuple(arguments.positional), state_.budget()));
    if (equal) return Value::Bool(false);
  }
  last_changed_ = arguments.positional;
  return Value::Bool(true);
}

absl::StatusOr<Value> LoopObject::Call(RenderState&, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "loop", .names = {"iterable"}, .required = 1}));
  if (!options_.recurse) {
    return InvalidArgument("only a loop with the 'recursive' marker can be called");
  }
  return options_.recurse(bound[0], options_.depth + 1);
}

}  // namespace gantry
