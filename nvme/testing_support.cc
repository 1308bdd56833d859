#include "nvme/testing_support.h"

#include <dirent.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/describe.h"

namespace gantry {

void WaitingSink::OnIoComplete(uint64_t tag, absl::Status status) {
  MutexLock lock(mutex_);
  ++completions_;
  GANTRY_CHECK(statuses_.emplace(tag, std::move(status)).second) << "tag " << tag << " twice";
  completed_.NotifyAll();
}

absl::Status WaitingSink::Take(uint64_t tag) {
  const auto has_completed = [&] {
    MutexLock lock(mutex_);
    return statuses_.count(tag) > 0;
  };
  while (run_next_ && !has_completed()) GANTRY_CHECK(run_next_()) << "nothing completes any more";
  MutexLock lock(mutex_);
  while (statuses_.count(tag) == 0) completed_.Wait(mutex_);
  auto node = statuses_.extract(tag);
  return std::move(node.mapped());
}

int64_t WaitingSink::completions() const {
  MutexLock lock(mutex_);
  return completions_;
}

absl::Status Transfer(IoBackend& backend, WaitingSink& sink, const IoRequest& request) {
  backend.Submit(request);
  return sink.Take(request.tag);
}

AlignedBlock::AlignedBlock(int64_t size)
    : size_(size),
      data_(static_cast<std::byte*>(
          std::aligned_alloc(4096, static_cast<size_t>((size + 4096) / 4096 * 4096)))) {
  GANTRY_CHECK(data_ != nullptr) << size;
  std::memset(data_.get(), 0, static_cast<size_t>(size));
}

void AlignedBlock::Fill(uint64_t seed) {
  // splitmix64: tests fill hundreds of megabytes, also under sanitizers.
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15;
  const auto mix = [](uint64_t word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
    return word ^ (word >> 31);
  };
  uint64_t state = mix(seed + kStep);  // neighbouring seeds must not give shifted bytes
  const std::span<std::byte> bytes = span();
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = mix(state += kStep);
    std::memcpy(&bytes[i], &word, std::min<size_t>(8, bytes.size() - i));
  }
}

TemporaryDirectory::TemporaryDirectory() {
  const char* base = std::getenv("TEST_TMPDIR");
  std::string pattern = StrCat(base == nullptr ? "/tmp" : base, "/nvme-test-XXXXXX");
  GANTRY_CHECK(mkdtemp(pattern.data()) != nullptr) << pattern << ": " << DescribeErrno(errno);
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> ListDirectory(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

int64_t OpenDescriptors() {
  // One is the listing's own, always.
  return static_cast<int64_t>(ListDirectory("/proc/self/fd").size()) - 1;
}

int RunInChild(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  GANTRY_CHECK_GE(child, 0);
  if (child == 0) {
    int result = body();
    if (result == 0 && testing::Test::HasFailure()) result = 1;
    std::fflush(nullptr);
    _exit(result);
  }
  int status = 0;
  GANTRY_CHECK_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool RefuseSystemCall(int number, int error_number) {
  const auto refusal = static_cast<uint32_t>(SECCOMP_RET_ERRNO | (error_number & SECCOMP_RET_DATA));
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, refusal),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter = {.len = sizeof(program) / sizeof(program[0]), .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

bool DropCapability(int capability) {
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  for (uint32_t* set : {&data[capability / 32].effective, &data[capability / 32].permitted}) {
    *set &= ~(uint32_t{1} << (capability % 32));
  }
  return syscall(SYS_capset, &header, data) == 0;
}

std::string MountPrivately(const MountOptions& options) {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return StrCat("unshare: ", DescribeErrno(errno));
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
    std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
  }
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return StrCat("mount --make-rprivate: ", DescribeErrno(errno));
  }
  if (mount("none", options.path.c_str(), options.type.c_str(),
            options.read_only ? static_cast<unsigned long>(MS_RDONLY) : 0,
            options.data.c_str()) != 0) {
    return StrCat("mount of ", options.type, ": ", DescribeErrno(errno));
  }
  return "";
}

}  // namespace gantry
