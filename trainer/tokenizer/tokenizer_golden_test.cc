// Goal: ids, offsets and decoded texts are those of the reference implementation. Method:
// testdata/make_goldens.py asked it about 2,000 random texts of many scripts, with broken UTF-8,
// for tokenizers with the steps of published models; here the checksums of the answers are
// compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "trainer/tokenizer/encoding.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {
namespace {

constexpr std::string_view kFolder = "trainer/tokenizer/testdata/";

struct Golden {
  std::string name;
  std::vector<uint32_t> checksums;  // one for each text
};

struct Goldens {
  std::vector<std::string> texts;
  std::vector<Golden> tokenizers;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  uint32_t Number() {
    uint32_t number = 0;
    GANTRY_CHECK(rest_.size() >= sizeof(number));
    std::memcpy(&number, rest_.data(), sizeof(number));
    rest_.remove_prefix(sizeof(number));
    return number;
  }
  std::string Text() {
    const uint32_t size = Number();
    GANTRY_CHECK(rest_.size() >= size);
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }

 private:
  std::string_view rest_;
};

Goldens ReadGoldens() {
  PosixFileCalls files;
  const absl::StatusOr<std::string> bytes =
      ReadFileToString(files, StrCat(kFolder, "goldens.bin"), Bytes(1 << 20));
  GANTRY_CHECK_OK(bytes.status());
  Reader reader(*bytes);
  Goldens goldens;
  const uint32_t texts = reader.Number();
  for (uint32_t i = 0; i < texts; ++i) goldens.texts.push_back(reader.Text());
  const uint32_t tokenizers = reader.Number();
  for (uint32_t i = 0; i < tokenizers; ++i) {
    Golden& golden = goldens.tokenizers.emplace_back();
    golden.name = reader.Text();
    for (uint32_t k = 0; k < texts; ++k) golden.checksums.push_back(reader.Number());
  }
  return goldens;
}

// FNV-1a over what make_goldens.py writes for an answer.
class Checksum {
 public:
  void Add(std::string_view bytes) {
    for (const char byte : bytes) {
      value_ = (value_ ^ static_cast<unsigned char>(byte)) * 0x01000193;
    }
  }
  void Add(int64_t number) {
    const auto value = static_cast<int32_t>(number);
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    Add(std::string_view(bytes, sizeof(bytes)));
  }
  uint32_t value() const { return value_; }

 private:
  uint32_t value_ = 0x811C9DC5;
};

uint32_t ChecksumOf(const Tokenizer& tokenizer, const std::string& text) {
  const absl::StatusOr<Encoding> encoding = tokenizer.Encode(text, {.want_offsets = true});
  GANTRY_CHECK_OK(encoding.status());
  Checksum checksum;
  checksum.Add(static_cast<int64_t>(encoding->ids.size()));
  for (const int32_t id : encoding->ids) checksum.Add(static_cast<int64_t>(id));
  for (const TextRange& range : encoding->offsets) {
    checksum.Add(range.begin);
    checksum.Add(range.end);
  }
  for (const bool skips : {false, true}) {
    const std::string decoded = tokenizer.Decode(encoding->ids, {.skip_special_tokens = skips});
    checksum.Add(static_cast<int64_t>(decoded.size()));
    checksum.Add(decoded);
  }
  return checksum.value();
}

std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& name) {
  PosixFileCalls files;
  auto tokenizer = Tokenizer::Load(files, StrCat(kFolder, name, ".json"));
  GANTRY_CHECK_OK(tokenizer.status());
  return *std::move(tokenizer);
}

TEST(TokenizerGoldenTest, GivesWhatTheReferenceGives) {
  const Goldens goldens = ReadGoldens();
  ASSERT_GE(goldens.texts.size(), 2000u);
  ASSERT_EQ(goldens.tokenizers.size(), 8u);
  for (const Golden& golden : goldens.tokenizers) {
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(golden.name);
    int differences = 0;
    for (size_t i = 0; i < goldens.texts.size() && differences < 5; ++i) {
      if (ChecksumOf(*tokenizer, goldens.texts[i]) == golden.checksums[i]) continue;
      ++differences;
      ADD_FAILURE() << golden.name << " differs on text " << i << ": "
                    << ::testing::PrintToString(goldens.texts[i]);
    }
  }
}

TEST(TokenizerGoldenTest, WithoutOffsetsTheIdsAreTheSame) {
  const Goldens goldens = ReadGoldens();
  for (const Golden& golden : goldens.tokenizers) {
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(golden.name);
    for (const std::string& text : goldens.texts) {
      const auto with = tokenizer->Encode(text, {.want_offsets = true});
      const auto without = tokenizer->Encode(text, {});
      ASSERT_THAT(with, IsOk());
      ASSERT_THAT(without, IsOk());
      ASSERT_EQ(with->ids, without->ids) << golden.name << " on " << text;
      ASSERT_TRUE(without->offsets.empty());
    }
  }
}

TEST(TokenizerGoldenTest, StreamedTextIsTheDecodedTextInWholeCharacters) {
  const Goldens goldens = ReadGoldens();
  for (const Golden& golden : goldens.tokenizers) {
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(golden.name);
    StreamingDecoder decoder(*tokenizer, {});
    for (const std::string& text : goldens.texts) {
      const auto encoding = tokenizer->Encode(text, {});
      ASSERT_THAT(encoding, IsOk());
      std::string streamed;
      for (const int32_t id : encoding->ids) {
        const std::string part = decoder.Next(id);
        for (size_t at = 0; at < part.size();) {
          const size_t size = Utf8SequenceSize(std::string_view(part).substr(at));
          ASSERT_GT(size, 0u) << golden.name << " on " << text;
          at += size;
        }
        streamed += part;
      }
      streamed += decoder.Finish();
      ASSERT_EQ(streamed, tokenizer->Decode(encoding->ids, {})) << golden.name << " on " << text;
    }
  }
}

TEST(TokenizerGoldenTest, ThreadsShareATokenizer) {
  const Goldens goldens = ReadGoldens();
  const Golden& golden = goldens.tokenizers[1];
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(golden.name);
  constexpr size_t kThreads = 4;
  std::vector<int> differences(kThreads);
  std::vector<std::thread> threads;  // thread: several callers of one tokenizer
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {  // thread: one caller
      for (size_t i = t; i < 400; ++i) {
        if (ChecksumOf(*tokenizer, goldens.texts[i]) != golden.checksums[i]) ++differences[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(differences, ::testing::Each(0));
}

}  // namespace
}  // namespace gantry
