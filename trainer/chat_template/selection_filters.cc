// map, select, reject, selectattr, rejectattr: they work item by item, when asked for the next.
#include <algorithm>
#include <cstddef>
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
#include "trainer/chat_template/attribute_path.h"
#include "trainer/chat_template/filters.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/test_functions.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

// Walks over a source, which it opens with the first item asked for, as a generator does.
class SourceIterator : public ValueIterator {
 public:
  // `arguments` are what the iterator keeps beside its source.
  SourceIterator(RenderState& state, const Value& source, const Arguments& arguments)
      : ValueIterator(DepthOf(source, arguments)), state_(state), source_(source) {}

 protected:
  absl::StatusOr<std::optional<Value>> NextOfSource() {
    if (!Truth(source_)) return std::optional<Value>();
    if (iterator_ == nullptr) {
      GANTRY_RETURN_IF_ERROR(Prepare());
      GANTRY_ASSIGN_OR_RETURN(iterator_, Iterate(source_, state_.budget()));
    }
    return iterator_->Next();
  }
  // Before the first item.
  virtual absl::Status Prepare() = 0;
  RenderState& state() { return state_; }

 private:
  static int DepthOf(const Value& source, const Arguments& arguments) {
    int depth = source.depth();
    for (const Value& argument : arguments.positional) depth = std::max(depth, argument.depth());
    for (const auto& [name, argument] : arguments.named) depth = std::max(depth, argument.depth());
    return depth + 1;
  }

  RenderState& state_;
  const Value source_;
  std::shared_ptr<ValueIterator> iterator_;
};

class MapIterator final : public SourceIterator {
 public:
  MapIterator(RenderState& state, const Value& source, Arguments arguments)
      : SourceIterator(state, source, arguments), arguments_(std::move(arguments)) {}

  absl::StatusOr<std::optional<Value>> Next() override {
    GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> item, NextOfSource());
    if (!item.has_value()) return item;
    GANTRY_RETURN_IF_ERROR(state().budget().Spend(1));
    if (path_.has_value()) {
      GANTRY_ASSIGN_OR_RETURN(Value read, path_->Read(state(), *item));
      return std::optional<Value>(std::move(read));
    }
    GANTRY_ASSIGN_OR_RETURN(Value mapped, filter_(state(), *item, arguments_));
    return std::optional<Value>(std::move(mapped));
  }

 private:
  absl::Status Prepare() override {
    if (arguments_.positional.empty()) return PreparePath();
    GANTRY_ASSIGN_OR_RETURN(const std::string name, TextOf(arguments_.positional[0]));
    filter_ = FindFilter(name);
    if (filter_ == nullptr) return InvalidArgument("no filter named '", name, "'");
    arguments_.positional.erase(arguments_.positional.begin());
    return absl::OkStatus();
  }

  absl::Status PreparePath() {
    GANTRY_ASSIGN_OR_RETURN(
        const BoundArguments bound,
        BoundArguments::Bind(
            arguments_, {.function = "map", .names = {"attribute", "default"}, .required = 1}));
    GANTRY_ASSIGN_OR_RETURN(path_, AttributePath::Parse(bound[0]));
    if (bound.IsSet(1)) path_->set_default(bound[1]);
    return absl::OkStatus();
  }

  Arguments arguments_;
  std::optional<AttributePath> path_;
  FilterFunction filter_ = nullptr;
};

// Which items to give: those that pass or those that do not, by themselves or by an attribute.
struct Selection {
  bool keep_passing;
  bool by_attribute;
};

class SelectIterator final : public SourceIterator {
 public:
  SelectIterator(RenderState& state, const Value& source, Arguments arguments, Selection selection)
      : SourceIterator(state, source, arguments),
        arguments_(std::move(arguments)),
        selection_(selection) {}

  absl::StatusOr<std::optional<Value>> Next() override {
    while (true) {
      GANTRY_ASSIGN_OR_RETURN(const std::optional<Value> item, NextOfSource());
      if (!item.has_value()) return item;
      GANTRY_RETURN_IF_ERROR(state().budget().Spend(1));
      GANTRY_ASSIGN_OR_RETURN(const Value tested, path_.Read(state(), *item));
      bool passes = Truth(tested);
      if (test_ != nullptr) {
        GANTRY_ASSIGN_OR_RETURN(passes, test_(state(), tested, arguments_));
      }
      if (passes == selection_.keep_passing) return item;
    }
  }

 private:
  absl::Status Prepare() override {
    std::vector<Value>& positional = arguments_.positional;
    if (selection_.by_attribute) {
      if (positional.empty()) return InvalidArgument("Missing parameter for attribute name");
      GANTRY_ASSIGN_OR_RETURN(path_, AttributePath::Parse(positional[0]));
      positional.erase(positional.begin());
    }
    if (positional.empty()) return absl::OkStatus();
    GANTRY_ASSIGN_OR_RETURN(const std::string name, TextOf(positional[0]));
    test_ = FindTest(name);
    if (test_ == nullptr) return InvalidArgument("no test named '", name, "'");
    positional.erase(positional.begin());
    return absl::OkStatus();
  }

  Arguments arguments_;
  const Selection selection_;
  AttributePath path_;
  TestFunction test_ = nullptr;
};

absl::StatusOr<Value> Map(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(state.budget().Spend(4));
  return Shallow(Value::Iterator(std::make_shared<MapIterator>(state, value, arguments)));
}

template <bool kKeepPassing, bool kByAttribute>
absl::StatusOr<Value> Select(RenderState& state, const Value& value, const Arguments& arguments) {
  GANTRY_RETURN_IF_ERROR(state.budget().Spend(4));
  return Shallow(Value::Iterator(std::make_shared<SelectIterator>(
      state, value, arguments,
      Selection{.keep_passing = kKeepPassing, .by_attribute = kByAttribute})));
}

}  // namespace

FilterFunction FindSelectionFilter(std::string_view name) {
  if (name == "map") return &Map;
  if (name == "select") return &Select<true, false>;
  if (name == "reject") return &Select<false, false>;
  if (name == "selectattr") return &Select<true, true>;
  if (name == "rejectattr") return &Select<false, true>;
  return nullptr;
}

}  // namespace gantry
