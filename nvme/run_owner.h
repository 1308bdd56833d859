// Who made a run's directory, as its lock file says in one line that people read too:
//   pid 4711 host worker-3 boot 6f1c0d1e-... started 2026-11-30T17:17:33Z
// Plain data; stateless functions.
#ifndef GANTRY_NVME_RUN_OWNER_H_
#define GANTRY_NVME_RUN_OWNER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_calls.h"

namespace gantry {

struct RunOwner {
  int64_t pid = 0;
  std::string host;     // its name; letters, digits, '.', '-' and '_', others as '?'
  std::string boot;     // what the kernel calls its life since it was started; "?": not told
  int64_t started = 0;  // seconds since 1970

  // This process, now.
  static RunOwner Current(FileCalls& files);
  // With its line break.
  std::string ToLine() const;
  // Nothing for any other text.
  static std::optional<RunOwner> Parse(std::string_view line);

  // Whether both are on one machine: one boot of one kernel (containers have names of their own),
  // or, one of them before and one after a reboot, machines of one name.
  bool OnSameMachineAs(const RunOwner& other) const;

  bool operator==(const RunOwner&) const = default;
};

}  // namespace gantry

#endif  // GANTRY_NVME_RUN_OWNER_H_
