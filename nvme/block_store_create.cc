// How a BlockStore comes to be and grows; what it does is in block_store.cc.
#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nvme/block_store.h"
#include "nvme/measure_bandwidth.h"

namespace gantry {
namespace {

constexpr int kRingsMax = 16;
constexpr Nanoseconds kMeasurement = 400'000'000;
constexpr int64_t kMeasurementFileBytes = int64_t{64} << 20;
constexpr int64_t kMeasurementBytesMax = int64_t{2} << 30;

IoBackendFactory FactoryOf(const BlockStore::Options& options) {
  return options.make_io ? options.make_io : IoBackendFactory(CreateIoBackend);
}

// An error that says which of the directories it is about.
absl::Status InDirectory(const absl::Status& status, const std::string& directory) {
  if (status.ok() || FromAbsl(status.message()).find(directory) != std::string_view::npos) {
    return status;
  }
  return MakeStatus(status.code(), "the file tier in '", directory,
                    "': ", FromAbsl(status.message()));
}

}  // namespace

BlockStore::BlockStore(const Options& options, StripeLayout layout)
    : extent_bytes_(options.extent_bytes.count()),
      verify_(options.verification == Verification::kEveryRead),
      sink_(options.sink),
      layout_(std::move(layout)),
      table_(options.extent_bytes) {}

absl::Status BlockStore::CheckOptions(const Options& options) {
  GANTRY_CHECK(options.sink != nullptr && options.files != nullptr && options.clock != nullptr &&
               options.logger != nullptr);
  const size_t directories = options.directories.size();
  if (directories == 0) return InvalidArgument("a file tier needs at least one directory");
  if (!options.shares.empty() && options.shares.size() != directories) {
    return InvalidArgument("there are ", options.shares.size(), " shares for ", directories,
                           " directories");
  }
  if (options.rings_per_directory < 1 || options.rings_per_directory > kRingsMax) {
    return InvalidArgument("rings_per_directory must be 1 to ", kRingsMax, ", not ",
                           options.rings_per_directory);
  }
  const int64_t bytes = options.extent_bytes.count();
  if (bytes <= 0 || bytes % BlockFile::kExtentGranule != 0) {
    return InvalidArgument("extent_bytes must be a positive multiple of ",
                           BlockFile::kExtentGranule, ", not ", bytes);
  }
  if (options.extent_count < 0 ||
      options.extent_count > std::numeric_limits<int64_t>::max() / bytes) {
    return InvalidArgument("a file tier of ", options.extent_count, " extents of ", bytes,
                           " bytes is impossible");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> BlockStore::Shares(const Options& options,
                                                       const std::vector<Stripe>& stripes) {
  if (!options.shares.empty()) return options.shares;
  std::vector<double> shares;
  for (const Stripe& stripe : stripes) {
    if (stripes.size() == 1) return std::vector<double>{1.0};
    auto share = MeasureBandwidth(
        {.directory = stripe.run.get(),
         .make_io = FactoryOf(options),
         .io = options.io,
         .queue_depth = options.queue_depth,
         .direct_io = options.direct_io,
         .file_bytes_max = Bytes(
             std::min(kMeasurementFileBytes, options.extent_bytes.count() * options.extent_count)),
         .duration = kMeasurement,
         .bytes_max = Bytes(kMeasurementBytesMax),
         .clock = options.clock,
         .files = options.files,
         .logger = options.logger});
    if (!share.ok()) return InDirectory(share.status(), stripe.directory);
    shares.push_back(*share);
  }
  return shares;
}

absl::StatusOr<std::unique_ptr<BlockStore>> BlockStore::Create(const Options& options) {
  GANTRY_RETURN_IF_ERROR(CheckOptions(options));
  std::vector<Stripe> stripes;
  for (const std::string& directory : options.directories) {
    auto run = RunDirectory::Create(options.files, *options.clock, directory);
    if (!run.ok()) return InDirectory(run.status(), directory);
    stripes.push_back({.directory = directory, .run = *std::move(run), .file = {}, .rings = {}});
  }
  GANTRY_ASSIGN_OR_RETURN(std::vector<double> shares, Shares(options, stripes));
  GANTRY_ASSIGN_OR_RETURN(
      StripeLayout layout,
      StripeLayout::Create({.extent_bytes = options.extent_bytes, .shares = std::move(shares)}));
  std::unique_ptr<BlockStore> store(new BlockStore(options, std::move(layout)));
  store->stripes_ = std::move(stripes);
  for (size_t i = 0; i < store->stripes_.size(); ++i) {
    Stripe& stripe = store->stripes_[i];
    const absl::Status opened = store->OpenStripe(options, stripe, static_cast<int64_t>(i));
    if (!opened.ok()) return InDirectory(opened, stripe.directory);
  }
  GANTRY_RETURN_IF_ERROR(store->Grow(options.extent_count));
  return store;
}

absl::Status BlockStore::OpenStripe(const Options& options, Stripe& stripe, int64_t index) {
  const int64_t part_bytes = [&] {
    MutexLock lock(mutex_);
    return layout_.part_bytes(index);
  }();
  GANTRY_ASSIGN_OR_RETURN(stripe.file, BlockFile::Create({.directory = stripe.run.get(),
                                                          .name = "blocks",
                                                          .extent_bytes = Bytes(part_bytes),
                                                          .extent_count = 0,
                                                          .logger = options.logger,
                                                          .files = options.files,
                                                          .direct_io = options.direct_io}));
  const int fixed_file = stripe.file->fd();
  for (int ring = 0; ring < options.rings_per_directory; ++ring) {
    GANTRY_ASSIGN_OR_RETURN(auto made, FactoryOf(options)({.sink = this,
                                                           .queue_depth = options.queue_depth,
                                                           .preference = options.io,
                                                           .directory = stripe.run->path(),
                                                           .logger = options.logger,
                                                           .files = options.files,
                                                           .fixed_files = {&fixed_file, 1},
                                                           .fixed_memory = options.fixed_memory}));
    stripe.rings.push_back(std::move(made));
  }
  return absl::OkStatus();
}

absl::Status BlockStore::Grow(int64_t extents) {
  MutexLock growing(grow_mutex_);
  const int64_t before = this->extents();
  if (extents < 0 || extents > std::numeric_limits<int64_t>::max() / extent_bytes_ - before) {
    return InvalidArgument("a file tier can't grow by ", extents, " extents");
  }
  StripeLayout layout = [&] {
    MutexLock lock(mutex_);
    return layout_;
  }();
  std::vector<Extent> added(static_cast<size_t>(extents));
  std::vector<int64_t> needed(stripes_.size(), layout.cut() ? extents : 0);
  if (!layout.cut()) {
    for (Extent& extent : added) {
      extent.stripe = layout.Deal();
      ++needed[static_cast<size_t>(extent.stripe)];
    }
  }
  for (size_t i = 0; i < stripes_.size(); ++i) {
    BlockFile& file = *stripes_[i].file;
    // Some may be free already, from a growth that another directory refused.
    const int64_t missing = std::max<int64_t>(0, needed[i] - file.extents_free());
    const absl::Status grown = file.Grow(missing);
    if (!grown.ok()) return InDirectory(grown, stripes_[i].directory);
  }
  for (Extent& extent : added) {
    for (size_t i = 0; i < stripes_.size(); ++i) {
      if (!layout.cut() && static_cast<int64_t>(i) != extent.stripe) continue;
      auto file_extent = stripes_[i].file->AllocateExtent();
      GANTRY_CHECK_OK(file_extent.status());
      extent.file_extents.push_back(*file_extent);
    }
  }
  MutexLock lock(mutex_);
  layout_ = std::move(layout);
  table_.Grow(extents);
  extents_.insert(extents_.end(), std::make_move_iterator(added.begin()),
                  std::make_move_iterator(added.end()));
  // Behind what is free already, and so that low extents are handed out first.
  std::vector<int64_t> added_free;
  for (int64_t i = before + extents - 1; i >= before; --i) added_free.push_back(i);
  free_.insert(free_.begin(), added_free.begin(), added_free.end());
  return absl::OkStatus();
}

}  // namespace gantry
