#include <algorithm>
#include <array>
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
#include "trainer/chat_template/methods.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

using Kind = Value::Kind;

absl::StatusOr<Value> View(const Value& self, const Arguments& arguments, std::string_view name,
                           Kind kind) {
  GANTRY_RETURN_IF_ERROR(BoundArguments::Bind(arguments, {.function = name, .names = {}}).status());
  return Value::DictView(self, kind);
}

absl::StatusOr<Value> Keys(RenderState&, const Value& self, const Arguments& arguments) {
  return View(self, arguments, "keys", Kind::kDictKeys);
}

absl::StatusOr<Value> Values(RenderState&, const Value& self, const Arguments& arguments) {
  return View(self, arguments, "values", Kind::kDictValues);
}

absl::StatusOr<Value> Items(RenderState&, const Value& self, const Arguments& arguments) {
  return View(self, arguments, "items", Kind::kDictItems);
}

absl::StatusOr<Value> Copy(RenderState&, const Value& self, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(
      BoundArguments::Bind(arguments, {.function = "copy", .names = {}}).status());
  return self;
}

absl::StatusOr<Value> Get(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments,
                           {.function = "get", .names = {"key", "default"}, .required = 1}));
  if (!IsHashable(bound[0])) {
    return InvalidArgument("unhashable type: '", TypeName(bound[0]), "'");
  }
  GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> found,
                          FindKey(self.entries(), bound[0], state.budget()));
  return found.has_value() ? *found : bound.Or(1, Value());
}

absl::StatusOr<Value> Count(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "count", .names = {"value"}, .required = 1}));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> items, ToItems(self, state.budget()));
  int64_t count = 0;
  for (const Value& item : items) {
    GANTRY_ASSIGN_OR_RETURN(const bool equal, Equal(item, bound[0], state.budget()));
    if (equal) ++count;
  }
  return Value::Integer(count);
}

absl::StatusOr<Value> Index(RenderState& state, const Value& self, const Arguments& arguments) {
  GANTRY_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::Bind(arguments, {.function = "index", .names = {"value"}, .required = 1}));
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Value> items, ToItems(self, state.budget()));
  for (size_t i = 0; i < items.size(); ++i) {
    GANTRY_ASSIGN_OR_RETURN(const bool equal, Equal(items[i], bound[0], state.budget()));
    if (equal) return Value::Integer(static_cast<int64_t>(i));
  }
  return InvalidArgument("the value is not in the ", TypeName(self));
}

// A method and what it is called on.
class BoundMethod final : public Callable {
 public:
  BoundMethod(Value self, std::string name, MethodFunction function)
      : self_(std::move(self)), name_(std::move(name)), function_(function) {}

  absl::StatusOr<std::string> Describe(Budget&) override {
    // Python shows where it lies.
    return StrCat("<built-in method ", name_, " of ", TypeName(self_),
                  " object at 0x000000000000>");
  }
  absl::StatusOr<Value> Call(RenderState& state, const Arguments& arguments) override {
    return function_(state, self_, arguments);
  }

 private:
  const Value self_;
  const std::string name_;
  const MethodFunction function_;
};

constexpr std::array<std::string_view, 5> kDictChanges = {"clear", "pop", "popitem", "setdefault",
                                                          "update"};
constexpr std::array<std::string_view, 8> kListChanges = {"append", "clear", "pop",    "reverse",
                                                          "insert", "sort",  "extend", "remove"};

template <size_t kCount>
bool Holds(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

MethodFunction FindContainerMethod(Kind kind, std::string_view name) {
  if (kind == Kind::kDict) {
    if (name == "items") return &Items;
    if (name == "keys") return &Keys;
    if (name == "values") return &Values;
    if (name == "get") return &Get;
    if (name == "copy") return &Copy;
    return nullptr;
  }
  if (name == "count") return &Count;
  if (name == "index") return &Index;
  return name == "copy" && kind == Kind::kList ? &Copy : nullptr;
}

absl::StatusOr<std::optional<Value>> BindMethod(RenderState& state, const Value& self,
                                                std::string_view name) {
  MethodFunction function = nullptr;
  bool forbidden = false;
  if (self.Is(Kind::kString)) {
    function = FindStringMethod(name);
  } else if (self.Is(Kind::kDict) || self.Is(Kind::kRange) || self.is_list_or_tuple()) {
    function = FindContainerMethod(self.kind(), name);
    forbidden = (self.Is(Kind::kDict) && Holds(kDictChanges, name)) ||
                (self.Is(Kind::kList) && Holds(kListChanges, name));
  }
  if (forbidden) {
    return Value::Undefined(
        StrCat("access to attribute '", name, "' of '", TypeName(self), "' object is unsafe"));
  }
  if (function == nullptr) return std::optional<Value>();
  GANTRY_RETURN_IF_ERROR(state.budget().Spend(4));
  return Value::FromObject(state.Make<BoundMethod>(self, std::string(name), function));
}

}  // namespace gantry
