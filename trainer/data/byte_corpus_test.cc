#include "trainer/data/byte_corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ByteCorpusTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return ::testing::TempDir() + name; }
  std::string Write(const std::string& name, const std::string& content) {
    GANTRY_CHECK_OK(WriteFileAtomically(calls_, Path(name), std::as_bytes(std::span(content))));
    return Path(name);
  }
  absl::StatusOr<ByteCorpus> Load(std::vector<std::string> files, int64_t sequence_length = 1,
                                  double validation_fraction = 0.0) {
    return ByteCorpus::Load(calls_, {.files = std::move(files),
                                     .sequence_length = sequence_length,
                                     .validation_fraction = validation_fraction});
  }

  PosixFileCalls calls_;
};

TEST_F(ByteCorpusTest, HoldsTheBytesOfAllFilesInOrder) {
  const std::string a = Write("a", std::string("x\0\xff", 3));
  const std::string b = Write("b", "yz");
  const auto corpus = Load({a, b, a});
  ASSERT_THAT(corpus, IsOk());
  EXPECT_THAT(corpus->training(), ElementsAre('x', 0, 0xff, 'y', 'z', 'x', 0, 0xff));
  EXPECT_TRUE(corpus->validation().empty());
}

TEST_F(ByteCorpusTest, SetsTheEndAsideForValidation) {
  const std::string path = Write("ten", "0123456789");
  const auto corpus = Load({path}, 1, 0.25);
  ASSERT_THAT(corpus, IsOk());
  EXPECT_EQ(corpus->training().size(), 8u);
  EXPECT_THAT(corpus->validation(), ElementsAre('8', '9'));
}

TEST_F(ByteCorpusTest, SpansFollowAMove) {
  auto loaded = Load({Write("short", "ab")});
  ASSERT_THAT(loaded, IsOk());
  const ByteCorpus moved = *std::move(loaded);
  EXPECT_THAT(moved.training(), ElementsAre('a', 'b'));
}

TEST_F(ByteCorpusTest, FingerprintTellsTextAndSplitApart) {
  const std::string path = Write("ten", "0123456789");
  const std::string other = Write("other", "0123456788");
  const std::string base = Load({path})->fingerprint();
  EXPECT_EQ(base, Load({path}, 3)->fingerprint());
  EXPECT_NE(base, Load({other})->fingerprint());
  EXPECT_NE(base, Load({path}, 1, 0.2)->fingerprint());
}

TEST_F(ByteCorpusTest, LengthLimitsAreExact) {
  const std::string path = Write("ten", "0123456789");
  EXPECT_THAT(Load({path}, 9), IsOk());
  EXPECT_THAT(Load({path}, 10),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the training text has 10 bytes, but one sequence of 10 tokens needs "
                       "10 + 1: name more text or choose a shorter sequence"));
  EXPECT_THAT(Load({path}, 2, 0.3), IsOk());
  EXPECT_THAT(Load({path}, 2, 0.2),
              StatusIs(absl::StatusCode::kInvalidArgument, "the validation text has 2 bytes"));
}

TEST_F(ByteCorpusTest, RefusesWhatIsNoText) {
  const std::string good = Write("good", "text");
  EXPECT_THAT(Load({}), StatusIs(absl::StatusCode::kInvalidArgument, "no text files"));
  EXPECT_THAT(Load({good, Write("nothing", "")}),
              StatusIs(absl::StatusCode::kInvalidArgument, "nothing' is empty"));
  EXPECT_THAT(
      Load({Path("absent")}),
      StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("absent"), HasSubstr("No such file"))));
  EXPECT_THAT(Load({::testing::TempDir()}),
              StatusIs(absl::StatusCode::kInvalidArgument, "a directory, not a regular file"));
  EXPECT_THAT(Load({"/dev/zero"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "a device, not a regular file"));
}

TEST_F(ByteCorpusTest, NamesAnUnreadableFile) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads every file";
  const std::string path = Write("secret", "text");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  EXPECT_THAT(Load({path}), StatusIs(absl::StatusCode::kPermissionDenied, "secret"));
}

TEST_F(ByteCorpusTest, RefusesMoreThanTheLimit) {
  const std::string path = Write("huge", "x");
  ASSERT_EQ(truncate(path.c_str(), kTextBytesMax.count() + 1), 0);  // sparse
  EXPECT_THAT(Load({path}), StatusIs(absl::StatusCode::kResourceExhausted, "larger than 1.0 GiB"));
  unlink(path.c_str());
}

TEST_F(ByteCorpusTest, RefusesBadNumbers) {
  const std::string good = Write("good", "text");
  EXPECT_THAT(Load({good}, 0), StatusIs(absl::StatusCode::kInvalidArgument));
  for (const double fraction : {-0.1, 1.0, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(Load({good}, 1, fraction),
                StatusIs(absl::StatusCode::kInvalidArgument, "validation fraction"));
  }
}

}  // namespace
}  // namespace gantry
