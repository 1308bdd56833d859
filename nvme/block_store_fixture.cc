#include "nvme/block_store_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "nvme/describe.h"

namespace gantry {

void WaitingStoreSink::OnStoreComplete(uint64_t tag, absl::Status status) {
  completions_.OnIoComplete(tag, std::move(status));
}

std::string BlockStoreFixture::Directory(size_t index) const {
  return StrCat(root_.path(), "/stripe-", index);
}

absl::StatusOr<std::unique_ptr<BlockStore>> BlockStoreFixture::Create(const StoreSetup& setup) {
  std::vector<std::string> directories;
  for (size_t i = 0; i < std::max<size_t>(1, setup.shares.size()); ++i) {
    directories.push_back(Directory(i));
    static_cast<void>(mkdir(directories.back().c_str(), 0700));  // may be there already
  }
  return BlockStore::Create({.directories = std::move(directories),
                             .shares = setup.shares,
                             .extent_bytes = setup.extent_bytes,
                             .extent_count = setup.extents,
                             .verification = setup.verification,
                             .io = setup.io,
                             .queue_depth = setup.queue_depth,
                             .rings_per_directory = setup.rings,
                             .fixed_memory = setup.fixed_memory,
                             .make_io = setup.make_io,
                             .sink = &sink_,
                             .files = setup.files == nullptr ? &posix_ : setup.files,
                             .clock = &clock_,
                             .logger = &logger_});
}

void BlockStoreFixture::Make(const StoreSetup& setup) {
  store_.reset();
  auto store = Create(setup);
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  store_ = *std::move(store);
}

ExtentId BlockStoreFixture::Allocate() {
  auto extent = store_->AllocateExtent();
  GANTRY_CHECK_OK(extent.status());
  return *extent;
}

absl::Status BlockStoreFixture::Write(ExtentId extent, uint64_t seed) {
  AlignedBlock block(store_->extent_bytes().count());
  block.Fill(seed);
  const uint64_t tag = next_tag_++;
  store_->Write({.extent = extent, .buffer = block.span(), .tag = tag});
  return sink_.Take(tag);
}

absl::Status BlockStoreFixture::Read(ExtentId extent, AlignedBlock& block, int64_t offset) {
  const uint64_t tag = next_tag_++;
  store_->Read({.extent = extent, .offset = offset, .buffer = block.span(), .tag = tag});
  return sink_.Take(tag);
}

void BlockStoreFixture::ExpectContent(ExtentId extent, uint64_t seed) {
  AlignedBlock expected(store_->extent_bytes().count());
  expected.Fill(seed);
  AlignedBlock read(store_->extent_bytes().count());
  const absl::Status status = Read(extent, read);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(std::ranges::equal(read.span(), expected.span())) << extent;
}

FileDescriptor BlockStoreFixture::OpenBlocks(size_t index) const {
  for (const std::string& name : ListDirectory("/proc/self/fd")) {
    const std::string path = DescribeFd(std::atoi(name.c_str()));
    if (path.find(Directory(index)) == std::string::npos ||
        path.find("blocks") == std::string::npos) {
      continue;
    }
    FileDescriptor file(open(StrCat("/proc/self/fd/", name).c_str(), O_RDWR | O_CLOEXEC));
    GANTRY_CHECK(file.valid()) << path << ": " << DescribeErrno(errno);
    return file;
  }
  GANTRY_CHECK(false) << "no scratch file is open in " << Directory(index);
}

std::string BlockStoreFixture::FromAbslMessage(const absl::Status& status) {
  return std::string(FromAbsl(status.message()));
}

}  // namespace gantry
