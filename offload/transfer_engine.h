// Moves bytes between tiers on four lanes that run at once: host to device, device to host, file
// read, file write. A transfer is a list of equal parts (a block's slots) under one ticket.
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
#include <memory>
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
#include "base/file_calls.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/trace_sink.h"
#include "device/device.h"
#include "nvme/block_file.h"
#include "nvme/create_io_backend.h"
#include "nvme/io_backend.h"

namespace gantry {

GANTRY_DEFINE_ID(TransferTicket, "transfer#");

enum class TransferLane : uint8_t { kHostToDevice, kDeviceToHost, kFileRead, kFileWrite };
inline constexpr int kTransferLaneCount = 4;
std::string_view Name(TransferLane lane);  // "host to device", ...

struct CopyPart {
  std::byte* destination;
  const std::byte* source;
};

struct FilePart {
  ExtentId extent;
  std::byte* memory;
};

struct TransferCompletion {
  TransferTicket ticket;
  TransferLane lane;
  absl::Status status;
};

struct TransferCounters {
  int64_t transfers = 0;
  int64_t bytes = 0;
  Nanoseconds busy = 0;  // time during which at least one transfer of the lane was under way
};

class TransferEngine final : private CopySink, private IoSink {
 public:
  struct Options {
    Device* device;
    Bytes part_bytes;               // = slot bytes
    BlockFile* file;                // null: no file tier
    IoPreference io;                // which I/O backend to use
    IoBackendFactory make_io = {};  // how it is made; empty: CreateIoBackend
    std::string io_directory;       // where the backend makes its trial request
    Clock* clock;
    EventLoop* event_loop = nullptr;  // set: waiting means running it (simulation)
    Logger* logger;
    TraceSink* trace_sink;  // null: off
  };
  // Everything in `options` outlives the engine. Errors: those of the I/O backend and the lanes.
  static absl::StatusOr<std::unique_ptr<TransferEngine>> Create(const Options& options);
  ~TransferEngine() override;  // waits for what is under way; completions not taken are lost

  // REQUIRES: a discrete device.
  TransferTicket Copy(CopyDirection direction, std::span<const CopyPart> parts);
  // REQUIRES: a file tier.
  TransferTicket ReadFile(std::span<const FilePart> parts);
  TransferTicket WriteFile(std::span<const FilePart> parts);

  // Blocks until a completion is there or Wake was called since the last return, then takes all.
  std::vector<TransferCompletion> WaitAndPoll();
  // Takes all completions that are there.
  std::vector<TransferCompletion> Poll();
  void Wake();

  TransferCounters counters(TransferLane lane) const;
  std::string_view io_name() const;  // "io_uring", "threads" or "none"

 private:
  struct Transfer {
    TransferLane lane;
    int parts_left;
    Nanoseconds begin;
    absl::Status status;
  };

  explicit TransferEngine(const Options& options) : options_(options) {}
  void OnCopyComplete(uint64_t tag, absl::Status status) override;
  void OnIoComplete(uint64_t tag, absl::Status status) override;
  void OnPartComplete(uint64_t ticket, absl::Status status) GANTRY_REQUIRES(mutex_);
  TransferTicket Begin(TransferLane lane, size_t parts) GANTRY_REQUIRES(mutex_);
  TransferTicket SubmitFile(TransferLane lane, std::span<const FilePart> parts);
  void Finish(uint64_t ticket, Transfer transfer) GANTRY_REQUIRES(mutex_);

  Options options_;
  PosixFileCalls file_calls_;  // of the backend
  mutable Mutex mutex_;
  CondVar changed_;
  int64_t next_ticket_ GANTRY_GUARDED_BY(mutex_) = 0;
  bool woken_ GANTRY_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<uint64_t, Transfer> under_way_ GANTRY_GUARDED_BY(mutex_);
  uint64_t next_file_part_ GANTRY_GUARDED_BY(mutex_) = 0;
  // The transfer of each file part under way, by the tag of its request.
  absl::flat_hash_map<uint64_t, uint64_t> file_parts_ GANTRY_GUARDED_BY(mutex_);
  std::vector<TransferCompletion> finished_ GANTRY_GUARDED_BY(mutex_);
  std::array<TransferCounters, kTransferLaneCount> counters_ GANTRY_GUARDED_BY(mutex_);
  std::array<int64_t, kTransferLaneCount> active_ GANTRY_GUARDED_BY(mutex_){};
  std::array<Nanoseconds, kTransferLaneCount> busy_since_ GANTRY_GUARDED_BY(mutex_){};

  // Destroyed first: their destructors finish all work, which calls back into the fields above.
  std::unique_ptr<CopyLane> to_device_;
  std::unique_ptr<CopyLane> to_host_;
  std::unique_ptr<IoBackend> io_;
};

}  // namespace gantry

#endif  // GANTRY_OFFLOAD_TRANSFER_ENGINE_H_
