// Moves bytes between tiers on four lanes that run at once: host to device, device to host, file
// read, file write. A transfer is a list of equal parts (a block's slots) under one ticket. The
// engine owns the file tier's store, whose sink it is.
//
// With a trace sink each transfer becomes a slice on the track of its lane, from when it was handed
// over until it was complete, under the `label` it was submitted with ("block" without one).
//
// Submit calls never block and never call back: finished transfers wait in a queue until Poll or
// WaitAndPoll takes them, in order of completion. A transfer's memory belongs to the engine from
// submission until its completion was taken.
//
// Thread-safe, but the completions are for one consumer.
#ifndef GANTRY_OFFLOAD_TRANSFER_ENGINE_H_
#define GANTRY_OFFLOAD_TRANSFER_ENGINE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/trace_sink.h"
#include "device/device.h"
#include "nvme/block_store.h"
#include "nvme/io_backend.h"

namespace gantry {

GANTRY_DEFINE_ID(TransferTicket, "transfer#");

enum class TransferLane : uint8_t { kHostToDevice, kDeviceToHost, kFileRead, kFileWrite };
inline constexpr int kTransferLaneCount = 4;
std::string_view Name(TransferLane lane);  // "host to device", ...

// A file's bytes go up to a discrete device in pieces of this size, each as soon as it has come in
// and its checksum was right, so that a block takes the time of the slower lane and one piece.
inline constexpr int64_t kSubBlockBytes = 4 * kPieceBytes;

struct CopyPart {
  std::byte* destination;
  const std::byte* source;
};

struct FilePart {
  ExtentId extent;
  std::byte* memory;
};

struct FetchPart {
  ExtentId extent;
  std::byte* host;
  std::byte* device;
};

struct TransferCompletion {
  TransferTicket ticket;
  TransferLane lane;  // of a fetch: file read
  absl::Status status;
};

struct TransferCounters {
  int64_t transfers = 0;
  int64_t bytes = 0;     // that were moved; not what was cancelled or failed
  Nanoseconds busy = 0;  // while at least one transfer of the lane was under way, until now
};

class TransferEngine final : private CopySink, private StoreSink {
 public:
  struct Options {
    Device* device;
    Bytes part_bytes;                          // = slot bytes
    std::optional<BlockStore::Options> store;  // none: no file tier; `sink` is set by the engine
    Clock* clock;
    EventLoop* event_loop = nullptr;  // set: waiting means running it (simulation)
    TraceSink* trace_sink;            // null: off
    // With an event loop: an event that runs soon after a completion came. Empty: none.
    std::function<void()> on_completion = {};
  };
  // Everything in `options` outlives the engine. Errors: those of the store and the lanes.
  static absl::StatusOr<std::unique_ptr<TransferEngine>> Create(Options options);
  ~TransferEngine() override;  // waits for what is under way; completions not taken are lost

  // REQUIRES: a discrete device.
  TransferTicket Copy(CopyDirection direction, std::span<const CopyPart> parts,
                      std::string label = {});
  // REQUIRES of the next three: a file tier; extents as BlockStore asks.
  TransferTicket ReadFile(std::span<const FilePart> parts, IoPriority priority,
                          std::string label = {});
  TransferTicket WriteFile(std::span<const FilePart> parts, IoPriority priority,
                           std::string label = {});
  // From file to host and on to the device; both have the bytes when it is complete.
  // REQUIRES: a discrete device.
  TransferTicket FetchFile(std::span<const FetchPart> parts, IoPriority priority,
                           std::string label = {});

  // Makes a file transfer that waits more urgent. No effect on one that is done.
  void Promote(TransferTicket ticket, IoPriority priority);
  // Ends a file transfer as far as it has not begun: it completes with kCancelled unless all of it
  // was begun. What the memory holds then is undefined.
  void Cancel(TransferTicket ticket);

  // Blocks until a completion is there or Wake was called since the last return, then takes all.
  std::vector<TransferCompletion> WaitAndPoll();
  // Takes all completions that are there.
  std::vector<TransferCompletion> Poll();
  void Wake();

  // Whether labels are shown to anybody.
  bool traced() const { return options_.trace_sink != nullptr; }
  TransferCounters counters(TransferLane lane) const;
  // Null without a file tier.
  BlockStore* store() const { return store_.get(); }

 private:
  struct Transfer {
    TransferLane lane;
    int parts_left;  // requests to the store or a lane that have not completed
    Nanoseconds begin;
    absl::Status status;
    std::vector<uint64_t> requests = {};  // of the store, for Promote and Cancel
    bool fetch = false;
    int reads_left = 0;          // of a fetch
    bool copying = false;        // a fetch that counts on the lane to the device
    Nanoseconds copy_begin = 0;  // since when it does
    std::string label = {};
  };
  // One request to the store; a fetch's piece then goes up.
  struct Request {
    TransferTicket ticket;
    std::byte* host = nullptr;
    std::byte* device = nullptr;  // null: no fetch
    int64_t bytes = 0;
  };

  explicit TransferEngine(Options options) : options_(std::move(options)) {}
  void OnCopyComplete(uint64_t tag, absl::Status status) override;
  void OnStoreComplete(uint64_t tag, absl::Status status) override;
  void FinishPart(TransferTicket ticket, const absl::Status& status) GANTRY_REQUIRES(mutex_);
  TransferTicket Begin(TransferLane lane, size_t requests, std::string label)
      GANTRY_REQUIRES(mutex_);
  void Enter(TransferLane lane) GANTRY_REQUIRES(mutex_);
  void Count(TransferLane lane, int64_t bytes) GANTRY_REQUIRES(mutex_) {
    counters_[static_cast<size_t>(lane)].bytes += bytes;
  }
  void Leave(TransferLane lane, Nanoseconds begin, std::string_view label) GANTRY_REQUIRES(mutex_);
  uint64_t AddRequest(const Request& request) GANTRY_REQUIRES(mutex_);

  Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  int64_t next_ticket_ GANTRY_GUARDED_BY(mutex_) = 0;
  uint64_t next_request_ GANTRY_GUARDED_BY(mutex_) = 0;
  bool woken_ GANTRY_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<int64_t, Transfer> under_way_ GANTRY_GUARDED_BY(mutex_);  // by ticket
  absl::flat_hash_map<uint64_t, Request> requests_ GANTRY_GUARDED_BY(mutex_);   // by store tag
  std::vector<TransferCompletion> finished_ GANTRY_GUARDED_BY(mutex_);
  std::array<TransferCounters, kTransferLaneCount> counters_ GANTRY_GUARDED_BY(mutex_);
  std::array<int64_t, kTransferLaneCount> active_ GANTRY_GUARDED_BY(mutex_){};
  std::array<Nanoseconds, kTransferLaneCount> busy_since_ GANTRY_GUARDED_BY(mutex_){};

  // Destroyed first: their destructors finish all work, which calls back into the fields above.
  std::unique_ptr<CopyLane> to_device_;
  std::unique_ptr<CopyLane> to_host_;
  std::unique_ptr<BlockStore> store_;  // before the lanes: its reads go on to a lane
};

}  // namespace gantry

#endif  // GANTRY_OFFLOAD_TRANSFER_ENGINE_H_
