// What a figure was measured on: processor, memory, kernel, drive, settings. Whoever reads a figure
// later needs it; nothing here names the machine.
//
// Plain data; stateless functions that read /proc and /sys. What cannot be read is left out.
#ifndef GANTRY_BENCHES_SUITE_MACHINE_H_
#define GANTRY_BENCHES_SUITE_MACHINE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace gantry {

struct MachineDescription {
  using Fact = std::variant<std::string, int64_t, double, bool>;
  std::vector<std::pair<std::string, Fact>> facts;  // in order, each key once

  void Add(std::string_view key, Fact fact);
  // The fact of that key as text; empty when there is none.
  std::string Find(std::string_view key) const;
};

// Processor, memory, kernel, transparent huge pages, load, and how this program was built.
MachineDescription DescribeMachine();

// Adds file system and drive of `directory`: names, whether it rotates, scheduler, alignment of
// direct I/O (0: there is none). Leaves out what is not known, as on a network file system.
void DescribeDirectory(const std::string& directory, MachineDescription& machine);

}  // namespace gantry

#endif  // GANTRY_BENCHES_SUITE_MACHINE_H_
