#include "placement_policy/report/html_text.h"

#include <nlohmann/json.hpp>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HtmlTextTest, PlainTextStays) {
  EXPECT_EQ(HtmlText(""), "");
  EXPECT_EQ(HtmlText("model.layers.0\tµs – 日\n"), "model.layers.0\tµs – 日\n");
}

TEST(HtmlTextTest, MarkupIsEscaped) {
  EXPECT_EQ(HtmlText("</script><img onerror=\"a('&')\">"),
            "&lt;/script&gt;&lt;img onerror=&quot;a(&#39;&amp;&#39;)&quot;&gt;");
}

TEST(HtmlTextTest, WhatIsNoTextIsReplaced) {
  constexpr const char* kReplaced = "\xef\xbf\xbd";
  EXPECT_EQ(HtmlText(std::string("a\0b", 3)), std::string("a") + kReplaced + "b");
  EXPECT_EQ(HtmlText("\x1b"), kReplaced);
  EXPECT_EQ(HtmlText("\x7f"), kReplaced);
  EXPECT_EQ(HtmlText("\xff"), kReplaced);                               // never in UTF-8
  EXPECT_EQ(HtmlText("\xc0\xbc"), std::string(kReplaced) + kReplaced);  // over-long '<'
  EXPECT_EQ(HtmlText("\xe2\x82"), std::string(kReplaced) + kReplaced);  // cut off
}

TEST(JsonForScriptTest, MeansTheSameAndCannotEndTheElement) {
  const std::string name = "</script><!-- & \\ \" ]]>";
  const std::string json = nlohmann::json({{"name", name}}).dump();
  const std::string embedded = JsonForScript(json);
  EXPECT_THAT(embedded, Not(HasSubstr("<")));
  EXPECT_THAT(embedded, Not(HasSubstr(">")));
  EXPECT_THAT(embedded, Not(HasSubstr("&")));
  EXPECT_EQ(nlohmann::json::parse(embedded)["name"], name);
}

}  // namespace
}  // namespace gantry
