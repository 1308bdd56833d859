// What a template computes with: Python's none, bool, int, float, str, list, tuple, dict (in order
// of insertion), range, iterators and objects, and Jinja's undefined.
//
// Lists, tuples, dicts and strings never change once they are made, so copies share them. An int
// has 64 bits: what overflows is an error, not a larger number.
//
// Value is a value type and copyable from any thread; an iterator is used up by whoever reads it.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_VALUE_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gantry {

class Budget;
class Object;
class Value;
class ValueIterator;
struct DictData;
struct ListData;

// Lists in lists, dicts in dicts and iterators over iterators, at most so deep. It bounds the
// recursion of whoever walks or frees a value.
inline constexpr int kValueDepthMax = 100;

// Python's range.
struct RangeData {
  int64_t start;
  int64_t stop;
  int64_t step;  // not 0
  int64_t size() const;
};

class Value {
 public:
  enum class Kind : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInteger,
    kFloat,
    kString,
    kList,
    kTuple,
    kDict,
    kDictKeys,
    kDictValues,
    kDictItems,
    kRange,
    kIterator,
    kObject,
  };
  using Entries = std::vector<std::pair<Value, Value>>;

  Value() = default;  // none
  static Value Undefined(std::string message);
  static Value Bool(bool value);
  static Value Integer(int64_t value);
  static Value Float(double value);
  static Value String(std::string_view text);
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  // REQUIRES: keys differ and are hashable.
  static Value Dict(Entries entries);
  static Value Range(RangeData range);
  static Value Iterator(std::shared_ptr<ValueIterator> iterator);
  // The object outlives the value.
  static Value FromObject(Object* object);
  // One of a dict's three views.
  static Value DictView(const Value& dict, Kind kind);

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool is_number() const;
  bool is_list_or_tuple() const { return Is(Kind::kList) || Is(Kind::kTuple); }
  bool is_dict_view() const;

  // REQUIRES: the kind that the name says.
  const std::string& undefined_message() const { return string(); }
  bool boolean() const { return std::get<bool>(data_); }
  int64_t integer() const { return std::get<int64_t>(data_); }
  double floating() const { return std::get<double>(data_); }
  const std::string& string() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  const std::vector<Value>& items() const;  // of a list or a tuple
  const Entries& entries() const;           // of a dict or its view
  const RangeData& range() const { return *std::get<std::shared_ptr<const RangeData>>(data_); }
  ValueIterator& iterator() const { return *std::get<std::shared_ptr<ValueIterator>>(data_); }
  const std::shared_ptr<ValueIterator>& shared_iterator() const {
    return std::get<std::shared_ptr<ValueIterator>>(data_);
  }
  Object* object() const { return std::get<Object*>(data_); }

  // A bool or an int as an int, and any number as a float. REQUIRES: it is one.
  int64_t AsInteger() const;
  double AsFloat() const;

  // How deep values nest in it: 0 for a scalar.
  int depth() const;
  // Whether both are the same thing in memory, or equal scalars.
  bool SameAs(const Value& other) const;

 private:
  Kind kind_ = Kind::kNone;
  std::variant<std::monostate, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const ListData>, std::shared_ptr<const DictData>,
               std::shared_ptr<const RangeData>, std::shared_ptr<ValueIterator>, Object*>
      data_;
};

struct ListData {
  std::vector<Value> items;
  int depth;
};
struct DictData {
  Value::Entries entries;
  int depth;
};

// Gives values one by one, each once. Thread-compatible.
class ValueIterator {
 public:
  explicit ValueIterator(int depth) : depth_(depth) {}
  virtual ~ValueIterator() = default;
  ValueIterator(const ValueIterator&) = delete;
  ValueIterator& operator=(const ValueIterator&) = delete;

  // The next value, or nothing at the end. Errors: those of what computes it.
  virtual absl::StatusOr<std::optional<Value>> Next() = 0;
  int depth() const { return depth_; }

 private:
  const int depth_;
};

// A thing with an identity: a namespace, a macro, a function, a loop. Thread-compatible.
class Object {
 public:
  virtual ~Object() = default;
  // Python's name of its type.
  virtual std::string_view type_name() const = 0;
  // What printing shows. Errors: kResourceExhausted.
  virtual absl::StatusOr<std::string> Describe(Budget& budget) = 0;
  // Nothing where it has no such attribute. Errors: those of computing it.
  virtual absl::StatusOr<std::optional<Value>> Attribute(std::string_view name) = 0;
  virtual bool callable() const = 0;
  // Its length, where it has one.
  virtual absl::StatusOr<std::optional<int64_t>> Length() = 0;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_VALUE_H_
