// Empty folders for the file tier of a simulated run, in memory where the system has a place for
// that; removed with what is in them.
#ifndef GANTRY_TESTS_SIMULATION_SPILL_FOLDERS_H_
#define GANTRY_TESTS_SIMULATION_SPILL_FOLDERS_H_

#include <string>
#include <vector>

namespace gantry {

class SpillFolders {
 public:
  // Aborts when they cannot be made.
  explicit SpillFolders(int count);
  ~SpillFolders();
  SpillFolders(const SpillFolders&) = delete;
  SpillFolders& operator=(const SpillFolders&) = delete;

  const std::vector<std::string>& paths() const { return paths_; }
  // After a run: the first thing that lies in one of them. After one with faults, whose clean-up
  // may have failed as well, only what the next run would not clear away either. Empty: nothing.
  enum class Run { kHealthy, kFaulty };
  std::string WhatIsLeft(Run run) const;

 private:
  std::string root_;
  std::vector<std::string> paths_;
};

}  // namespace gantry

#endif  // GANTRY_TESTS_SIMULATION_SPILL_FOLDERS_H_
