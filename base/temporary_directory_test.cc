#include "base/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "base/testing/faulty_file_calls.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr auto kAlreadyExists = absl::StatusCode::kAlreadyExists;

class TemporaryDirectoryTest : public ::testing::Test {
 protected:
  TemporaryDirectoryTest() : folder_(::testing::TempDir() + "temporary_directory_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~TemporaryDirectoryTest() override { fs::remove_all(folder_); }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  auto Create(const std::string& name) {
    return TemporaryDirectory::Create(&files_, folder_ + "/" + name);
  }

  PosixFileCalls files_;
  std::string folder_;
};

TEST_F(TemporaryDirectoryTest, AppearsWhenCommitted) {
  auto directory = Create("a/b");
  ASSERT_THAT(directory, IsOk());
  std::ofstream(directory->path() + "/file") << "content";
  EXPECT_FALSE(fs::exists(folder_ + "/a/b"));
  EXPECT_THAT(directory->path(), StartsWith(folder_ + "/a/.b.gantry-"));
  ASSERT_THAT(directory->Commit(), IsOk());
  EXPECT_TRUE(fs::exists(folder_ + "/a/b/file"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ + "/a"), fs::directory_iterator()), 1);
  EXPECT_DEATH(directory->Commit().IgnoreError(), "committed twice");
}

TEST_F(TemporaryDirectoryTest, IsGoneWhenNotCommitted) {
  {
    auto directory = Create("a");
    ASSERT_THAT(directory, IsOk());
    std::ofstream(directory->path() + "/file") << "content";
    const TemporaryDirectory moved(*std::move(directory));
    EXPECT_TRUE(fs::exists(moved.path() + "/file"));
  }
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(TemporaryDirectoryTest, ReplacesNothingButAnEmptyDirectory) {
  fs::create_directory(folder_ + "/a");
  auto directory = Create("a/");
  ASSERT_THAT(directory, IsOk());
  std::ofstream(directory->path() + "/file") << "content";
  ASSERT_THAT(directory->Commit(), IsOk());
  EXPECT_TRUE(fs::exists(folder_ + "/a/file"));
  EXPECT_THAT(Create("a"), StatusIs(kAlreadyExists, "is there already"));
  EXPECT_THAT(Create("a/file"), StatusIs(kAlreadyExists, "is there already"));
  fs::create_symlink("a", folder_ + "/link");
  EXPECT_THAT(Create("link"), StatusIs(kAlreadyExists, "is there already"));
  EXPECT_THAT(Names(), ElementsAre("a", "link"));
}

TEST_F(TemporaryDirectoryTest, SomethingThatCameMeanwhileStays) {
  {
    auto directory = Create("a");
    ASSERT_THAT(directory, IsOk());
    fs::create_directory(folder_ + "/a");
    std::ofstream(folder_ + "/a/theirs") << "content";
    EXPECT_THAT(directory->Commit(), StatusIs(kAlreadyExists, "is there already"));
    fs::remove_all(folder_ + "/a");
    std::ofstream(folder_ + "/a") << "a file";
    EXPECT_THAT(directory->Commit(), StatusIs(kAlreadyExists, "is there already"));
  }
  EXPECT_THAT(Names(), ElementsAre("a"));
}

TEST_F(TemporaryDirectoryTest, NoNamesAreRefused) {
  for (const std::string name : {"", "/", "//", ".", "a/..", "a/."}) {
    EXPECT_THAT(TemporaryDirectory::Create(&files_, name),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << name;
  }
}

TEST_F(TemporaryDirectoryTest, FailuresLeaveNothingBehind) {
  for (const FileCallKind kind : {FileCallKind::kSync, FileCallKind::kRename}) {
    FaultyFileCalls files(&files_);
    files.Inject({.kind = kind, .first = 0}, FailCall{EIO});
    {
      auto directory = TemporaryDirectory::Create(&files, folder_ + "/a");
      ASSERT_THAT(directory, IsOk());
      EXPECT_THAT(directory->Commit(), StatusIs(absl::StatusCode::kDataLoss));
    }
    EXPECT_THAT(Names(), IsEmpty());
  }
}

}  // namespace
}  // namespace gantry
