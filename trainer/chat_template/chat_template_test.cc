// The renders of published templates and of random ones are those of Jinja2 (testdata/*.py wrote
// them); templates that are wrong or endless give one clear error.
#include "trainer/chat_template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/testing/status_matchers.h"
#include "trainer/chat_template/budget.h"
#include "trainer/chat_template/civil_time.h"
#include "trainer/chat_template/json_text.h"
#include "trainer/chat_template/value.h"
#include "trainer/chat_template/value_comparison.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using Kind = Value::Kind;

constexpr char kFolder[] = "trainer/chat_template/testdata/";
constexpr CivilTime kNow{.year = 2026, .month = 12, .day = 1, .hour = 3, .minute = 4, .second = 5};

std::string ReadFile(const std::string& name) {
  PosixFileCalls calls;
  return ReadFileToString(calls, kFolder + name, 16_MiB).value();
}

Value ReadJson(const std::string& name) { return ParseJson(ReadFile(name)).value(); }

const Value& At(const Value& dict, std::string_view key) {
  static const Value kNone;
  const Value* found = FindText(dict.entries(), key);
  return found == nullptr ? kNone : *found;
}

ChatInput InputOf(const Value& variables) {
  ChatInput input{.messages = Value::List({}), .now = kNow, .limits = {.steps = 2'000'000}};
  for (const auto& [name, value] : variables.entries()) {
    if (name.string() == "messages") {
      input.messages = value;
    } else if (name.string() == "tools") {
      input.tools = value;
    } else if (name.string() == "add_generation_prompt") {
      input.add_generation_prompt = value.boolean();
    } else {
      input.variables.emplace_back(name, value);
    }
  }
  return input;
}

absl::StatusOr<RenderedChat> Render(std::string_view source, const ChatInput& input) {
  const absl::StatusOr<ChatTemplate> compiled = ChatTemplate::Compile(source);
  if (!compiled.ok()) return compiled.status();
  return compiled->Render(input);
}

absl::StatusOr<std::string> Text(std::string_view source, const std::string& variables = "{}") {
  const absl::StatusOr<RenderedChat> chat = Render(source, InputOf(ParseJson(variables).value()));
  if (!chat.ok()) return chat.status();
  return chat->text;
}

std::vector<Value> SpansOf(const RenderedChat& chat) {
  std::vector<Value> spans;
  for (const ByteSpan& span : chat.generations) {
    spans.push_back(Value::List({Value::Integer(static_cast<int64_t>(span.begin)),
                                 Value::Integer(static_cast<int64_t>(span.end))}));
  }
  return spans;
}

TEST(ChatTemplate, RendersPublishedTemplatesAsJinjaDoes) {
  const Value goldens = ReadJson("goldens.json");
  size_t texts = 0;
  size_t refusals = 0;
  for (const auto& [key, want] : At(goldens, "renders").entries()) {
    SCOPED_TRACE(key.string());
    const std::string name = key.string().substr(0, key.string().find('/'));
    const std::string rest = key.string().substr(name.size() + 1);
    const std::string conversation = rest.substr(0, rest.find('/'));
    std::string source = ReadFile("templates/" + name + ".jinja");
    source.pop_back();  // the newline that published templates do not have
    ChatInput input = InputOf(At(At(goldens, "conversations"), conversation));
    for (const auto& token : At(goldens, "tokens").entries()) input.variables.push_back(token);
    input.add_generation_prompt = rest.back() == '1';
    const absl::StatusOr<RenderedChat> chat = Render(source, input);
    if (want.Is(Kind::kNone)) {
      EXPECT_FALSE(chat.ok()) << chat->text;
      ++refusals;
      continue;
    }
    ASSERT_TRUE(chat.ok()) << chat.status();
    EXPECT_EQ(chat->text, At(want, "text").string());
    if (At(want, "spans").Is(Kind::kList)) {
      Budget budget({.steps = 1000, .text_bytes = 1000});
      EXPECT_TRUE(*Equal(Value::List(SpansOf(*chat)), At(want, "spans"), budget));
    }
    ++texts;
  }
  EXPECT_EQ(texts, 396u);
  EXPECT_EQ(refusals, 36u);
}

TEST(ChatTemplate, RendersRandomTemplatesAsJinjaDoes) {
  const Value goldens = ReadJson("random_goldens.json");
  const Value& variables = At(goldens, "variables");
  size_t count = 0;
  for (const Value& render : At(goldens, "renders").items()) {
    const std::string& source = At(render, "template").string();
    SCOPED_TRACE(source);
    const absl::StatusOr<RenderedChat> chat = Render(source, InputOf(variables));
    if (At(render, "text").Is(Kind::kNone)) {
      EXPECT_FALSE(chat.ok()) << chat->text;
    } else {
      ASSERT_TRUE(chat.ok()) << chat.status();
      EXPECT_EQ(chat->text, At(render, "text").string());
    }
    ++count;
  }
  EXPECT_GT(count, 300u);
}

TEST(ChatTemplate, TellsWhatWasGeneratedInBytes) {
  const auto chat = Render(
      "\u00e4{% generation %}\u65e5\n{% endgeneration %}b{% generation %}"
      "{% endgeneration %}",
      {});
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->text, "\u00e4\u65e5\nb");
  ASSERT_EQ(chat->generations.size(), 2u);
  EXPECT_EQ(chat->generations[0].begin, 2u);
  EXPECT_EQ(chat->generations[0].end, 6u);
  EXPECT_EQ(chat->generations[1].begin, 7u);
  EXPECT_EQ(chat->generations[1].end, 7u);
  EXPECT_TRUE(chat->generation_places_known);

  const auto hidden =
      Render("{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m() }}", {});
  ASSERT_TRUE(hidden.ok()) << hidden.status();
  EXPECT_EQ(hidden->text, "x");
  EXPECT_FALSE(hidden->generation_places_known);
}

TEST(ChatTemplate, SeesTheTimeItIsGiven) {
  EXPECT_EQ(*Text("{{ strftime_now('%d %b %Y %H:%M:%S %j %A %f%z|%%') }}"),
            "01 Dec 2026 03:04:05 335 Tuesday 000000|%");
}

struct Refusal {
  std::string_view source;
  std::string_view message;
};

TEST(ChatTemplate, RefusesWhatIsMalformedAndSaysWhere) {
  const Refusal refusals[] = {
      {"{{ a", "line 1, column 1: this tag has no end"},
      {"x\n  {% if a %}", "line 2, column 13: expected '{% endif %}', got the end"},
      {"{{ }}", "line 1, column 4: expected an expression, got '}}'"},
      {"{{ a b }}", "line 1, column 6: expected '}}', got 'b'"},
      {"{{ 'a }}", "line 1, column 4: this string has no end"},
      {"{{ '\\x1' }}", "line 1, column 4: an escape in this string needs 2"},
      {"{{ '\\ud800' }}", "is no Unicode character"},
      {"{# a", "line 1, column 1: this comment has no end"},
      {"{% raw %}a", "line 1, column 1: this raw block has no end"},
      {"{{ (1] }}", "line 1, column 6: unexpected ']', expected ')'"},
      {"{{ 1) }}", "line 1, column 5: unexpected ')'"},
      {"{{ a ? b }}", "line 1, column 6: unexpected character '?'"},
      {"{{ 99999999999999999999 }}", "has more than 64 bits"},
      {"{% for %}", "line 1, column 8: expected a name"},
      {"{% for 1 in x %}{% endfor %}", "cannot be assigned to"},
      {"{% for loop in x %}{% endfor %}", "'loop' cannot be assigned to"},
      {"{% set a.b.c = 1 %}", "expected '%}', got '.'"},
      {"{% frobnicate %}", "line 1, column 4: unknown tag 'frobnicate'"},
      {"{% include 'x' %}", "unknown tag 'include'"},
      {"{% extends 'x' %}", "unknown tag 'extends'"},
      {"{% endif %}", "unknown tag 'endif'"},
      {"{% break %}", "line 1, column 4: 'break' outside of a loop"},
      {"{{ a|frobnicate }}", "line 1, column 6: no filter named 'frobnicate'"},
      {"{{ a is frobnicate }}", "no test named 'frobnicate'"},
      {"{{ f(a=1, 2) }}", "may not stand behind those before it"},
      {"{{ f(a=1, a=2) }}", "the argument 'a' comes twice"},
      {"{% macro m(a, a) %}{% endmacro %}", "the parameter 'a' comes twice"},
      {"{% macro m(a=1, b) %}{% endmacro %}", "a parameter without a default"},
      {"{% call 1 %}{% endcall %}", "expected a call"},
      {"\xff", "not UTF-8"},
  };
  for (const Refusal& refusal : refusals) {
    const auto compiled = ChatTemplate::Compile(refusal.source);
    EXPECT_THAT(compiled.status(),
                StatusIs(absl::StatusCode::kInvalidArgument, std::string(refusal.message)))
        << refusal.source;
    EXPECT_THAT(std::string(compiled.status().message()), HasSubstr("chat template, "));
  }
}

TEST(ChatTemplate, RefusesNestingBeyondItsLimits) {
  const auto repeat = [](std::string_view text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  for (const std::string& source :
       {"{{ " + repeat("(", 5000) + "1" + repeat(")", 5000) + " }}",
        "{{ " + repeat("[", 5000) + repeat("]", 5000) + " }}",
        "{{ 1" + repeat(" + 1", 5000) + " }}", "{{ 1" + repeat("|int", 5000) + " }}",
        "{{ a" + repeat(".b", 5000) + " }}", "{{ " + repeat("not ", 5000) + "a }}",
        "{{ " + repeat("-", 5000) + "a }}", "{{ " + repeat("1 if 1 else ", 5000) + "1 }}",
        repeat("{% if 1 %}", 5000),
        repeat("{% for i in [1] %}", 61) + repeat("{% endfor %}", 61)}) {
    EXPECT_THAT(ChatTemplate::Compile(source).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, "levels deep"))
        << source.substr(0, 40);
  }
  EXPECT_TRUE(
      ChatTemplate::Compile(repeat("{% for i in [1] %}", 60) + repeat("{% endfor %}", 60)).ok());
  EXPECT_TRUE(ChatTemplate::Compile("{{ 1" + repeat(" + 1", 149) + " }}").ok());
  EXPECT_THAT(ChatTemplate::Compile(std::string((1 << 20) + 1, 'x')).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "1048576 are allowed"));
  EXPECT_TRUE(ChatTemplate::Compile(std::string(1 << 20, 'x')).ok());
}

TEST(ChatTemplate, EndsWhatIsEndless) {
  const Refusal refusals[] = {
      {"{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}", "line 1, column"},
      {"{% macro m(x) %}{{ m([x]) }}{% endmacro %}{{ m(1) }}", "deep"},
      {"{% for i in range(1000000000) %}{% endfor %}", "line 1, column 18: a range of 1000000000"},
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
       "the template takes more than"},
      {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
       "{% endfor %}",
       "more than"},
      {"{{ 'x' * 100000000000 }}", "bytes"},
      {"{{ [0] * 100000000000 }}", "steps"},
      {"{{ 'x'.center(100000000000) }}", "steps"},
      {"{{ '%9999999999d' % 1 }}", "a width of more than"},
      {"{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}",
       "values nest deeper than 100"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
       "{% endfor %}{{ ns.l }}",
       "more than"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
       "{% endfor %}{{ ns.l == ns.l }}{{ ns.l|tojson }}",
       "more than"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(999) %}{% set ns.l = ns.l|map('default', "
       "ns.l) %}{% endfor %}",
       "values nest deeper than 100"},
      {"{% for i in [[]] recursive %}{{ loop([i]) }}{% endfor %}", "deep"},
      {"{{ 9223372036854775807 + 1 }}", "more than 64 bits"},
      {"{{ 2 ** 99999 }}", "more than 64 bits"},
  };
  for (const Refusal& refusal : refusals) {
    const absl::StatusOr<std::string> text = Text(refusal.source);
    ASSERT_FALSE(text.ok()) << refusal.source;
    EXPECT_THAT(std::string(text.status().message()),
                testing::AllOf(HasSubstr(std::string(refusal.message)), HasSubstr("line 1")))
        << refusal.source;
  }
}

TEST(ChatTemplate, SaysWhereARenderFails) {
  const Refusal refusals[] = {
      {"\n{{ missing.x }}", "line 2, column 11: 'missing' is undefined"},
      {"{{ raise_exception('No tools\\nhere') }}", "the template refuses: No tools\nhere"},
      {"{{ 1 + 'a' }}", "unsupported operand types for +: 'int' and 'str'"},
      {"{{ none|length }}", "object of type 'NoneType' has no len()"},
      {"{{ [1].append(2) }}", "access to attribute 'append' of 'list' object is unsafe"},
      {"{% set ns = namespace() %}{% set ns._x = 1 %}", "may not begin with '_'"},
      {"{% set x = 1 %}{% set x.y = 1 %}", "'x' is no namespace"},
      {"{% for a, b in [[1]] %}{% endfor %}", "expected 2 values to unpack, got 1"},
      {"{{ namespace()|tojson }}", "is not JSON serializable"},
      {"{{ missing|tojson }}", "Object of type Undefined is not JSON serializable"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "takes no keyword argument 'b'"},
  };
  for (const Refusal& refusal : refusals) {
    EXPECT_THAT(Text(refusal.source).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, std::string(refusal.message)))
        << refusal.source;
  }
}

TEST(ChatTemplate, LimitsAreThoseGiven) {
  ChatInput input{.messages = Value::List({}), .now = kNow};
  input.limits = {.steps = 1000, .text_bytes = 10};
  EXPECT_EQ(Render("{{ 'x' * 10 }}", input)->text, "xxxxxxxxxx");
  EXPECT_THAT(Render("{{ 'x' * 11 }}", input).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "more than 10 bytes"));
  EXPECT_THAT(Render("123456789{{ 12 }}", input).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "more than 10 bytes"));
}

TEST(ParseJson, RefusesWhatIsNoJson) {
  const Refusal refusals[] = {
      {"", "no JSON at byte"},
      {"{", "no JSON at byte"},
      {"[1,]", "no JSON at byte"},
      {"{\"a\":1} x", "no JSON at byte"},
      {"\"\xff\"", "no JSON at byte"},
      {"\"\\ud800\"", "no JSON at byte"},
      {"NaN", "no JSON at byte"},
      {"18446744073709551615", "more than 64 bits"},
      {"9223372036854775808", "more than 64 bits"},
      {"-9223372036854775809", "more than 64 bits"},
      {"99999999999999999999999", "more than 64 bits"},
  };
  for (const Refusal& refusal : refusals) {
    EXPECT_THAT(ParseJson(refusal.source).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, std::string(refusal.message)))
        << refusal.source;
  }
  EXPECT_THAT(ParseJson(std::string_view("{}\0{", 4)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "no JSON at byte 3: a zero byte"));
  EXPECT_TRUE(ParseJson(std::string(100, '[') + std::string(100, ']')).ok());
  EXPECT_THAT(ParseJson(std::string(101, '[') + std::string(101, ']')).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "nests deeper than 100"));
  EXPECT_EQ(ParseJson("-9223372036854775808")->integer(), INT64_MIN);
  // The last of equal keys counts, at the first's place.
  EXPECT_EQ(*Text("{{ d }}", R"({"d": {"a": 1, "b": 2, "a": 3}})"), "{'a': 3, 'b': 2}");
}

}  // namespace
}  // namespace gantry
