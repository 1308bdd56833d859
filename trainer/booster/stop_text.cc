#include "trainer/booster/stop_text.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"

namespace gantry {
namespace {

// How long a beginning of `stop`, but not all of it, `text` ends with.
size_t BeginningAtEnd(std::string_view text, std::string_view stop) {
  for (size_t size = std::min(text.size(), stop.size() - 1); size > 0; --size) {
    if (text.ends_with(stop.substr(0, size))) return size;
  }
  return 0;
}

}  // namespace

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) GANTRY_CHECK(!stop.empty());
}

std::string StopText::Push(std::string_view piece) {
  if (found_) return "";
  held_ += piece;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    found_ = true;
    return std::exchange(held_, {}).substr(0, end);
  }
  size_t keep = 0;
  for (const std::string& stop : stops_) keep = std::max(keep, BeginningAtEnd(held_, stop));
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

}  // namespace gantry
