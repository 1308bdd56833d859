#include "trainer/chat_template/value.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"

namespace gantry {
namespace {

int DepthOf(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

}  // namespace

int64_t RangeData::size() const {
  if (step > 0) {
    if (stop <= start) return 0;
    const uint64_t span = static_cast<uint64_t>(stop) - static_cast<uint64_t>(start);
    return static_cast<int64_t>((span - 1) / static_cast<uint64_t>(step) + 1);
  }
  if (stop >= start) return 0;
  const uint64_t span = static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  return static_cast<int64_t>((span - 1) / (~static_cast<uint64_t>(step) + 1) + 1);
}

Value Value::Undefined(std::string message) {
  Value value;
  value.kind_ = Kind::kUndefined;
  value.data_ = std::make_shared<const std::string>(std::move(message));
  return value;
}

Value Value::Bool(bool boolean) {
  Value value;
  value.kind_ = Kind::kBool;
  value.data_ = boolean;
  return value;
}

Value Value::Integer(int64_t integer) {
  Value value;
  value.kind_ = Kind::kInteger;
  value.data_ = integer;
  return value;
}

Value Value::Float(double floating) {
  Value value;
  value.kind_ = Kind::kFloat;
  value.data_ = floating;
  return value;
}

Value Value::String(std::string_view text) {
  Value value;
  value.kind_ = Kind::kString;
  value.data_ = std::make_shared<const std::string>(text);
  return value;
}

Value Value::List(std::vector<Value> items) {
  Value value;
  const int depth = DepthOf(items);
  value.kind_ = Kind::kList;
  value.data_ = std::make_shared<const ListData>(ListData{std::move(items), depth});
  return value;
}

Value Value::Tuple(std::vector<Value> items) {
  Value value = List(std::move(items));
  value.kind_ = Kind::kTuple;
  return value;
}

Value Value::Dict(Entries entries) {
  int depth = 0;
  for (const auto& [key, item] : entries) depth = std::max({depth, key.depth(), item.depth()});
  Value value;
  value.kind_ = Kind::kDict;
  value.data_ = std::make_shared<const DictData>(DictData{std::move(entries), depth + 1});
  return value;
}

Value Value::Range(RangeData range) {
  GANTRY_CHECK(range.step != 0);
  Value value;
  value.kind_ = Kind::kRange;
  value.data_ = std::make_shared<const RangeData>(range);
  return value;
}

Value Value::Iterator(std::shared_ptr<ValueIterator> iterator) {
  Value value;
  value.kind_ = Kind::kIterator;
  value.data_ = std::move(iterator);
  return value;
}

Value Value::FromObject(Object* object) {
  Value value;
  value.kind_ = Kind::kObject;
  value.data_ = object;
  return value;
}

Value Value::DictView(const Value& dict, Kind kind) {
  GANTRY_CHECK(dict.Is(Kind::kDict));
  Value value = dict;
  value.kind_ = kind;
  return value;
}

bool Value::is_number() const { return Is(Kind::kBool) || Is(Kind::kInteger) || Is(Kind::kFloat); }

bool Value::is_dict_view() const {
  return Is(Kind::kDictKeys) || Is(Kind::kDictValues) || Is(Kind::kDictItems);
}

const std::vector<Value>& Value::items() const {
  return std::get<std::shared_ptr<const ListData>>(data_)->items;
}

const Value::Entries& Value::entries() const {
  return std::get<std::shared_ptr<const DictData>>(data_)->entries;
}

int64_t Value::AsInteger() const {
  return Is(Kind::kBool) ? static_cast<int64_t>(boolean()) : integer();
}

double Value::AsFloat() const {
  return Is(Kind::kFloat) ? floating() : static_cast<double>(AsInteger());
}

int Value::depth() const {
  if (is_list_or_tuple()) return std::get<std::shared_ptr<const ListData>>(data_)->depth;
  if (Is(Kind::kDict) || is_dict_view()) {
    return std::get<std::shared_ptr<const DictData>>(data_)->depth;
  }
  return Is(Kind::kIterator) ? iterator().depth() : 0;
}

bool Value::SameAs(const Value& other) const {
  if (kind_ != other.kind_) return false;
  if (Is(Kind::kString)) return string() == other.string();
  return data_ == other.data_;
}

}  // namespace gantry
