#include "nvme/block_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "nvme/describe.h"

namespace gantry {
namespace {

int64_t PieceCount(int64_t bytes) { return CeilDiv(bytes, kPieceBytes); }

}  // namespace

BlockStore::~BlockStore() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
  }
  for (Stripe& stripe : stripes_) stripe.rings.clear();  // each waits for what it has
  MutexLock lock(mutex_);
  GANTRY_CHECK(operations_.empty()) << operations_.size() << " requests were not completed";
}

absl::StatusOr<ExtentId> BlockStore::AllocateExtent() {
  MutexLock lock(mutex_);
  if (free_.empty()) {
    return ResourceExhausted("the file tier in '", stripes_[0].directory, "'",
                             stripes_.size() > 1 ? " and others" : "", " is full: all ",
                             extents_.size(), " extents of ", extent_bytes_, " bytes are in use");
  }
  const int64_t index = free_.back();
  free_.pop_back();
  Extent& extent = extents_[static_cast<size_t>(index)];
  GANTRY_CHECK(!extent.allocated) << "extent " << index;
  extent.allocated = true;
  extent.written = false;
  return ExtentId(index);
}

void BlockStore::FreeExtent(ExtentId extent) {
  MutexLock lock(mutex_);
  Extent& entry = Allocated(extent);
  GANTRY_CHECK(!entry.writing && entry.reads == 0) << "requests of " << extent << " are pending";
  entry.allocated = false;
  free_.push_back(extent.value());
}

BlockStore::Extent& BlockStore::Allocated(ExtentId extent) {
  const auto index = static_cast<size_t>(extent.value());
  GANTRY_CHECK(index < extents_.size() && extents_[index].allocated)
      << extent << " is not allocated";
  return extents_[index];
}

void BlockStore::Read(const StoreRead& read) {
  const auto size = static_cast<int64_t>(read.buffer.size());
  GANTRY_CHECK(read.offset >= 0 && read.offset % kPieceBytes == 0) << "offset " << read.offset;
  GANTRY_CHECK(size > 0 && read.offset <= extent_bytes_ && size <= extent_bytes_ - read.offset)
      << size << " bytes at " << read.offset << " of an extent of " << extent_bytes_;
  GANTRY_CHECK(size % kPieceBytes == 0 || read.offset + size == extent_bytes_)
      << size << " bytes are neither whole pieces nor up to the end of the extent";
  MutexLock lock(mutex_);
  Extent& extent = Allocated(read.extent);
  GANTRY_CHECK(extent.written) << read.extent << " was not written";
  GANTRY_CHECK(!extent.writing) << "a write of " << read.extent << " is pending";
  ++extent.reads;
  Begin(read.tag,
        {.kind = IoRequest::Kind::kRead,
         .extent = read.extent,
         .first_piece = read.offset / kPieceBytes,
         .priority = read.priority,
         .hashed = verify_ && read.verification == Verification::kEveryRead},
        {.offset = read.offset, .buffer = read.buffer});
}

void BlockStore::Write(const StoreWrite& write) {
  GANTRY_CHECK_EQ(static_cast<int64_t>(write.buffer.size()), extent_bytes_);
  MutexLock lock(mutex_);
  Extent& extent = Allocated(write.extent);
  GANTRY_CHECK(!extent.writing && extent.reads == 0)
      << "another request of " << write.extent << " is pending";
  extent.writing = true;
  // One request type serves both directions; a write's buffer is only read.
  auto* const data = const_cast<std::byte*>(write.buffer.data());
  Begin(write.tag,
        {.kind = IoRequest::Kind::kWrite,
         .extent = write.extent,
         .first_piece = 0,
         .priority = write.priority,
         .hashed = verify_},
        {.offset = 0, .buffer = {data, write.buffer.size()}});
}

void BlockStore::Begin(uint64_t tag, Operation operation, Range range) {
  const auto size = static_cast<int64_t>(range.buffer.size());
  operation.hashes.assign(static_cast<size_t>(PieceCount(size)), 0);
  const auto [place, inserted] =
      operations_.emplace(tag, std::make_unique<Operation>(std::move(operation)));
  GANTRY_CHECK(inserted) << "tag " << tag << " is pending";
  Operation& begun = *place->second;
  if (!layout_.cut()) {
    const int64_t stripe = extents_[static_cast<size_t>(begun.extent.value())].stripe;
    BeginPart(tag, begun, stripe, range);
    return;
  }
  for (int64_t stripe = 0; stripe < layout_.stripes(); ++stripe) {
    const int64_t begin = std::max(range.offset, layout_.part_offset(stripe));
    const int64_t end =
        std::min(range.offset + size, layout_.part_offset(stripe) + layout_.part_bytes(stripe));
    if (begin >= end) continue;
    BeginPart(tag, begun, stripe,
              {.offset = begin,
               .buffer = range.buffer.subspan(static_cast<size_t>(begin - range.offset),
                                              static_cast<size_t>(end - begin))});
  }
}

// Deals the pieces of one file out to its rings, in runs.
void BlockStore::BeginPart(uint64_t tag, Operation& operation, int64_t stripe, Range range) {
  Stripe& place = stripes_[static_cast<size_t>(stripe)];
  const Extent& extent = extents_[static_cast<size_t>(operation.extent.value())];
  const size_t part = layout_.cut() ? static_cast<size_t>(stripe) : 0;
  const auto size = static_cast<int64_t>(range.buffer.size());
  const auto rings = static_cast<int64_t>(place.rings.size());
  const int64_t run = CeilDiv(PieceCount(size), rings) * kPieceBytes;
  for (int64_t begin = 0; begin < size; begin += run) {
    const BlockFile::Part bytes = {
        .extent = extent.file_extents[part],
        .offset = range.offset + begin - layout_.part_offset(stripe),
        .buffer = range.buffer.subspan(static_cast<size_t>(begin),
                                       static_cast<size_t>(std::min(run, size - begin))),
        .tag = 0};
    Segment segment = {.ring = place.rings[next_ring_++ % place.rings.size()].get(),
                       .first_piece = (range.offset + begin) / kPieceBytes,
                       .request = operation.kind == IoRequest::Kind::kRead
                                      ? place.file->ReadRequest(bytes)
                                      : place.file->WriteRequest(bytes)};
    if (operation.hashed) {
      segment.request.piece_hashes =
          std::span(operation.hashes)
              .subspan(static_cast<size_t>(segment.first_piece - operation.first_piece),
                       static_cast<size_t>(PieceCount(static_cast<int64_t>(bytes.buffer.size()))));
    }
    Start(tag, operation, std::move(segment));
  }
}

void BlockStore::Start(uint64_t tag, Operation& operation, Segment segment) {
  const uint64_t io_tag = next_io_tag_++;
  segment.request.tag = io_tag;
  segment.request.priority = operation.priority;
  operation.io_tags.push_back(io_tag);
  ++operation.segments_out;
  IoBackend& ring = *segment.ring;
  const IoRequest request = segment.request;
  out_.emplace(io_tag, SegmentOut{tag, std::move(segment)});
  ring.Submit(request);  // never calls back inline
}

void BlockStore::OnIoComplete(uint64_t io_tag, absl::Status status) {
  std::optional<absl::Status> ended;
  uint64_t tag = 0;
  {
    MutexLock lock(mutex_);
    const auto found = out_.find(io_tag);
    GANTRY_CHECK(found != out_.end()) << "completion of unknown segment " << io_tag;
    SegmentOut out = std::move(found->second);
    out_.erase(found);
    tag = out.tag;
    Operation& operation = *operations_.at(tag);
    --operation.segments_out;
    if (absl::IsCancelled(status)) {
      operation.cancelled.push_back(std::move(out.segment));
    } else {
      ++operation.segments_done;
      if (!status.ok()) {
        operation.status.Update(status);
      } else if (operation.hashed && operation.kind == IoRequest::Kind::kRead) {
        Verify(tag, operation, out.segment);
      }
    }
    if (operation.segments_out == 0 && !Restart(tag, operation)) ended = End(tag, operation);
  }
  if (ended.has_value()) sink_->OnStoreComplete(tag, *std::move(ended));
}

// Compares the pieces of a segment that has been read with the table. What does not match is read
// again, and the second time it is an error.
void BlockStore::Verify(uint64_t tag, Operation& operation, const Segment& segment) {
  const IoRequest& request = segment.request;
  for (size_t i = 0; i < request.piece_hashes.size(); ++i) {
    const PieceTable::Piece piece = {operation.extent,
                                     segment.first_piece + static_cast<int64_t>(i)};
    ++counters_.pieces_verified;
    const uint64_t hash = request.piece_hashes[i];
    if (table_.Matches(piece, hash)) continue;
    const size_t begin = i * static_cast<size_t>(kPieceBytes);
    const size_t size = std::min(request.buffer.size() - begin, static_cast<size_t>(kPieceBytes));
    if (segment.reread) {
      operation.status.Update(DataLoss(
          "read of ", size, " bytes at offset ", request.offset, " of '", DescribeFd(request.fd),
          "', which are piece ", piece.index, " of ", operation.extent,
          ", gave wrong bytes twice; generation ", table_.generation(operation.extent),
          " was expected: ", table_.Diagnose(piece, hash)));
      continue;
    }
    ++counters_.mismatches;
    ++counters_.rereads;
    Segment again = segment;
    again.reread = true;
    again.first_piece = piece.index;
    again.request.offset += static_cast<int64_t>(begin);
    again.request.buffer = request.buffer.subspan(begin, size);
    again.request.piece_hashes = request.piece_hashes.subspan(i, 1);
    Start(tag, operation, std::move(again));
  }
}

// A write that was cancelled in part is finished, or its extent would hold a mixture. Whether it
// goes on. Not while the store is destroyed: the rings are gone, and nobody reads the extent again.
bool BlockStore::Restart(uint64_t tag, Operation& operation) {
  if (operation.kind != IoRequest::Kind::kWrite || operation.cancelled.empty() ||
      operation.segments_done == 0 || !operation.status.ok() || closing_) {
    return false;
  }
  for (Segment& segment : std::exchange(operation.cancelled, {})) {
    Start(tag, operation, std::move(segment));
  }
  return true;
}

// Ends a request with no segment out; its status.
absl::Status BlockStore::End(uint64_t tag, Operation& operation) {
  Extent& extent = Allocated(operation.extent);
  absl::Status status = std::move(operation.status);
  if (status.ok() && !operation.cancelled.empty()) {
    ++counters_.cancelled;
    status = absl::CancelledError("cancelled before it was done");
  }
  if (operation.kind == IoRequest::Kind::kRead) {
    --extent.reads;
  } else {
    extent.writing = false;
    if (status.ok()) {
      extent.written = true;
      table_.Advance(operation.extent, operation.hashes);
    } else if (operation.segments_done > 0) {
      table_.NoteFailedWrite(operation.extent);
    }
  }
  operations_.erase(tag);
  return status;
}

void BlockStore::Cancel(uint64_t tag) {
  MutexLock lock(mutex_);
  const auto operation = operations_.find(tag);
  if (operation == operations_.end()) return;
  for (const uint64_t io_tag : operation->second->io_tags) {
    const auto out = out_.find(io_tag);
    if (out != out_.end()) out->second.segment.ring->Cancel(io_tag);
  }
}

void BlockStore::Promote(uint64_t tag, IoPriority priority) {
  MutexLock lock(mutex_);
  const auto operation = operations_.find(tag);
  if (operation == operations_.end() || priority >= operation->second->priority) return;
  operation->second->priority = priority;  // of what is read again, too
  for (const uint64_t io_tag : operation->second->io_tags) {
    const auto out = out_.find(io_tag);
    if (out != out_.end()) out->second.segment.ring->Promote(io_tag, priority);
  }
}

int64_t BlockStore::extents() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(extents_.size());
}

int64_t BlockStore::extents_free() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(free_.size());
}

int64_t BlockStore::generation(ExtentId extent) const {
  MutexLock lock(mutex_);
  return table_.generation(extent);
}

int64_t BlockStore::memory_alignment() const {
  int64_t alignment = 1;
  for (const Stripe& stripe : stripes_) {
    alignment = std::max(alignment, stripe.file->memory_alignment());
  }
  return alignment;
}

std::vector<StripeReport> BlockStore::Describe() const {
  std::vector<StripeReport> reports;
  for (const Stripe& stripe : stripes_) {
    const IoBackend& first = *stripe.rings.front();
    const double share = [&] {
      MutexLock lock(mutex_);
      return layout_.share(static_cast<int64_t>(reports.size()));
    }();
    StripeReport report = {
        .directory = stripe.directory,
        .share = share,
        .direct_io = stripe.file->direct(),
        .preallocated = stripe.file->preallocated(),
        .backend = std::string(first.name()),
        .ring_flags = std::string(first.setup().flags),
        .fixed_memory = std::ranges::all_of(
            stripe.rings, [](const auto& ring) { return ring->setup().fixed_memory; }),
        .io = {},
        .file_bytes = stripe.file->extent_bytes() * stripe.file->extents(),
    };
    for (const auto& ring : stripe.rings) report.io += ring->counters();
    reports.push_back(std::move(report));
  }
  return reports;
}

StoreCounters BlockStore::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

}  // namespace gantry
