#include "base/check.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace gantry::check_internal {

FatalMessage::FatalMessage(const char* file, int line, const char* expression) {
  stream_ << file << ":" << line << ": check failed: " << expression << " ";
}

FatalMessage::~FatalMessage() {
  stream_ << "\n";
  const std::string text = stream_.str();
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace gantry::check_internal
