#include "nvme/describe.h"

#include <string.h>  // strerrorname_np, strerrordesc_np: glibc extensions
#include <unistd.h>

#include <array>
#include <string>

#include "base/strings.h"

namespace gantry {

std::string DescribeFd(int fd) {
  std::array<char, 4096> target;
  const std::string link = StrCat("/proc/self/fd/", fd);
  const ssize_t length = readlink(link.c_str(), target.data(), target.size());
  if (length <= 0) return StrCat("fd ", fd);
  return std::string(target.data(), static_cast<size_t>(length));
}

std::string DescribeErrno(int error_number) {
  const char* name = strerrorname_np(error_number);
  const char* text = strerrordesc_np(error_number);
  if (name == nullptr || text == nullptr) return StrCat("errno ", error_number);
  return StrCat(name, " (", text, ")");
}

}  // namespace gantry
