#include "benches/suite/transfer_benchmark.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/interleave.h"
#include "benches/suite/machine.h"
#include "benches/suite/report.h"
#include "device/device.h"
#include "device/host/host_device.h"
#include "nvme/block_store.h"
#include "nvme/extent_id.h"
#include "nvme/io_backend.h"
#include "offload/transfer_engine.h"

namespace gantry {
namespace {

// A slot as the engine chooses it for a model of some billion parameters, and a small one, of which
// a wake-up is a tenth.
constexpr Bytes kBlockBytes = 8_MiB;
constexpr Bytes kSmallBlockBytes = 2_MiB;
constexpr double kGigabyte = 1e9;
constexpr int64_t kBlocksMin = 8;
// Slots through which the pipeline runs: 64 MiB, four times what the file keeps under way.
constexpr int64_t kPipelineSlots = 8;

double GigabytesPerSecond(int64_t bytes, Nanoseconds taken) {
  return static_cast<double>(bytes) / static_cast<double>(std::max<Nanoseconds>(taken, 1));
}

// An emulated device with its lanes, a slab on either side and, for the pipeline, a file.
class Rig {
 public:
  struct Setup {
    int64_t blocks;
    Bytes block_bytes;
    int64_t lane_bytes_per_second;  // 0: as fast as memcpy
    enum class File { kNone, kWritten } file;
  };
  static absl::StatusOr<std::unique_ptr<Rig>> Create(const Setup& setup,
                                                     const BenchOptions& options);

  int64_t blocks() const { return setup_.blocks; }
  int64_t bytes() const { return setup_.blocks * setup_.block_bytes.count(); }
  std::byte* device(int64_t block) const { return device_slab_->parking(SlotId(block)); }
  std::byte* host(int64_t slot) const { return host_slab_->parking(SlotId(slot)); }
  int64_t host_slots() const { return host_slab_->slot_count(); }
  std::string io_name() const { return engine_->store()->Describe().front().backend; }

  // Each in GB/s of the direction that is slower, by the blocks in order.
  absl::StatusOr<double> Lanes(std::vector<CopyDirection> directions);
  absl::StatusOr<double> Memcpy(std::vector<CopyDirection> directions) const;
  // File into host slots, over and over the same ones, as many under way as there are.
  absl::StatusOr<double> FileAlone();
  // Host slots to the device, likewise.
  absl::StatusOr<double> LaneAlone();
  // File, host slot, device.
  absl::StatusOr<double> Pipeline();

 private:
  Rig(const Setup& setup, const BenchOptions& options) : setup_(setup), options_(options) {}
  // The ways a block goes, of the three above.
  enum class Way { kFile, kLane, kFileAndLane };

  absl::Status Open();
  absl::Status WriteFileOnce();
  TransferTicket StartRead(int64_t block, int64_t slot);
  TransferTicket StartCopy(int64_t block, int64_t slot);
  TransferTicket StartFetch(int64_t block, int64_t slot);
  TransferTicket Start(Way way, int64_t block, int64_t slot);
  absl::StatusOr<double> Stream(Way way);

  const Setup setup_;
  const BenchOptions& options_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Slab> device_slab_;
  std::unique_ptr<Slab> host_slab_;
  std::vector<ExtentId> extents_;
  std::unique_ptr<TransferEngine> engine_;
};

absl::StatusOr<std::unique_ptr<Rig>> Rig::Create(const Setup& setup, const BenchOptions& options) {
  std::unique_ptr<Rig> rig(new Rig(setup, options));
  GANTRY_RETURN_IF_ERROR(rig->Open());
  return rig;
}

absl::Status Rig::Open() {
  const bool has_file = setup_.file == Setup::File::kWritten;
  GANTRY_ASSIGN_OR_RETURN(
      device_, CreateHostDevice({.topology = DeviceTopology::kDiscrete,
                                 .bandwidth_bytes_per_second = setup_.lane_bytes_per_second,
                                 .clock = options_.clock}));
  GANTRY_ASSIGN_OR_RETURN(device_slab_, device_->CreateSlab({.kind = MemoryKind::kDevice,
                                                             .slot_bytes = setup_.block_bytes,
                                                             .slot_count = setup_.blocks}));
  const int64_t host_slots = has_file ? std::min(kPipelineSlots, setup_.blocks) : setup_.blocks;
  GANTRY_ASSIGN_OR_RETURN(host_slab_, device_->CreateSlab({.kind = MemoryKind::kHostPinned,
                                                           .slot_bytes = setup_.block_bytes,
                                                           .slot_count = host_slots}));
  const std::span<std::byte> host_memory(
      host(0), static_cast<size_t>(host_slots * setup_.block_bytes.count()));
  std::optional<BlockStore::Options> store;
  if (has_file) {
    store = BlockStore::Options{.directories = {options_.directory},
                                .extent_bytes = setup_.block_bytes,
                                .extent_count = setup_.blocks,
                                .io = options_.io,
                                .fixed_memory = {&host_memory, 1},
                                .sink = nullptr,
                                .files = options_.files,
                                .clock = options_.clock,
                                .logger = options_.logger};
  }
  GANTRY_ASSIGN_OR_RETURN(engine_, TransferEngine::Create({.device = device_.get(),
                                                           .part_bytes = setup_.block_bytes,
                                                           .store = std::move(store),
                                                           .clock = options_.clock,
                                                           .trace_sink = nullptr}));
  for (int64_t i = 0; has_file && i < setup_.blocks; ++i) {
    GANTRY_ASSIGN_OR_RETURN(const ExtentId extent, engine_->store()->AllocateExtent());
    extents_.push_back(extent);
  }
  return has_file ? WriteFileOnce() : absl::OkStatus();
}

absl::Status Rig::WriteFileOnce() {
  int64_t started = 0;
  for (int64_t finished = 0; finished < setup_.blocks;) {
    while (started < setup_.blocks && started - finished < host_slots()) {
      const FilePart part = {.extent = extents_[static_cast<size_t>(started)],
                             .memory = host(started % host_slots())};
      engine_->WriteFile({&part, 1}, IoPriority::kWriteBack);
      ++started;
    }
    for (const TransferCompletion& completion : engine_->WaitAndPoll()) {
      GANTRY_RETURN_IF_ERROR(completion.status);
      ++finished;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Rig::Lanes(std::vector<CopyDirection> directions) {
  const Nanoseconds begin = options_.clock->Now();
  size_t under_way = 0;
  for (int64_t block = 0; block < setup_.blocks; ++block) {
    for (const CopyDirection direction : directions) {
      const bool down = direction == CopyDirection::kDeviceToHost;
      // Two directions at once use different blocks: halves of both slabs.
      const int64_t other = (block + setup_.blocks / 2) % setup_.blocks;
      const int64_t at = down && directions.size() == 2 ? other : block;
      const CopyPart part = {.destination = down ? host(at) : device(at),
                             .source = down ? device(at) : host(at)};
      engine_->Copy(direction, {&part, 1});
      ++under_way;
    }
  }
  while (under_way > 0) {
    for (const TransferCompletion& completion : engine_->WaitAndPoll()) {
      GANTRY_RETURN_IF_ERROR(completion.status);
      --under_way;
    }
  }
  return GigabytesPerSecond(bytes(), options_.clock->Now() - begin);
}

absl::StatusOr<double> Rig::Memcpy(std::vector<CopyDirection> directions) const {
  const Nanoseconds begin = options_.clock->Now();
  const auto copy_all = [this, &directions](CopyDirection direction) {
    const bool down = direction == CopyDirection::kDeviceToHost;
    const int64_t first = down && directions.size() == 2 ? setup_.blocks / 2 : 0;
    for (int64_t i = 0; i < setup_.blocks; ++i) {
      const int64_t at = (i + first) % setup_.blocks;
      std::memcpy(down ? host(at) : device(at), down ? device(at) : host(at),
                  static_cast<size_t>(setup_.block_bytes.count()));
    }
  };
  // thread: a lane has one, so what it is compared with has one per direction too.
  std::vector<std::thread> others;
  for (size_t i = 1; i < directions.size(); ++i) others.emplace_back(copy_all, directions[i]);
  copy_all(directions[0]);
  for (std::thread& other : others) other.join();
  return GigabytesPerSecond(bytes(), options_.clock->Now() - begin);
}

TransferTicket Rig::StartRead(int64_t block, int64_t slot) {
  const FilePart part = {.extent = extents_[static_cast<size_t>(block)], .memory = host(slot)};
  return engine_->ReadFile({&part, 1}, IoPriority::kDemand);
}

TransferTicket Rig::StartFetch(int64_t block, int64_t slot) {
  const FetchPart part = {
      .extent = extents_[static_cast<size_t>(block)], .host = host(slot), .device = device(block)};
  return engine_->FetchFile({&part, 1}, IoPriority::kDemand);
}

TransferTicket Rig::StartCopy(int64_t block, int64_t slot) {
  const CopyPart part = {.destination = device(block), .source = host(slot)};
  return engine_->Copy(CopyDirection::kHostToDevice, {&part, 1});
}

TransferTicket Rig::Start(Way way, int64_t block, int64_t slot) {
  switch (way) {
    case Way::kFile:
      return StartRead(block, slot);
    case Way::kLane:
      return StartCopy(block, slot);
    case Way::kFileAndLane:
      break;
  }
  return StartFetch(block, slot);
}

absl::StatusOr<double> Rig::Stream(Way way) {
  const Nanoseconds begin = options_.clock->Now();
  std::vector<int64_t> free_slots;
  for (int64_t slot = 0; slot < host_slots(); ++slot) free_slots.push_back(slot);
  std::vector<std::pair<TransferTicket, int64_t>> under_way;  // and their slots
  int64_t started = 0;
  for (int64_t finished = 0; finished < setup_.blocks;) {
    while (started < setup_.blocks && !free_slots.empty()) {
      const int64_t slot = free_slots.back();
      free_slots.pop_back();
      under_way.emplace_back(Start(way, started++, slot), slot);
    }
    for (const TransferCompletion& completion : engine_->WaitAndPoll()) {
      GANTRY_RETURN_IF_ERROR(completion.status);
      const auto found = std::find_if(under_way.begin(), under_way.end(), [&](const auto& entry) {
        return entry.first == completion.ticket;
      });
      free_slots.push_back(found->second);
      under_way.erase(found);
      ++finished;
    }
  }
  return GigabytesPerSecond(bytes(), options_.clock->Now() - begin);
}

absl::StatusOr<double> Rig::FileAlone() { return Stream(Way::kFile); }
absl::StatusOr<double> Rig::LaneAlone() { return Stream(Way::kLane); }
absl::StatusOr<double> Rig::Pipeline() { return Stream(Way::kFileAndLane); }

// Repeats a figure until the turn is over, and takes the mean speed: for work much shorter than a
// turn. `work` gives GB/s of equal amounts.
Measurement ForATurn(const BenchOptions& options, Measurement work) {
  return [&options, work = std::move(work)]() -> absl::StatusOr<double> {
    const Nanoseconds end = options.clock->Now() + options.turn_time() / 3;
    double time = 0.0;
    int count = 0;
    do {
      GANTRY_ASSIGN_OR_RETURN(const double speed, work());
      time += 1.0 / speed;
      ++count;
    } while (options.clock->Now() < end);
    return count / time;
  };
}

absl::StatusOr<BenchRow> CompareLanes(std::string_view name, Rig& rig,
                                      const std::vector<CopyDirection>& directions,
                                      const BenchOptions& options) {
  options.Tell(StrCat("transfer: ", name));
  const std::vector<Measurement> sides = {
      ForATurn(options, [&] { return rig.Lanes(directions); }),
      ForATurn(options, [&] { return rig.Memcpy(directions); })};
  GANTRY_ASSIGN_OR_RETURN(const Samples samples,
                          Interleave(sides, {.rounds = options.rounds(), .stop = options.stop}));
  BenchRow row = ComparisonRow({.name = name,
                                .unit = "GB/s",
                                .better = Better::kHigher,
                                .values = samples[0],
                                .bounds = samples[1]});
  row.note = directions.size() == 1 ? "bound: memcpy, one thread"
                                    : "each direction; bound: memcpy, two threads";
  return row;
}

absl::StatusOr<BenchRow> ComparePipeline(std::string_view name, Rig& rig,
                                         const BenchOptions& options) {
  options.Tell(StrCat("transfer: ", name));
  const std::vector<Measurement> sides = {ForATurn(options, [&] { return rig.Pipeline(); }),
                                          ForATurn(options, [&] { return rig.FileAlone(); }),
                                          ForATurn(options, [&] { return rig.LaneAlone(); })};
  GANTRY_ASSIGN_OR_RETURN(const Samples samples,
                          Interleave(sides, {.rounds = options.rounds(), .stop = options.stop}));
  const double file = Median(samples[1]);
  const double lane = Median(samples[2]);
  BenchRow row = ComparisonRow({.name = name,
                                .unit = "GB/s",
                                .better = Better::kHigher,
                                .values = samples[0],
                                .bounds = file < lane ? samples[1] : samples[2]});
  row.note = StrCat("bound: ", file < lane ? "file read" : "copy lane", " alone (file ", file,
                    ", lane ", lane, " GB/s)");
  return row;
}

int64_t BlocksOf(Bytes size, Bytes block_bytes) {
  return std::max(size.count() / block_bytes.count(), kBlocksMin);
}

struct LaneRow {
  std::string_view name;
  std::vector<CopyDirection> directions;
};

absl::Status AddLanes(const BenchOptions& options, Bytes size, Bytes block_bytes,
                      const std::vector<LaneRow>& rows, BenchReport& report) {
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<Rig> rig,
                          Rig::Create({.blocks = BlocksOf(size, block_bytes),
                                       .block_bytes = block_bytes,
                                       .lane_bytes_per_second = 0,
                                       .file = Rig::Setup::File::kNone},
                                      options));
  for (const auto& [name, directions] : rows) {
    GANTRY_ASSIGN_OR_RETURN(BenchRow row, CompareLanes(name, *rig, directions, options));
    report.rows.push_back(std::move(row));
  }
  return absl::OkStatus();
}

absl::Status AddPipelines(const BenchOptions& options, Bytes size, BenchReport& report) {
  double file_speed = 0.0;
  for (const std::string_view name : {"pipeline", "pipeline_balanced"}) {
    // Balanced: a lane as fast as the file, where only full overlap reaches the bound.
    const auto lane_speed = static_cast<int64_t>(file_speed * kGigabyte);
    GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<Rig> rig,
                            Rig::Create({.blocks = BlocksOf(size, kBlockBytes),
                                         .block_bytes = kBlockBytes,
                                         .lane_bytes_per_second = lane_speed,
                                         .file = Rig::Setup::File::kWritten},
                                        options));
    if (file_speed == 0.0) report.machine.Add("io_backend", rig->io_name());
    GANTRY_ASSIGN_OR_RETURN(BenchRow row, ComparePipeline(name, *rig, options));
    report.rows.push_back(std::move(row));
    GANTRY_ASSIGN_OR_RETURN(file_speed, rig->FileAlone());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BenchReport> RunTransferBenchmark(const BenchOptions& options) {
  GANTRY_RETURN_IF_ERROR(ValidateBenchOptions(options));
  BenchReport report{.bench = "transfer", .machine = DescribeMachine(), .rows = {}};
  DescribeDirectory(options.directory, report.machine);
  const Bytes size = options.SizeOr(512_MiB, 64_MiB);
  constexpr CopyDirection kUp = CopyDirection::kHostToDevice;
  constexpr CopyDirection kDown = CopyDirection::kDeviceToHost;
  report.machine.Add("transfer_block_bytes", kBlockBytes.count());
  report.machine.Add("transfer_blocks", BlocksOf(size, kBlockBytes));
  GANTRY_RETURN_IF_ERROR(
      AddLanes(options, size, kBlockBytes,
               {{"h2d", {kUp}}, {"d2h", {kDown}}, {"both_directions", {kUp, kDown}}}, report));
  GANTRY_RETURN_IF_ERROR(AddLanes(options, size, kSmallBlockBytes,
                                  {{"h2d_2_mib", {kUp}}, {"d2h_2_mib", {kDown}}}, report));
  GANTRY_RETURN_IF_ERROR(AddPipelines(options, size, report));
  return report;
}

}  // namespace gantry
