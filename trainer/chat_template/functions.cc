#include "trainer/chat_template/functions.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
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
#include "trainer/chat_template/civil_time.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

using Kind = Value::Kind;
constexpr int64_t kRangeEndMax = 1'000'000'000'000'000;  // what a slice of it computes fits
constexpr std::string_view kNamespaceType = "Namespace";

absl::StatusOr<Value> Range(RenderState&, const Arguments& arguments) {
  const size_t count = arguments.positional.size();
  if (!arguments.named.empty()) return InvalidArgument("range() takes no keyword arguments");
  if (count < 1 || count > 3) return InvalidArgument("range() takes 1 to 3 arguments, not ", count);
  std::array<int64_t, 3> numbers = {0, 0, 1};
  for (size_t i = 0; i < count; ++i) {
    GANTRY_ASSIGN_OR_RETURN(numbers[i], IntegerOf(arguments.positional[i]));
    if (numbers[i] < -kRangeEndMax || numbers[i] > kRangeEndMax) {
      return ResourceExhausted("a range with a number beyond ", kRangeEndMax);
    }
  }
  const RangeData range =
      count == 1 ? RangeData{0, numbers[0], 1} : RangeData{numbers[0], numbers[1], numbers[2]};
  if (range.step == 0) return InvalidArgument("range() arg 3 must not be zero");
  if (range.size() > kRangeMax) {
    return ResourceExhausted("a range of ", range.size(), " numbers; ", kRangeMax, " are allowed");
  }
  return Value::Range(range);
}

// dict(mapping or pairs, name=value, ...) as entries.
absl::StatusOr<Value::Entries> DictEntries(RenderState& state, std::string_view function,
                                           const Arguments& arguments) {
  Value::Entries entries;
  if (arguments.positional.size() > 1) {
    return InvalidArgument(function, "() takes at most 1 positional argument");
  }
  if (!arguments.positional.empty() && arguments.positional[0].Is(Kind::kDict)) {
    entries = arguments.positional[0].entries();
    GANTRY_RETURN_IF_ERROR(state.budget().SpendItems(entries.size()));
  } else if (!arguments.positional.empty()) {
    GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> pairs,
                            ToItems(arguments.positional[0], state.budget()));
    for (const Value& pair : pairs) {
      GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> parts, ToItems(pair, state.budget()));
      if (parts.size() != 2) return InvalidArgument(function, "() needs pairs of key and value");
      GANTRY_RETURN_IF_ERROR(SetKey(entries, parts[0], parts[1], state.budget()));
    }
  }
  for (const auto& [name, value] : arguments.named) {
    GANTRY_RETURN_IF_ERROR(SetKey(entries, Value::String(name), value, state.budget()));
  }
  return entries;
}

absl::StatusOr<Value> Dict(RenderState& state, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(Value::Entries entries, DictEntries(state, "dict", arguments));
  return Shallow(Value::Dict(std::move(entries)));
}

absl::StatusOr<Value> MakeNamespace(RenderState& state, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(const Value::Entries entries, DictEntries(state, "namespace", arguments));
  GANTRY_RETURN_IF_ERROR(state.budget().Spend(4));
  auto* const made = state.Make<Namespace>();
  for (const auto& [name, value] : entries) {
    GANTRY_ASSIGN_OR_RETURN(const std::string text, TextOf(name));
    GANTRY_RETURN_IF_ERROR(made->Set(state, text, value));
  }
  return Value::FromObject(made);
}

absl::StatusOr<Value> RaiseException(RenderState& state, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments,
                           {.function = "raise_exception", .names = {"message"}, .required = 1}));
  GANTRY_ASSIGN_OR_RETURN(const std::string message, ToText(bound[0], state.budget()));
  return InvalidArgument("the template refuses: ", message.substr(0, 500));
}

absl::StatusOr<Value> StrftimeNow(RenderState& state, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments,
                           {.function = "strftime_now", .names = {"format"}, .required = 1}));
  GANTRY_ASSIGN_OR_RETURN(const std::string format, TextOf(bound[0]));
  GANTRY_ASSIGN_OR_RETURN(const std::string text, FormatTime(state.now(), format));
  return TextValue(text, state.budget());
}

using FunctionPointer = absl::StatusOr<Value> (*)(RenderState&, const Arguments&);

class Function final : public Callable {
 public:
  Function(std::string_view name, FunctionPointer function) : name_(name), function_(function) {}
  absl::StatusOr<std::string> Describe(Budget&) override {
    return StrCat("<function ", name_, ">");
  }
  std::string_view type_name() const override { return "function"; }
  absl::StatusOr<Value> Call(RenderState& state, const Arguments& arguments) override {
    return function_(state, arguments);
  }

 private:
  const std::string_view name_;
  const FunctionPointer function_;
};

// cycler(a, b, ...): its next() gives one after the other, over and over.
class Cycler final : public Object {
 public:
  Cycler(RenderState& state, std::vector<Value> items) : state_(state), items_(std::move(items)) {}

  std::string_view type_name() const override { return "Cycler"; }
  absl::StatusOr<std::string> Describe(Budget&) override { return "<Cycler>"; }
  bool callable() const override { return false; }
  absl::StatusOr<std::optional<int64_t>> Length() override { return std::optional<int64_t>(); }
  absl::StatusOr<std::optional<Value>> Attribute(std::string_view name) override {
    if (name == "current") return items_[at_];
    if (name != "next" && name != "reset") return std::optional<Value>();
    GANTRY_RETURN_IF_ERROR(state_.budget().Spend(4));
    return Value::FromObject(state_.Make<Move>(*this, name == "reset"));
  }

 private:
  class Move final : public Callable {
   public:
    Move(Cycler& cycler, bool reset) : cycler_(cycler), reset_(reset) {}
    absl::StatusOr<std::string> Describe(Budget&) override { return "<bound method of Cycler>"; }
    absl::StatusOr<Value> Call(RenderState&, const Arguments&) override {
      if (reset_) {
        cycler_.at_ = 0;
        return Value();
      }
      const Value item = cycler_.items_[cycler_.at_];
      cycler_.at_ = (cycler_.at_ + 1) % cycler_.items_.size();
      return item;
    }

   private:
    Cycler& cycler_;
    const bool reset_;
  };

  RenderState& state_;
  const std::vector<Value> items_;
  size_t at_ = 0;
};

absl::StatusOr<Value> MakeCycler(RenderState& state, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) {
    return InvalidArgument("cycler() needs at least one item");
  }
  GANTRY_RETURN_IF_ERROR(state.budget().SpendItems(4 + arguments.positional.size()));
  return Value::FromObject(state.Make<Cycler>(state, arguments.positional));
}

// joiner(separator): called, it gives nothing the first time, then the separator.
class Joiner final : public Callable {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  absl::StatusOr<std::string> Describe(Budget&) override { return "<Joiner>"; }
  absl::StatusOr<Value> Call(RenderState&, const Arguments&) override {
    if (used_) return separator_;
    used_ = true;
    return Value::String("");
  }

 private:
  const Value separator_;
  bool used_ = false;
};

absl::StatusOr<Value> MakeJoiner(RenderState& state, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "joiner", .names = {"sep"}}));
  GANTRY_RETURN_IF_ERROR(state.budget().Spend(4));
  return Value::FromObject(state.Make<Joiner>(bound.Or(0, Value::String(", "))));
}

}  // namespace

absl::StatusOr<std::optional<Value>> FindGlobal(RenderState& state, std::string_view name) {
  struct NamedFunction {
    std::string_view name;
    FunctionPointer function;
  };
  static constexpr NamedFunction kFunctions[] = {
      {"cycler", &MakeCycler},
      {"dict", &Dict},
      {"joiner", &MakeJoiner},
      {"namespace", &MakeNamespace},
      {"raise_exception", &RaiseException},
      {"range", &Range},
      {"strftime_now", &StrftimeNow},
  };
  for (const NamedFunction& known : kFunctions) {
    if (known.name != name) continue;
    GANTRY_RETURN_IF_ERROR(state.budget().Spend(4));
    return Value::FromObject(state.Make<Function>(known.name, known.function));
  }
  return std::optional<Value>();
}

Namespace* Namespace::In(const Value& value) {
  if (!value.Is(Kind::kObject) || value.object()->type_name() != kNamespaceType) return nullptr;
  return static_cast<Namespace*>(value.object());
}

absl::Status Namespace::Set(RenderState& state, std::string_view name, const Value& value) {
  if (name.starts_with('_')) {
    return InvalidArgument("an attribute of a namespace may not begin with '_', but got '", name,
                           "'");
  }
  return SetKey(entries_, Value::String(name), value, state.budget());
}

absl::StatusOr<std::string> Namespace::Describe(Budget& budget) {
  if (describing_) return "<Namespace {...}>";
  describing_ = true;
  absl::StatusOr<std::string> text = ToRepr(Value::Dict(entries_), budget);
  describing_ = false;
  if (!text.ok()) return text;
  return StrCat("<Namespace ", *text, ">");
}

absl::StatusOr<std::optional<Value>> Namespace::Attribute(std::string_view name) {
  const Value* found = FindText(entries_, name);
  return found == nullptr ? std::optional<Value>() : *found;
}

}  // namespace gantry
