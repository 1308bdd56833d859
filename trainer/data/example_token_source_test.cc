// Bytes are tokens here (testing/byte_tokenizer.h), and the templates put nothing around text, so
// what a sequence holds can be read.
#include "trainer/data/example_token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/parallel_for.h"
#include "base/testing/status_matchers.h"
#include "kernels/cross_entropy_head.h"
#include "trainer/data/example_encoder.h"
#include "trainer/data/testing/byte_tokenizer.h"
#include "trainer/data/token_source.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ExampleTokenSourceTest : public ::testing::Test {
 protected:
  ExampleTokenSourceTest()
      : tokenizer_(MakeByteTokenizer(AddsBos::kNo)),
        encoder_(*ExampleEncoder::Create({.tokenizer = tokenizer_.get(), .eos_token = "</s>"})),
        team_(*ThreadTeam::Create({.threads = 2})) {}

  std::string Write(const std::string& name, const std::string& content) {
    const std::string path = ::testing::TempDir() + name;
    GANTRY_CHECK_OK(WriteFileAtomically(calls_, path, std::as_bytes(std::span(content))));
    return path;
  }
  ExampleSetOptions OptionsOf(const std::string& content, int64_t sequence_length) {
    return {.files = {Write("examples.jsonl", content)},
            .encoder = &encoder_,
            .source = {.sequence_length = sequence_length, .padding_token = 0, .seed = 3}};
  }
  absl::StatusOr<ExampleSet> Open(const ExampleSetOptions& options) {
    return OpenExamples(calls_, *team_, options);
  }

  // `count` texts of 1 to 9 letters, each of a letter of its own.
  static std::string Texts(int count) {
    std::string content;
    for (int i = 0; i < count; ++i) {
      content +=
          "{\"text\": \"" +
          std::string(static_cast<size_t>(1 + (i * 7) % 9), static_cast<char>('A' + i % 26)) +
          std::to_string(i) + "\"}\n";
    }
    return content;
  }
  // The documents of a batch, padding left out.
  static std::vector<std::string> Documents(const SampledTokens& batch) {
    std::vector<std::string> documents;
    for (size_t d = 0; d < batch.documents.size(); ++d) {
      const auto begin = static_cast<size_t>(batch.documents[d]);
      const size_t end = d + 1 < batch.documents.size()
                             ? static_cast<size_t>(batch.documents[d + 1])
                             : batch.tokens.size();
      std::string text;
      for (size_t i = begin; i < end; ++i) {
        if (batch.targets[i] != kIgnoreTarget) text += static_cast<char>(batch.tokens[i]);
      }
      if (!text.empty()) documents.push_back(text);
    }
    return documents;
  }

  PosixFileCalls calls_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ExampleEncoder encoder_;
  std::unique_ptr<ThreadTeam> team_;
};

TEST_F(ExampleTokenSourceTest, PacksDocumentsWithTheirBeginnings) {
  const auto set = Open(OptionsOf("{\"text\": \"abcd\"}\n\n{\"text\": \"xy\"}\n", 8));
  ASSERT_TRUE(set.ok()) << set.status();
  const ExampleTokenSource& source = *set->training;
  EXPECT_EQ(source.sequences_per_epoch(), 1);
  EXPECT_EQ(source.scored_tokens_per_epoch(), 6);
  EXPECT_EQ(source.padding_positions(), 2);
  EXPECT_EQ(set->summary.lines, 2);
  EXPECT_EQ(set->summary.tokens, 8);
  const auto batch = source.Read(0, 1);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(batch->tokens, ElementsAre('a', 'b', 'c', 'd', 'x', 'y', 0, 0));
  EXPECT_THAT(batch->targets,
              ElementsAre('b', 'c', 'd', kEos, 'y', kEos, kIgnoreTarget, kIgnoreTarget));
  EXPECT_THAT(batch->documents, ElementsAre(0, 4, 6));
  EXPECT_EQ(batch->scored_tokens, 6);
}

TEST_F(ExampleTokenSourceTest, GivesEachDocumentOnceInEachEpoch) {
  for (const Packing packing : {Packing::kPacked, Packing::kOneEach}) {
    ExampleSetOptions options = OptionsOf(Texts(300), 16);
    options.source.packing = packing;
    const auto set = Open(options);
    ASSERT_TRUE(set.ok()) << set.status();
    const ExampleTokenSource& source = *set->training;
    const int64_t sequences = source.sequences_per_epoch();
    EXPECT_EQ(packing == Packing::kOneEach, sequences == 300);
    std::vector<std::vector<std::string>> epochs;
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      const auto batch = source.Read(epoch * sequences, sequences);
      ASSERT_TRUE(batch.ok());
      EXPECT_EQ(batch->scored_tokens, source.scored_tokens_per_epoch());
      EXPECT_EQ(static_cast<int64_t>(batch->tokens.size()), sequences * 16);
      epochs.push_back(Documents(*batch));
      EXPECT_EQ(epochs.back().size(), 300u);
    }
    EXPECT_NE(epochs[0], epochs[1]) << "the order does not change";
    for (auto& epoch : epochs) std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epochs[0], epochs[1]);
    EXPECT_EQ(std::set<std::string>(epochs[0].begin(), epochs[0].end()).size(), 300u);
  }
}

TEST_F(ExampleTokenSourceTest, ASequenceDependsOnItsNumberOnly) {
  const ExampleSetOptions options = OptionsOf(Texts(200), 32);
  const auto set = Open(options);
  const auto again = Open(options);
  ASSERT_TRUE(set.ok() && again.ok());
  const int64_t sequences = set->training->sequences_per_epoch();
  // Across the end of an epoch.
  const auto whole = set->training->Read(sequences - 3, 6);
  ASSERT_TRUE(whole.ok());
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < 6; i += 2) {
    const auto piece = again->training->Read(sequences - 3 + i, 2);
    tokens.insert(tokens.end(), piece->tokens.begin(), piece->tokens.end());
  }
  EXPECT_EQ(tokens, whole->tokens);
  EXPECT_EQ(set->training->fingerprint(), again->training->fingerprint());
}

TEST_F(ExampleTokenSourceTest, TheFingerprintTellsDataAndOptionsApart) {
  std::set<std::string> prints;
  ExampleSetOptions options = OptionsOf(Texts(50), 16);
  prints.insert(Open(options)->training->fingerprint());
  options.source.seed = 4;
  prints.insert(Open(options)->training->fingerprint());
  options.source.sequence_length = 17;
  prints.insert(Open(options)->training->fingerprint());
  options.source.packing = Packing::kOneEach;
  prints.insert(Open(options)->training->fingerprint());
  options.validation_fraction = 0.5;
  prints.insert(Open(options)->training->fingerprint());
  prints.insert(Open(OptionsOf(Texts(51), 16))->training->fingerprint());
  EXPECT_EQ(prints.size(), 6u);
}

TEST_F(ExampleTokenSourceTest, SetsExamplesAside) {
  ExampleSetOptions options = OptionsOf(Texts(400), 16);
  options.validation_fraction = 0.25;
  const auto set = Open(options);
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_NE(set->validation, nullptr);
  EXPECT_EQ(set->training->examples() + set->validation->examples(), 400);
  // 100 are expected, with a standard deviation of 8.7.
  EXPECT_GT(set->validation->examples(), 60);
  EXPECT_LT(set->validation->examples(), 140);
  const int64_t sequences = set->validation->sequences_per_epoch();
  const auto all =
      set->validation->ReadEvenly({.first = 0, .count = sequences, .total = sequences});
  ASSERT_TRUE(all.ok());
  std::vector<std::string> validation = Documents(*all);
  EXPECT_EQ(static_cast<int64_t>(validation.size()), set->validation->examples());
  const auto training = set->training->Read(0, set->training->sequences_per_epoch());
  for (const std::string& document : Documents(*training)) {
    EXPECT_EQ(std::count(validation.begin(), validation.end(), document), 0) << document;
  }
  // More than there are: some come again.
  EXPECT_TRUE(
      set->validation->ReadEvenly({.first = sequences, .count = sequences, .total = 2 * sequences})
          .ok());
}

TEST_F(ExampleTokenSourceTest, NamesTheFirstBadLineOrSkipsThem) {
  std::string content = Texts(20);
  content +=
      "{\"text\": 1}\n" + Texts(5) + "{\"text\": \"" + std::string(40, 'x') + "\"}\nnot JSON";
  ExampleSetOptions options = OptionsOf(content, 16);
  EXPECT_THAT(Open(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("examples.jsonl', line 21: \"text\" is no text"))));
  options.skip_bad_lines = true;
  const auto set = Open(options);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->summary.lines, 28);
  EXPECT_EQ(set->summary.skipped, 2);
  EXPECT_EQ(set->summary.truncated, 1);
  ASSERT_EQ(set->summary.skipped_reasons.size(), 2u);
  EXPECT_THAT(set->summary.skipped_reasons[1], HasSubstr("line 28: no JSON at byte"));
  EXPECT_EQ(set->training->examples(), 26);
}

TEST_F(ExampleTokenSourceTest, CutsTheEndAndRefusesWhatIsThenNotScored) {
  const auto fits = Open(OptionsOf(R"({"prompt": "abc", "completion": "def"})", 6));
  ASSERT_TRUE(fits.ok());
  EXPECT_EQ(fits->summary.truncated, 0);
  const auto cut = Open(OptionsOf(R"({"prompt": "abc", "completion": "def"})", 3));
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->summary.truncated, 1);
  EXPECT_EQ(cut->training->scored_tokens_per_epoch(), 1);
  EXPECT_THAT(cut->training->Read(0, 1)->targets, ElementsAre(kIgnoreTarget, kIgnoreTarget, 'd'));
  EXPECT_THAT(Open(OptionsOf(R"({"prompt": "abc", "completion": "def"})", 2)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "all of its 4 scored tokens lie behind the first 3"));
}

TEST_F(ExampleTokenSourceTest, NoticesAFileThatChanges) {
  const auto set = Open(OptionsOf("{\"text\": \"abcd\"}\n", 4));
  ASSERT_TRUE(set.ok());
  // In place: the descriptor that is open sees it.
  const std::string path = ::testing::TempDir() + "examples.jsonl";
  const auto file = OpenFile(calls_, path, 1 /* O_WRONLY */, 0);
  const std::string other = "{\"text\":\"abcdefg\"";
  ASSERT_TRUE(
      WriteAll(calls_, {.fd = file->get(), .path = path}, 0, std::as_bytes(std::span(other))).ok());
  EXPECT_FALSE(set->training->Read(0, 1).ok());
}

TEST_F(ExampleTokenSourceTest, RefusesOptionsOutOfRangeAndNothingToTrainOn) {
  ExampleSetOptions options = OptionsOf(Texts(3), 0);
  EXPECT_THAT(Open(options).status(), StatusIs(absl::StatusCode::kInvalidArgument, "0 tokens"));
  options = OptionsOf(Texts(3), 4);
  options.validation_fraction = 1.0;
  EXPECT_THAT(Open(options).status(), StatusIs(absl::StatusCode::kInvalidArgument, "below 1"));
  options.validation_fraction = 1e-9;
  EXPECT_THAT(Open(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "0 to validate with"));
  options = OptionsOf("\n \n", 4);
  EXPECT_THAT(Open(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "of 0 examples 0 are left"));
  options.files.clear();
  EXPECT_THAT(Open(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "no data files"));
}

}  // namespace
}  // namespace gantry
