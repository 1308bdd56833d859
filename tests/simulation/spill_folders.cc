#include "tests/simulation/spill_folders.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/check.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/strings.h"
#include "nvme/run_directory.h"

namespace gantry {

SpillFolders::SpillFolders(int count) {
  const std::filesystem::path memory = "/dev/shm";
  const std::filesystem::path parent =
      std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
  std::string pattern = (parent / "gantry-simulation-XXXXXX").string();
  GANTRY_CHECK(mkdtemp(pattern.data()) != nullptr) << pattern;
  root_ = pattern;
  for (int i = 0; i < count; ++i) {
    paths_.push_back(StrCat(root_, "/", i));
    GANTRY_CHECK(std::filesystem::create_directory(paths_.back())) << paths_.back();
  }
}

SpillFolders::~SpillFolders() {
  std::error_code ignored;
  std::filesystem::remove_all(root_, ignored);
}

std::string SpillFolders::WhatIsLeft(Run run) const {
  PosixFileCalls files;
  MonotonicClock clock;
  for (const std::string& path : paths_) {
    if (run == Run::kFaulty) {
      const auto cleaned = RunDirectory::CleanStale(files, clock, path);
      if (!cleaned.ok()) return cleaned.status().ToString();
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) return entry.path();
  }
  return "";
}

}  // namespace gantry
