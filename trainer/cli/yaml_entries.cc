#include "trainer/cli/yaml_entries.h"

#include <yaml-cpp/anchor.h>
#include <yaml-cpp/emitterstyle.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

// yaml-cpp recurses; it stops by itself only at 500 levels.
constexpr int kIndentationMax = 200;
constexpr int kBracketsMax = 16;

int64_t LineOf(const YAML::Mark& mark) { return mark.is_null() ? 1 : int64_t{mark.line} + 1; }

// Collects entries; remembers the first thing that is wrong and then ignores what follows.
class EntryCollector final : public YAML::EventHandler {
 public:
  explicit EntryCollector(std::string_view name) : name_(name) {}

  absl::Status status() const { return status_; }
  std::vector<YamlEntry> TakeEntries() { return std::move(entries_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Refuse(mark, "aliases are not supported");
  }
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    Refuse(mark, StrCat("anchors are not supported (&", name, ")"));
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (anchor != 0) return Refuse(mark, "anchors are not supported");
    if (path_.empty() && !in_list_ && depth_ == 0) return;  // an empty document
    if (key_.empty()) return Refuse(mark, "an empty key");
    RefuseAt(key_line_, StrCat(Prefix(), key_, " has no value"));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (!status_.ok() || !CheckPlain(mark, tag, anchor)) return;
    if (depth_ == 0) return Refuse(mark, "expected sections with keys and values");
    if (in_item_) {
      TakeInItem(mark, value);
    } else if (in_list_) {
      entries_.back().values.push_back(value);
    } else if (key_.empty()) {
      TakeKey(mark, value);
    } else {
      AddEntry();
      entries_.back().values.push_back(value);
      key_.clear();
    }
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    if (!status_.ok() || !CheckPlain(mark, tag, anchor)) return;
    if (in_list_ || key_.empty()) return Refuse(mark, "a list is not expected here");
    AddEntry();
    in_list_ = true;
  }
  void OnSequenceEnd() override {
    in_list_ = false;
    key_.clear();
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    if (!status_.ok() || !CheckPlain(mark, tag, anchor)) return;
    if (in_list_ && !in_item_) {
      in_item_ = true;
      entries_.back().values.emplace_back();
      return;
    }
    if (in_list_ || depth_ == 2 || (depth_ == 1 && key_.empty())) {
      return Refuse(mark, "nested too deep: expected sections with keys and values");
    }
    if (depth_ == 1) path_ = std::exchange(key_, {});
    ++depth_;
  }
  void OnMapEnd() override {
    if (in_item_) {
      in_item_ = false;
      item_key_.clear();
      return;
    }
    --depth_;
    path_.clear();
    key_.clear();
  }

 private:
  void Refuse(const YAML::Mark& mark, std::string_view what) { RefuseAt(LineOf(mark), what); }
  void RefuseAt(int64_t line, std::string_view what) {
    if (status_.ok()) status_ = InvalidArgument(name_, ":", line, ": ", what);
  }
  bool CheckPlain(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) Refuse(mark, "anchors are not supported");
    // "?" is a plain value, "!" a quoted one.
    if (!tag.empty() && tag != "?" && tag != "!") {
      Refuse(mark, StrCat("tags are not supported (", tag, ")"));
    }
    return status_.ok();
  }
  std::string Prefix() const { return path_.empty() ? "" : path_ + "."; }
  void TakeKey(const YAML::Mark& mark, const std::string& key) {
    if (key.empty()) return Refuse(mark, "an empty key");
    key_ = key;
    key_line_ = LineOf(mark);
  }
  // A key or a value of a mapping in a list.
  void TakeInItem(const YAML::Mark& mark, const std::string& text) {
    std::string& item = entries_.back().values.back();
    if (text.empty()) return Refuse(mark, "an empty key or value");
    if (text.find(';') != std::string::npos) return Refuse(mark, "';' cannot stand here");
    if (item_key_.empty()) {
      if (text.find('=') != std::string::npos) return Refuse(mark, "'=' cannot stand in a key");
      item_key_ = text;
      return;
    }
    item += StrCat(item.empty() ? "" : ";", std::exchange(item_key_, {}), "=", text);
  }
  void AddEntry() {
    std::string key = Prefix() + key_;
    if (!keys_.insert(key).second) RefuseAt(key_line_, StrCat(key, " is set twice"));
    entries_.push_back({.key = std::move(key), .values = {}, .line = key_line_});
  }

  std::string_view name_;
  absl::Status status_;
  std::vector<YamlEntry> entries_;
  std::set<std::string, std::less<>> keys_;
  int depth_ = 0;     // open mappings
  std::string path_;  // the section
  std::string key_;   // whose value comes next
  int64_t key_line_ = 0;
  bool in_list_ = false;
  bool in_item_ = false;  // a mapping in the list
  std::string item_key_;  // whose value comes next
};

// Nesting that yaml-cpp should not be asked to follow.
absl::Status CheckNesting(std::string_view text, std::string_view name) {
  int64_t line = 1;
  int indentation = 0;
  int brackets = 0;
  bool line_begins = true;
  for (const char c : text) {
    if (c == '\n') {
      ++line;
      indentation = 0;
      line_begins = true;
      continue;
    }
    // Each "- " and "? " of compact notation opens a level too.
    if (line_begins && (c == ' ' || c == '-' || c == '?' || c == ':')) ++indentation;
    if (c != ' ' && c != '-' && c != '?' && c != ':') line_begins = false;
    if (c == '[' || c == '{') ++brackets;
    if ((c == ']' || c == '}') && brackets > 0) --brackets;
    if (indentation > kIndentationMax || brackets > kBracketsMax) {
      return InvalidArgument(name, ":", line, ": nested too deep");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<YamlEntry>> ReadYamlEntries(std::string_view text,
                                                       std::string_view name) {
  if (static_cast<int64_t>(text.size()) > kYamlBytesMax.count()) {
    return InvalidArgument(name, ": a config of ", text.size(), " bytes, more than ",
                           kYamlBytesMax);
  }
  if (text.find('\0') != std::string_view::npos) {
    return InvalidArgument(name, ": is no text: it holds a zero byte");
  }
  GANTRY_RETURN_IF_ERROR(CheckNesting(text, name));
  EntryCollector collector(name);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(collector);
    if (collector.status().ok() && parser) {
      return InvalidArgument(name, ": holds several documents; one is expected");
    }
  } catch (const YAML::Exception& error) {
    // The first thing that was wrong may be why the rest cannot be read.
    if (collector.status().ok()) {
      return InvalidArgument(name, ":", LineOf(error.mark), ": ", error.msg);
    }
  } catch (const std::exception& error) {
    return InvalidArgument(name, ": cannot be read: ", error.what());
  }
  if (!collector.status().ok()) return collector.status();
  return collector.TakeEntries();
}

}  // namespace gantry
