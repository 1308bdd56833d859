#include "device/testing/process_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"

namespace gantry {
namespace {

// Calls `visit` for the lines of "maps" or "smaps" about mappings that overlap the range. The first
// line of a mapping is its "begin-end ..." header, in maps the only one.
void VisitMappings(const char* file, std::span<const std::byte> range,
                   const std::function<void(const std::string&)>& visit) {
  const auto begin = reinterpret_cast<uintptr_t>(range.data());
  const auto end = begin + range.size();
  std::ifstream mappings(std::string("/proc/self/") + file);
  std::string line;
  bool inside = false;
  while (std::getline(mappings, line)) {
    unsigned long first = 0;
    unsigned long last = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2) {
      inside = first < end && last > begin;
    }
    if (inside) visit(line);
  }
}

}  // namespace

AccessProbe::AccessProbe() {
  int ends[2];
  GANTRY_CHECK_EQ(pipe(ends), 0) << std::strerror(errno);
  read_end_ = ends[0];
  write_end_ = ends[1];
}

AccessProbe::~AccessProbe() {
  close(read_end_);
  close(write_end_);
}

int AccessProbe::Read(const std::byte* address) {
  if (write(write_end_, address, 1) != 1) {
    GANTRY_CHECK_EQ(errno, EFAULT) << std::strerror(errno);
    return -1;
  }
  unsigned char value = 0;
  GANTRY_CHECK_EQ(read(read_end_, &value, 1), 1) << std::strerror(errno);
  return value;
}

Bytes ResidentBytes(std::span<const std::byte> range) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> present(range.size() / static_cast<size_t>(page));
  void* start = const_cast<std::byte*>(range.data());
  GANTRY_CHECK_EQ(mincore(start, range.size(), present.data()), 0) << std::strerror(errno);
  return Bytes(page) * std::count_if(present.begin(), present.end(),
                                     [](unsigned char flags) { return (flags & 1) != 0; });
}

int64_t MappingsIn(std::span<const std::byte> range) {
  int64_t count = 0;
  VisitMappings("maps", range, [&](const std::string& /*line*/) { ++count; });
  return count;
}

Bytes HugeBytes(std::span<const std::byte> range) {
  int64_t kib = 0;
  VisitMappings("smaps", range, [&](const std::string& line) {
    long long value = 0;
    if (std::sscanf(line.c_str(), "AnonHugePages: %lld kB", &value) == 1) kib += value;
  });
  return Bytes(kib * 1024);
}

bool HugePagesAvailable(Bytes bytes) {
  constexpr int64_t kHugePage = int64_t{2} << 20;
  const auto size = static_cast<size_t>(RoundUp(bytes.count(), kHugePage) + kHugePage);
  void* mapping = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  GANTRY_CHECK(mapping != MAP_FAILED) << std::strerror(errno);
  bool available = madvise(mapping, size, MADV_HUGEPAGE) == 0;
  if (available) {
    auto* first = static_cast<std::byte*>(mapping);
    for (size_t offset = 0; offset < size; offset += 4096) {
      static_cast<volatile std::byte*>(first)[offset] = std::byte{1};
    }
    available = HugeBytes({first, size}) >= bytes;
  }
  GANTRY_CHECK_EQ(munmap(mapping, size), 0);
  return available;
}

Bytes ProcessResidentBytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string line;
  while (std::getline(file, line)) {
    long long kib = 0;
    if (std::sscanf(line.c_str(), "Rss: %lld kB", &kib) == 1) return Bytes(kib * 1024);
  }
  GANTRY_CHECK(false) << "no Rss in smaps_rollup";
  return Bytes::Zero();
}

}  // namespace gantry
