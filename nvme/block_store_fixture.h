// What the tests of BlockStore share: a store over temporary directories, completions to wait for,
// and the way to the real files below it.
#ifndef GANTRY_NVME_BLOCK_STORE_FIXTURE_H_
#define GANTRY_NVME_BLOCK_STORE_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/log.h"
#include "gtest/gtest.h"
#include "nvme/block_store.h"
#include "nvme/testing_support.h"

namespace gantry {

// Keeps completions by tag, as WaitingSink.
class WaitingStoreSink final : public StoreSink {
 public:
  void OnStoreComplete(uint64_t tag, absl::Status status) override;
  absl::Status Take(uint64_t tag) { return completions_.Take(tag); }
  int64_t completions() const { return completions_.completions(); }

 private:
  WaitingSink completions_;
};

struct StoreSetup {
  std::vector<double> shares = {1.0};  // one directory for each
  Bytes extent_bytes = Bytes(2 << 20);
  int64_t extents = 4;
  Verification verification = Verification::kEveryRead;
  IoPreference io = IoPreference::kAuto;
  int queue_depth = 16;
  int rings = 1;
  IoBackendFactory make_io = {};
  FileCalls* files = nullptr;  // null: the real ones
  std::span<const std::span<std::byte>> fixed_memory = {};
};

class BlockStoreFixture : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<BlockStore>> Create(const StoreSetup& setup);
  // Sets store_; the test fails where that is not possible.
  void Make(const StoreSetup& setup);
  // Path of the parent directory of stripe `index`.
  std::string Directory(size_t index) const;

  // Both wait. The write's bytes depend on `seed`; ExpectContent reads the whole extent.
  absl::Status Write(ExtentId extent, uint64_t seed);
  absl::Status Read(ExtentId extent, AlignedBlock& block, int64_t offset = 0);
  void ExpectContent(ExtentId extent, uint64_t seed);
  ExtentId Allocate();

  // The scratch file of stripe `index`, opened a second time without O_DIRECT, by way of the
  // process's own descriptor: it has no name.
  FileDescriptor OpenBlocks(size_t index) const;

  static bool Contains(const absl::Status& status, std::string_view text) {
    return FromAbslMessage(status).find(text) != std::string::npos;
  }
  static std::string FromAbslMessage(const absl::Status& status);

  TemporaryDirectory root_;
  MemoryLogger logger_;
  PosixFileCalls posix_;
  MonotonicClock clock_;
  WaitingStoreSink sink_;
  uint64_t next_tag_ = 1;
  std::unique_ptr<BlockStore> store_;
};

}  // namespace gantry

#endif  // GANTRY_NVME_BLOCK_STORE_FIXTURE_H_
