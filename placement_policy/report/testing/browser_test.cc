// The helper must tell a good page from one that is blank, throws, or complains.
#include "placement_policy/report/testing/browser.h"

#include <string>

#include "absl/status/statusor.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(BrowserTest, SeesWhatScriptsHaveMade) {
  const absl::StatusOr<OpenedPage> page =
      OpenInBrowser("made", R"(<html><body><p style="color:#c00">text</p>
<script>document.documentElement.setAttribute('data-sum', String(1 + 1));</script></body></html>)",
                    Picture::kTaken);
  ASSERT_THAT(page, IsOk());
  EXPECT_EQ(RootAttribute(*page, "data-sum"), "2");
  EXPECT_EQ(RootAttribute(*page, "data-other"), "");
  EXPECT_THAT(page->console, IsEmpty());
  EXPECT_GT(page->colours, 1);
  EXPECT_GT(page->commonest, 0.9);
  EXPECT_LT(page->commonest, 1.0);
}

TEST(BrowserTest, SeesThatAPageIsBlank) {
  const absl::StatusOr<OpenedPage> page =
      OpenInBrowser("blank", "<html><body></body></html>", Picture::kTaken);
  ASSERT_THAT(page, IsOk());
  EXPECT_EQ(page->colours, 1);
  EXPECT_EQ(page->commonest, 1.0);
}

TEST(BrowserTest, SeesErrorsOfScripts) {
  const absl::StatusOr<OpenedPage> page = OpenInBrowser(
      "broken", WithScript("<html><body></body></html>", "missing();"), Picture::kNone);
  ASSERT_THAT(page, IsOk());
  EXPECT_THAT(page->console, HasSubstr("missing is not defined"));
}

}  // namespace
}  // namespace gantry
