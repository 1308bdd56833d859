// The file tier as one thing: equal extents, striped over one or several directories (one scratch
// file and one or more rings each), checksummed, with priorities and cancellation.
//
//   GANTRY_ASSIGN_OR_RETURN(auto store, BlockStore::Create(
//       {.directories = {"/nvme0/spill", "/nvme1/spill"}, .extent_bytes = slot_bytes,
//        .extent_count = 640, .sink = &engine, .files = &posix, .clock = clock,
//        .logger = logger}));
//   GANTRY_ASSIGN_OR_RETURN(ExtentId extent, store->AllocateExtent());
//   store->Write({.extent = extent, .buffer = block, .priority = IoPriority::kWriteBack, .tag =
//   1});
//
// Striping: see StripeLayout. Shares are given, or measured once.
//
// Integrity: a table in memory holds for each extent its generation (the count of its writes) and
// the checksum (base/hash.h) of each piece of the current and the previous generation. Every read
// is verified unless it says otherwise. A piece that does not match is read once more; if it still
// differs the read fails with kDataLoss that names file, offset, length, the generation expected,
// and what the bytes are as far as known: the previous generation of the extent (a lost write),
// another extent's bytes (a misdirected write: names it), or neither (corrupted).
//
// Thread-safe. Completions carry the errors of IoBackend.
#ifndef GANTRY_NVME_BLOCK_STORE_H_
#define GANTRY_NVME_BLOCK_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/mutex.h"
#include "nvme/block_file.h"
#include "nvme/create_io_backend.h"
#include "nvme/extent_id.h"
#include "nvme/io_backend.h"
#include "nvme/piece_table.h"
#include "nvme/run_directory.h"
#include "nvme/stripe_layout.h"

namespace gantry {

// Receives completions, from I/O threads, from several at once. Must not block; may call the store,
// except while that is destroyed. The tag of the completed request is free again.
class StoreSink {
 public:
  virtual ~StoreSink() = default;
  virtual void OnStoreComplete(uint64_t tag, absl::Status status) = 0;
};

enum class Verification { kEveryRead, kOff };

// The buffers of both are the store's until the completion, and aligned to memory_alignment().
struct StoreRead {
  ExtentId extent;
  int64_t offset = 0;           // bytes, a multiple of kPieceBytes
  std::span<std::byte> buffer;  // a multiple of kPieceBytes, or up to the end of the extent
  IoPriority priority = IoPriority::kDemand;
  // kOff: this one is not compared. A store that is kOff has nothing to compare any with.
  Verification verification = Verification::kEveryRead;
  uint64_t tag;  // no two pending requests of the store have the same
};
struct StoreWrite {  // always a whole extent: that is one generation
  ExtentId extent;
  std::span<const std::byte> buffer;  // extent_bytes
  IoPriority priority = IoPriority::kWriteBack;
  uint64_t tag;
};

// What one directory is and did.
struct StripeReport {
  std::string directory;
  double share;  // of all of them, 0 to 1
  bool direct_io;
  bool preallocated;
  std::string backend;     // "io_uring" or "threads"
  std::string ring_flags;  // "none" where there is no ring
  bool fixed_memory;       // in all its rings
  IoCounters io;
  Bytes file_bytes;
};

struct StoreCounters {
  int64_t pieces_verified = 0;
  int64_t mismatches = 0;  // pieces whose bytes were wrong, at the first reading
  int64_t rereads = 0;
  int64_t cancelled = 0;  // requests
};

class BlockStore final : private IoSink {
 public:
  struct Options {
    std::vector<std::string> directories;  // at least one
    std::vector<double> shares = {};       // relative bandwidth of each; empty: measured if several
    Bytes extent_bytes;                    // positive multiple of BlockFile::kExtentGranule
    int64_t extent_count;
    Verification verification = Verification::kEveryRead;
    IoPreference io = IoPreference::kAuto;
    int queue_depth = 16;         // pieces under way per ring
    int rings_per_directory = 1;  // 1..16
    BlockFile::DirectIo direct_io = BlockFile::DirectIo::kWherePossible;
    std::span<const std::span<std::byte>> fixed_memory = {};  // as in IoRing
    IoBackendFactory make_io = {};                            // empty: CreateIoBackend
    StoreSink* sink;
    FileCalls* files;
    Clock* clock;  // of the measurement only
    Logger* logger;
  };

  // What the pointers in `options` name outlives the store. Blocks for the preallocation and, with
  // several directories and no shares, about half a second per directory of measurement.
  // Errors: kInvalidArgument for bad numbers; those of RunDirectory, BlockFile and the backends,
  // each naming its directory.
  static absl::StatusOr<std::unique_ptr<BlockStore>> Create(const Options& options);
  ~BlockStore() override;  // waits for what is pending

  // Adds extents. Blocks for the preallocation; the other calls go on meanwhile. Nothing changes on
  // failure. Errors: as Create.
  absl::Status Grow(int64_t extents) GANTRY_EXCLUDES(mutex_, grow_mutex_);
  // Errors: kResourceExhausted when every extent is taken.
  absl::StatusOr<ExtentId> AllocateExtent() GANTRY_EXCLUDES(mutex_);
  // REQUIRES: allocated, nothing pending on it.
  void FreeExtent(ExtentId extent) GANTRY_EXCLUDES(mutex_);

  // Neither blocks nor calls the sink inline. REQUIRES of both: the extent is allocated; a write
  // has no other request of the extent pending; a read has no write pending, and a write of the
  // extent has succeeded since it was allocated.
  void Read(const StoreRead& read) GANTRY_EXCLUDES(mutex_);
  void Write(const StoreWrite& write) GANTRY_EXCLUDES(mutex_);

  // If nothing of the request has started, it completes with kCancelled, and a write has changed
  // nothing; a read may also be stopped half-way. Otherwise, or when the tag is unknown, nothing
  // happens.
  void Cancel(uint64_t tag) GANTRY_EXCLUDES(mutex_);
  // As IoBackend::Promote.
  void Promote(uint64_t tag, IoPriority priority) GANTRY_EXCLUDES(mutex_);

  Bytes extent_bytes() const { return Bytes(extent_bytes_); }
  int64_t extents() const GANTRY_EXCLUDES(mutex_);
  int64_t extents_free() const GANTRY_EXCLUDES(mutex_);
  int64_t generation(ExtentId extent) const GANTRY_EXCLUDES(mutex_);
  int64_t memory_alignment() const;  // power of two
  std::vector<StripeReport> Describe() const;
  StoreCounters counters() const GANTRY_EXCLUDES(mutex_);

 private:
  struct Stripe {
    std::string directory;
    std::unique_ptr<RunDirectory> run;
    std::unique_ptr<BlockFile> file;
    std::vector<std::unique_ptr<IoBackend>> rings;
  };
  struct Extent {
    int64_t stripe = 0;                  // where it lies when extents are dealt out whole
    std::vector<ExtentId> file_extents;  // per part
    bool allocated = false;
    bool written = false;  // since it was allocated
    bool writing = false;
    int64_t reads = 0;  // pending
  };
  // A contiguous range of one extent in one file, on one ring.
  struct Segment {
    IoBackend* ring;
    int64_t first_piece;  // of the extent
    IoRequest request;
    bool reread = false;
  };
  struct Operation {
    IoRequest::Kind kind;
    ExtentId extent;
    int64_t first_piece;
    IoPriority priority;
    bool hashed;                         // its pieces' checksums are taken
    std::vector<uint64_t> hashes = {};   // per piece; zeros when not hashed
    std::vector<uint64_t> io_tags = {};  // of all its segments
    int64_t segments_out = 0;
    int64_t segments_done = 0;  // not those that were cancelled
    std::vector<Segment> cancelled = {};
    absl::Status status = {};
  };
  struct SegmentOut {
    uint64_t tag;  // of its operation
    Segment segment;
  };
  struct Range {
    int64_t offset;
    std::span<std::byte> buffer;
  };

  BlockStore(const Options& options, StripeLayout layout);
  static absl::Status CheckOptions(const Options& options);
  static absl::StatusOr<std::vector<double>> Shares(const Options& options,
                                                    const std::vector<Stripe>& stripes);
  absl::Status OpenStripe(const Options& options, Stripe& stripe, int64_t index);
  void OnIoComplete(uint64_t io_tag, absl::Status status) override GANTRY_EXCLUDES(mutex_);
  Extent& Allocated(ExtentId extent) GANTRY_REQUIRES(mutex_);
  void Begin(uint64_t tag, Operation operation, Range range) GANTRY_REQUIRES(mutex_);
  void BeginPart(uint64_t tag, Operation& operation, int64_t stripe, Range range)
      GANTRY_REQUIRES(mutex_);
  void Start(uint64_t tag, Operation& operation, Segment segment) GANTRY_REQUIRES(mutex_);
  void Verify(uint64_t tag, Operation& operation, const Segment& segment) GANTRY_REQUIRES(mutex_);
  bool Restart(uint64_t tag, Operation& operation) GANTRY_REQUIRES(mutex_);
  absl::Status End(uint64_t tag, Operation& operation) GANTRY_REQUIRES(mutex_);

  const int64_t extent_bytes_;
  const bool verify_;
  StoreSink* const sink_;
  std::vector<Stripe> stripes_;  // written by Create and the destructor only

  Mutex grow_mutex_;  // taken before mutex_; that one is taken before those of files and rings
  mutable Mutex mutex_;
  StripeLayout layout_ GANTRY_GUARDED_BY(mutex_);  // written by Grow only
  PieceTable table_ GANTRY_GUARDED_BY(mutex_);
  std::vector<Extent> extents_ GANTRY_GUARDED_BY(mutex_);
  std::vector<int64_t> free_ GANTRY_GUARDED_BY(mutex_);  // last is handed out next
  absl::flat_hash_map<uint64_t, std::unique_ptr<Operation>> operations_ GANTRY_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, SegmentOut> out_ GANTRY_GUARDED_BY(mutex_);  // by tag of the ring
  uint64_t next_io_tag_ GANTRY_GUARDED_BY(mutex_) = 0;
  size_t next_ring_ GANTRY_GUARDED_BY(mutex_) = 0;
  bool closing_ GANTRY_GUARDED_BY(mutex_) = false;
  StoreCounters counters_ GANTRY_GUARDED_BY(mutex_);
};

}  // namespace gantry

#endif  // GANTRY_NVME_BLOCK_STORE_H_
