#include "benches/suite/process_usage.h"

#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/strings.h"

namespace gantry {

double ProcessCpuSeconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0.0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

absl::StatusOr<Bytes> ProcessPrivateBytes() {
  std::ifstream file("/proc/self/status");
  std::string line;
  int64_t kibibytes = 0;
  int found = 0;
  while (std::getline(file, line)) {
    for (const std::string& key : {std::string("RssAnon:"), std::string("RssShmem:")}) {
      if (!line.starts_with(key)) continue;
      kibibytes += std::strtoll(line.c_str() + key.size(), nullptr, 10);
      ++found;
    }
  }
  if (found != 2) return Unavailable("/proc/self/status does not tell the process's memory");
  return Bytes(kibibytes * 1024);
}

}  // namespace gantry
