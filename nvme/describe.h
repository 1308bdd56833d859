// How descriptors and errno values are named in messages. Stateless, thread-safe.
#ifndef GANTRY_NVME_DESCRIBE_H_
#define GANTRY_NVME_DESCRIBE_H_

#include <string>

namespace gantry {

// The path behind an open descriptor as the kernel knows it ("/d/x", "/d/x (deleted)"), or "fd 7"
// when /proc is not there.
std::string DescribeFd(int fd);

// "ENOSPC (No space left on device)".
std::string DescribeErrno(int error_number);

}  // namespace gantry

#endif  // GANTRY_NVME_DESCRIBE_H_
