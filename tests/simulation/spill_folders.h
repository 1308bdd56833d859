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
  // The first thing that lies in one of them; empty: nothing.
  std::string WhatIsLeft() const;

 private:
  std::string root_;
  std::vector<std::string> paths_;
};

}  // namespace gantry

#endif  // GANTRY_TESTS_SIMULATION_SPILL_FOLDERS_H_
