// The program shows what a data file becomes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "trainer/cli/testing/program.h"
#include "trainer/cli/testing/program_folder.h"
#include "trainer/data/testing/byte_tokenizer.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

constexpr char kConfig[] = R"({"eos_token": "<|im_end|>"})";
constexpr char kTemplate[] =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
constexpr char kData[] =
    R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]
{"text": "some text"}
{"messages": 5}
)";

class GantryPreviewTest : public ::testing::Test {
 protected:
  GantryPreviewTest() : folder_("preview") {
    EXPECT_EQ(mkdir((folder_.path() + "/model").c_str(), 0777), 0);
    folder_.Write("model/tokenizer.json", ByteTokenizerFile(AddsBos::kNo));
    folder_.Write("model/tokenizer_config.json", kConfig);
    folder_.Write("model/chat_template.jinja", kTemplate);
    folder_.Write("data.jsonl", kData);
  }
  ProgramResult Preview(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"preview", "--model=model", "--data=data.jsonl"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return folder_.Run(arguments);
  }

  ProgramFolder folder_;
};

TEST_F(GantryPreviewTest, ShowsTokensAndTheirMask) {
  const ProgramResult result = Preview({"--skip-bad-lines", "--sequence-length=64"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("example in line 1: 25 tokens, 3 of them scored"));
  EXPECT_THAT(result.out, HasSubstr("\"<|im_start|>\"\n"));
  EXPECT_THAT(result.out, HasSubstr("\"Y\"  scored\n"));
  EXPECT_THAT(result.out, HasSubstr("\"<|im_end|>\"  scored\n"));
  EXPECT_THAT(result.out, HasSubstr("3 examples, 1 skipped, 0 cut to 65 tokens"));
  EXPECT_THAT(result.out, HasSubstr("2 examples in 1 sequences of 64"));
  EXPECT_THAT(result.out, HasSubstr("line 3: \"messages\" is no list, but int"));
}

TEST_F(GantryPreviewTest, PrintsJson) {
  const ProgramResult result =
      Preview({"--skip-bad-lines", "--example=2", "--sequence-length=4", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\"text\":\"some text\""));
  EXPECT_THAT(result.out, HasSubstr("{\"id\":111,\"text\":\"o\",\"scored\":true}"));
  EXPECT_THAT(result.out, HasSubstr("\"scored_tokens\":4,"));
}

TEST_F(GantryPreviewTest, SaysWhatIsWrong) {
  const ProgramResult bad = Preview({});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.err, HasSubstr("data.jsonl', line 3: \"messages\" is no list, but int"));
  EXPECT_THAT(Preview({"--example=9"}).err, HasSubstr("has 3 lines, so there is no example 9"));
  for (const char* wrong : {"--example=0", "--example=x", "--date=2026-02-30", "--frobnicate"}) {
    EXPECT_EQ(Preview({wrong}).exit_code, 2) << wrong;
  }
  EXPECT_EQ(folder_.Run({"preview"}).exit_code, 2);
}

}  // namespace
}  // namespace gantry
