#include "trainer/chat_template/json_text.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/python_text.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"
#include "trainer/chat_template/value_operations.h"

namespace gantry {
namespace {

using Kind = Value::Kind;

// Builds the value as the parser reports its parts.
class JsonBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  absl::StatusOr<Value> Take() && {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }

  bool null() override { return Add(Value()); }
  bool boolean(bool value) override { return Add(Value::Bool(value)); }
  bool number_integer(int64_t value) override { return Add(Value::Integer(value)); }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return TooLarge();
    return Add(Value::Integer(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string& text) override {
    // Where an integer does not fit, the parser gives a float.
    if (text.find_first_of(".eE") == std::string::npos) return TooLarge();
    return Add(Value::Float(value));
  }
  bool string(std::string& value) override { return Add(Value::String(value)); }
  bool binary(nlohmann::json::binary_t&) override { return false; }

  bool start_object(size_t) override { return Open(Kind::kDict); }
  bool key(std::string& value) override {
    open_.back().key = value;
    return true;
  }
  bool end_object() override {
    Container container = std::move(open_.back());
    open_.pop_back();
    return Add(Value::Dict(std::move(container.entries)));
  }
  bool start_array(size_t) override { return Open(Kind::kList); }
  bool end_array() override {
    Container container = std::move(open_.back());
    open_.pop_back();
    return Add(Value::List(std::move(container.items)));
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...".
    std::string_view what = error.what();
    const size_t colon = what.find(": ");
    if (colon != std::string_view::npos) what.remove_prefix(colon + 2);
    status_ = InvalidArgument("no JSON at byte ", position, ": ", what.substr(0, 200));
    return false;
  }

 private:
  struct Container {
    Kind kind;
    std::vector<Value> items;
    Value::Entries entries;
    absl::flat_hash_map<std::string, size_t> places;  // of the keys
    std::string key;
  };

  bool TooLarge() {
    status_ = InvalidArgument("an integer of more than 64 bits");
    return false;
  }
  bool Open(Kind kind) {
    if (open_.size() == static_cast<size_t>(kValueDepthMax)) {
      status_ = InvalidArgument("JSON nests deeper than ", kValueDepthMax);
      return false;
    }
    open_.push_back({.kind = kind, .items = {}, .entries = {}, .places = {}, .key = {}});
    return true;
  }
  bool Add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Container& container = open_.back();
    if (container.kind == Kind::kList) {
      container.items.push_back(std::move(value));
      return true;
    }
    const auto [place, added] = container.places.emplace(container.key, container.entries.size());
    if (added) {
      container.entries.emplace_back(Value::String(container.key), std::move(value));
    } else {
      container.entries[place->second].second = std::move(value);
    }
    return true;
  }

  std::vector<Container> open_;
  Value root_;
  absl::Status status_;
};

void AppendUnit(char32_t unit, std::string& out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[(unit >> shift) & 0xf];
}

void AppendQuoted(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t code = NextCodePoint(text, at);
    const size_t special = std::string_view("\"\\\b\f\n\r\t").find(static_cast<char>(code));
    if (code < 0x80 && special != std::string_view::npos) {
      out += '\\';
      out += std::string_view("\"\\bfnrt")[special];
    } else if (code < 0x20 || (ensure_ascii && code >= 0x7f && code < 0x10000)) {
      AppendUnit(code, out);
    } else if (ensure_ascii && code >= 0x10000) {
      AppendUnit(0xd800 + ((code - 0x10000) >> 10), out);
      AppendUnit(0xdc00 + ((code - 0x10000) & 0x3ff), out);
    } else {
      out += text.substr(begin, at - begin);
    }
  }
  out += '"';
}

std::string NumberText(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return PythonRepr(number);
}

class JsonWriter {
 public:
  JsonWriter(const JsonOptions& options, Budget& budget) : options_(options), budget_(budget) {}

  absl::Status Append(const Value& value) {
    const size_t before = out_.size();
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        break;
      case Kind::kBool:
        out_ += value.boolean() ? "true" : "false";
        break;
      case Kind::kInteger:
        out_ += std::to_string(value.integer());
        break;
      case Kind::kFloat:
        out_ += NumberText(value.floating());
        break;
      case Kind::kString:
        AppendQuoted(value.string(), options_.ensure_ascii, out_);
        break;
      case Kind::kList:
      case Kind::kTuple:
        return AppendList(value.items());
      case Kind::kDict:
        return AppendDict(value.entries());
      default:
        return InvalidArgument("Object of type ", TypeName(value), " is not JSON serializable");
    }
    GANTRY_RETURN_IF_ERROR(budget_.CheckText(out_.size()));
    return budget_.SpendText(out_.size() - before);
  }

  std::string Take() && { return std::move(out_); }

 private:
  void NewLine() {
    if (!options_.indent.has_value()) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *options_.indent;
  }

  absl::Status AppendList(const std::vector<Value>& items) {
    if (items.empty()) {
      out_ += "[]";
      return budget_.Spend(1);
    }
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += options_.item_separator;
      NewLine();
      GANTRY_RETURN_IF_ERROR(Append(items[i]));
    }
    --level_;
    NewLine();
    out_ += ']';
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> KeyText(const Value& key) const {
    switch (key.kind()) {
      case Kind::kString:
        return key.string();
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.boolean() ? "true" : "false";
      case Kind::kInteger:
        return std::to_string(key.integer());
      case Kind::kFloat:
        return NumberText(key.floating());
      default:
        return InvalidArgument("keys must be str, int, float, bool or None, not ", TypeName(key));
    }
  }

  absl::StatusOr<Value::Entries> SortedByKey(const Value::Entries& entries) {
    std::vector<Value> keys;
    std::vector<Value> pairs;
    for (const auto& [key, item] : entries) {
      keys.push_back(key);
      pairs.push_back(Value::Tuple({key, item}));
    }
    GANTRY_ASSIGN_OR_RETURN(pairs, SortByKeys(pairs, keys, SortOrder::kAscending, budget_));
    Value::Entries sorted;
    for (const Value& pair : pairs) sorted.emplace_back(pair.items()[0], pair.items()[1]);
    return sorted;
  }

  absl::Status AppendDict(const Value::Entries& entries) {
    if (entries.empty()) {
      out_ += "{}";
      return budget_.Spend(1);
    }
    Value::Entries sorted;
    if (options_.sort_keys) {
      GANTRY_ASSIGN_OR_RETURN(sorted, SortedByKey(entries));
    }
    out_ += '{';
    ++level_;
    bool first = true;
    for (const auto& [key, item] : options_.sort_keys ? sorted : entries) {
      if (!first) out_ += options_.item_separator;
      first = false;
      NewLine();
      GANTRY_ASSIGN_OR_RETURN(const std::string text, KeyText(key));
      AppendQuoted(text, options_.ensure_ascii, out_);
      out_ += options_.key_separator;
      GANTRY_RETURN_IF_ERROR(Append(item));
    }
    --level_;
    NewLine();
    out_ += '}';
    return absl::OkStatus();
  }

  const JsonOptions& options_;
  Budget& budget_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

absl::StatusOr<Value> ParseJson(std::string_view text) {
  // To the parser a zero byte is the end of the text.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return InvalidArgument("no JSON at byte ", zero + 1, ": a zero byte");
  }
  JsonBuilder builder;
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder).Take();
}

absl::StatusOr<std::string> WriteJson(const Value& value, const JsonOptions& options,
                                      Budget& budget) {
  JsonWriter writer(options, budget);
  GANTRY_RETURN_IF_ERROR(writer.Append(value));
  return std::move(writer).Take();
}

}  // namespace gantry
