#include "nvme/run_owner.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <sstream>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/files.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr char kUnknown[] = "?";
constexpr char kBootId[] = "/proc/sys/kernel/random/boot_id";
constexpr char kTimeFormat[] = "%Y-%m-%dT%H:%M:%SZ";
constexpr int64_t kLatestStart = int64_t{253402300799};  // the end of the year 9999

// One word of the line, whatever the system says.
std::string Word(std::string_view text) {
  std::string word(text.substr(0, text.find('\n')));
  for (char& c : word) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '-' || c == '_';
    if (!plain) c = '?';
  }
  return word.empty() ? kUnknown : word;
}

std::string TimeText(int64_t seconds) {
  const time_t time = seconds;
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), kTimeFormat, &parts)};
}

std::optional<int64_t> ParseTime(const std::string& text) {
  std::tm parts{};
  const char* const end = strptime(text.c_str(), kTimeFormat, &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  const int64_t seconds = timegm(&parts);
  if (seconds < 0 || seconds > kLatestStart || TimeText(seconds) != text) return std::nullopt;
  return seconds;
}

}  // namespace

RunOwner RunOwner::Current(FileCalls& files) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {};
  const absl::StatusOr<std::string> boot = ReadFileToString(files, kBootId, 4_KiB);
  return {.pid = getpid(),
          .host = Word(host.data()),
          .boot = Word(boot.ok() ? *boot : ""),
          .started = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count()};
}

std::string RunOwner::ToLine() const {
  return StrCat("pid ", pid, " host ", host, " boot ", boot, " started ", TimeText(started), "\n");
}

std::optional<RunOwner> RunOwner::Parse(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::array<std::string, 8> word;
  for (std::string& next : word) words >> next;
  RunOwner owner{.pid = std::atoll(word[1].c_str()), .host = word[3], .boot = word[5]};
  const std::optional<int64_t> started = ParseTime(word[7]);
  if (!started.has_value()) return std::nullopt;
  owner.started = *started;
  // What ToLine writes, and nothing else.
  if (owner.pid <= 0 || owner.ToLine() != line) return std::nullopt;
  if (Word(owner.host) != owner.host || Word(owner.boot) != owner.boot) return std::nullopt;
  return owner;
}

bool RunOwner::OnSameMachineAs(const RunOwner& other) const {
  if (boot == other.boot && boot != kUnknown) return true;
  return host == other.host && host != kUnknown;
}

}  // namespace gantry
