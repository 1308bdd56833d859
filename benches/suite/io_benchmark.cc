#include "benches/suite/io_benchmark.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "benches/suite/bench_options.h"
#include "benches/suite/fio.h"
#include "benches/suite/interleave.h"
#include "benches/suite/machine.h"
#include "benches/suite/report.h"
#include "benches/suite/store_load.h"
#include "nvme/block_store.h"
#include "nvme/io_backend.h"
#include "nvme/run_directory.h"

namespace gantry {
namespace {

constexpr double kGigabyte = 1e9;
constexpr int kQueueDepth = 16;
constexpr int64_t kBlocksMin = 4;
// Of the file system's free space, for each of the two files: ours and fio's.
constexpr int64_t kSpaceShare = 4;
// Optimizer states of AdamW in files are written once per step: master, momentum, variance.
constexpr double kAdamStateBytes = 12.0;
constexpr Bytes kSweepFile = 256_MiB;
constexpr int kFioAttempts = 6;
constexpr Nanoseconds kFioPause = 200'000'000;
constexpr double kChecksumLimit = 3.0;  // percent
// In which blocks take turns while costs are measured: an engine has more, no cache as much.
constexpr Bytes kCostMemory = 256_MiB;
// Turns so short that a drive does not change within two of them, and many.
constexpr int kCostTurnShare = 12;
constexpr int kCostPairsPerRound = 8;
constexpr int kSweepRounds = 2;
constexpr Nanoseconds kSweepTurn = 150'000'000;

// What one side of a comparison gave, one entry per run, warm-ups included.
struct SideLog {
  std::vector<double> cpu_seconds_per_gigabyte;
  std::vector<double> latencies[3];  // median, 99 %, 99.9 %, in microseconds
};

constexpr double kLatencyFractions[3] = {0.5, 0.99, 0.999};
constexpr std::string_view kLatencyNames[3] = {"read_latency_p50", "read_latency_p99",
                                               "read_latency_p99_9"};

double OneDecimal(double value) { return std::round(10.0 * value) / 10.0; }

// fio's file, in a directory that goes with the object; or why there is none.
struct FioSide {
  std::unique_ptr<RunDirectory> directory;
  std::string file;
  FioBuffers buffers = FioBuffers::kRegistered;
  absl::Status status = absl::OkStatus();
};

class IoBenchmark {
 public:
  explicit IoBenchmark(const BenchOptions& options) : options_(options) {}
  absl::StatusOr<BenchReport> Run();

 private:
  struct Point {
    Bytes block_bytes;
    int queue_depth;
    Bytes file_bytes;

    int64_t blocks() const {
      return std::max(file_bytes.count() / block_bytes.count(), kBlocksMin);
    }
    // No more than keep clear of each other in the file.
    int requests() const {
      return static_cast<int>(std::min<int64_t>(queue_depth, blocks() / kBlocksMin));
    }
  };
  // What one way of reading costs more than another; one entry per pair of turns.
  struct ReadCost {
    double base_speed;                                  // GB/s, of the other
    std::vector<double> percent = {};                   // of that speed
    std::vector<double> cpu_seconds_per_gigabyte = {};  // in addition
  };
  // A comparison of the same load on both sides.
  struct Duel {
    StoreLoad* store;
    Point point;
    LoadMix mix;
    Nanoseconds turn;
    int rounds;
    int warm_ups;
    SideLog* ours = nullptr;
    SideLog* theirs = nullptr;
  };

  absl::Status ChooseSize();
  // Blocks take turns in `memory`, but at least in one block for each request.
  absl::StatusOr<std::unique_ptr<StoreLoad>> CreateStore(const Point& point, Bytes memory) const;
  FioJob Job(const Point& point, LoadMix mix, Nanoseconds turn) const;
  void PrepareFio();
  void GiveUpFio(const absl::Status& status);
  absl::StatusOr<FioResult> RunFioPatiently(const Point& point, LoadMix mix, Nanoseconds turn);
  absl::StatusOr<double> MeasureOurs(const Duel& duel) const;
  absl::StatusOr<double> MeasureFio(const Duel& duel);
  absl::StatusOr<BenchRow> Compare(std::string_view name, const Duel& duel);
  absl::Status AddMixes();
  absl::Status AddChecksum(const Point& point);
  absl::StatusOr<ReadCost> MeasureCost(StoreLoad& store, const LoadRun& run,
                                       const LoadRun& base) const;
  static std::string Describe(const ReadCost& cost);
  absl::Status AddSweep();
  void AddCpuAndLatency(LoadMix mix, SideLog& ours, SideLog& theirs);

  const BenchOptions& options_;
  Bytes size_ = Bytes(0);
  FileAccess access_ = FileAccess::kDirect;
  FioSide fio_;
  BenchReport report_;
};

absl::Status IoBenchmark::ChooseSize() {
  size_ = options_.SizeOr(1_GiB, 128_MiB);
  struct statvfs space{};
  if (statvfs(options_.directory.c_str(), &space) != 0 || space.f_blocks == 0) {
    return absl::OkStatus();  // what is wrong with the directory shows when it is used
  }
  const auto free = static_cast<int64_t>(uint64_t{space.f_bavail} * uint64_t{space.f_frsize});
  const int64_t least = kBlocksMin * kPieceBytes;
  if (free / kSpaceShare < least) {
    return ResourceExhausted("'", options_.directory, "' has ", Bytes(free),
                             " free, the benchmark needs ", Bytes(least * kSpaceShare));
  }
  size_ = std::min(size_, Bytes(free / kSpaceShare));
  size_ = Bytes(std::max(size_.count() / kPieceBytes, kBlocksMin) * kPieceBytes);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StoreLoad>> IoBenchmark::CreateStore(const Point& point,
                                                                    Bytes memory) const {
  const int64_t pieces = CeilDiv(point.block_bytes.count(), kPieceBytes);
  return StoreLoad::Create(
      {.directory = options_.directory,
       .block_bytes = point.block_bytes,
       .blocks = point.blocks(),
       .queue_depth = static_cast<int>(point.queue_depth * pieces),
       .requests = point.requests(),
       .buffers =
           std::max(point.requests(), static_cast<int>(memory.count() / point.block_bytes.count())),
       .io = options_.io,
       .files = options_.files,
       .clock = options_.clock,
       .logger = options_.logger});
}

FioJob IoBenchmark::Job(const Point& point, LoadMix mix, Nanoseconds turn) const {
  return {.program = options_.fio,
          .file = fio_.file,
          .file_bytes = point.block_bytes * point.blocks(),
          .block_bytes = point.block_bytes,
          .queue_depth = point.requests(),
          .mix = mix,
          .access = access_,
          .buffers = fio_.buffers,
          .duration = turn};
}

// Writes fio's file once, as Create does with ours.
void IoBenchmark::PrepareFio() {
  auto directory = RunDirectory::Create(options_.files, *options_.clock, options_.directory);
  if (!directory.ok()) {
    return GiveUpFio(directory.status());
  }
  fio_.directory = *std::move(directory);
  fio_.file = fio_.directory->path() + "/fio";
  const Point whole = {
      .block_bytes = Bytes(kPieceBytes), .queue_depth = kQueueDepth, .file_bytes = size_};
  const absl::Status ran = RunFioPatiently(whole, LoadMix::kWrite, 0).status();
  if (!ran.ok()) GiveUpFio(ran);
}

void IoBenchmark::GiveUpFio(const absl::Status& status) {
  fio_.status = status;
  options_.logger->Warning(StrCat("no comparison with fio: ", FromAbsl(status.message())));
}

// Rings and their buffers count against the user's limit on locked memory, which is small by
// default, and what an earlier fio had of it comes back a while after its end.
absl::StatusOr<FioResult> IoBenchmark::RunFioPatiently(const Point& point, LoadMix mix,
                                                       Nanoseconds turn) {
  absl::StatusOr<FioResult> result = RunFio(Job(point, mix, turn));
  for (int attempt = 1; absl::IsInternal(result.status()) && attempt < kFioAttempts; ++attempt) {
    if (attempt > 1) options_.clock->SleepUntil(options_.clock->Now() + kFioPause);
    fio_.buffers = FioBuffers::kPlain;
    result = RunFio(Job(point, mix, turn));
  }
  return result;
}

absl::StatusOr<double> IoBenchmark::MeasureOurs(const Duel& duel) const {
  GANTRY_ASSIGN_OR_RETURN(const LoadResult result,
                          duel.store->Run({.mix = duel.mix, .duration = duel.turn}));
  if (duel.ours != nullptr) {
    const double gigabytes = static_cast<double>(result.bytes()) / kGigabyte;
    duel.ours->cpu_seconds_per_gigabyte.push_back(result.cpu_seconds / gigabytes);
    for (size_t i = 0; i < std::size(kLatencyFractions); ++i) {
      duel.ours->latencies[i].push_back(1e-3 * Quantile(result.nanoseconds, kLatencyFractions[i]));
    }
  }
  return result.bytes_per_second() / kGigabyte;
}

absl::StatusOr<double> IoBenchmark::MeasureFio(const Duel& duel) {
  const absl::StatusOr<FioResult> result = RunFioPatiently(duel.point, duel.mix, duel.turn);
  if (!result.ok()) {
    GiveUpFio(result.status());
    return result.status();
  }
  if (duel.theirs != nullptr) {
    const double gigabytes = static_cast<double>(result->bytes) / kGigabyte;
    duel.theirs->cpu_seconds_per_gigabyte.push_back(result->cpu_seconds / gigabytes);
    duel.theirs->latencies[0].push_back(1e-3 * result->latency_median);
    duel.theirs->latencies[1].push_back(1e-3 * result->latency_99);
    duel.theirs->latencies[2].push_back(1e-3 * result->latency_99_9);
  }
  return result->bytes_per_second() / kGigabyte;
}

// Without fio from where it fails on.
absl::StatusOr<BenchRow> IoBenchmark::Compare(std::string_view name, const Duel& duel) {
  options_.Tell(StrCat("io: ", name));
  const InterleaveOptions interleave = {
      .rounds = duel.rounds, .warm_ups = duel.warm_ups, .stop = options_.stop};
  std::vector<Measurement> sides = {[&] { return MeasureOurs(duel); }};
  const bool beside_fio = fio_.status.ok();
  if (beside_fio) sides.emplace_back([&] { return MeasureFio(duel); });
  absl::StatusOr<Samples> samples = Interleave(sides, interleave);
  if (beside_fio && !fio_.status.ok()) {
    for (SideLog* log : {duel.ours, duel.theirs}) {
      if (log != nullptr) *log = {};
    }
    sides.pop_back();
    samples = Interleave(sides, interleave);
  }
  GANTRY_RETURN_IF_ERROR(samples.status());
  BenchRow row =
      ComparisonRow({.name = name,
                     .unit = "GB/s",
                     .better = Better::kHigher,
                     .values = (*samples)[0],
                     .bounds = samples->size() > 1 ? std::span<const double>((*samples)[1])
                                                   : std::span<const double>()});
  if (access_ == FileAccess::kBuffered) row.note = "buffered: not the drive's speed";
  if (samples->size() == 1) {
    row.note += StrCat(row.note.empty() ? "" : "; ", "no bound: ", FromAbsl(fio_.status.message()));
  }
  return row;
}

void IoBenchmark::AddCpuAndLatency(LoadMix mix, SideLog& ours, SideLog& theirs) {
  report_.rows.push_back(ComparisonRow({.name = StrCat("cpu_", Name(mix)),
                                        .unit = "s/GB",
                                        .better = Better::kLower,
                                        .values = ours.cpu_seconds_per_gigabyte,
                                        .bounds = theirs.cpu_seconds_per_gigabyte}));
  if (mix != LoadMix::kRead) return;
  for (size_t i = 0; i < std::size(kLatencyNames); ++i) {
    report_.rows.push_back(ComparisonRow({.name = kLatencyNames[i],
                                          .unit = "us",
                                          .better = Better::kLower,
                                          .values = ours.latencies[i],
                                          .bounds = theirs.latencies[i]}));
  }
}

absl::Status IoBenchmark::AddMixes() {
  const Point point = {
      .block_bytes = Bytes(kPieceBytes), .queue_depth = kQueueDepth, .file_bytes = size_};
  options_.Tell(StrCat("io: writing two files of ", size_));
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<StoreLoad> store, CreateStore(point, Bytes(0)));
  access_ = store->facts().access;
  report_.machine.Add("io_backend", store->facts().backend);
  report_.machine.Add("ring_flags", store->facts().ring_flags);
  report_.machine.Add("fixed_memory", store->facts().fixed_memory);
  report_.machine.Add("direct_io", access_ == FileAccess::kDirect);
  report_.machine.Add("io_file_bytes", size_.count());
  report_.machine.Add("io_block_bytes", point.block_bytes.count());
  report_.machine.Add("io_queue_depth", int64_t{point.queue_depth});
  PrepareFio();
  for (const LoadMix mix : {LoadMix::kRead, LoadMix::kWrite, LoadMix::kMixed}) {
    SideLog ours;
    SideLog theirs;
    GANTRY_ASSIGN_OR_RETURN(BenchRow row, Compare(Name(mix), {.store = store.get(),
                                                              .point = point,
                                                              .mix = mix,
                                                              .turn = options_.turn_time(),
                                                              .rounds = options_.rounds(),
                                                              .warm_ups = 1,
                                                              .ours = &ours,
                                                              .theirs = &theirs}));
    report_.rows.push_back(std::move(row));
    AddCpuAndLatency(mix, ours, theirs);
  }
  return AddChecksum(point);
}

// What verification takes of the speed of reads and of the processor: beside reads that nobody
// looks at, and beside reads whose bytes are used. Where the drive's bytes come through a cache, as
// on a virtual machine, whoever looks at them first slows the next ones down, be it for a checksum
// or for its own work.
absl::Status IoBenchmark::AddChecksum(const Point& point) {
  options_.Tell("io: checksum");
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<StoreLoad> store, CreateStore(point, kCostMemory));
  const LoadRun plain = {.mix = LoadMix::kRead, .verification = Verification::kOff};
  LoadRun compared = plain;
  compared.verification = Verification::kEveryRead;
  LoadRun used = plain;
  used.use = ReadUse::kTouch;
  LoadRun both = compared;
  both.use = ReadUse::kTouch;
  GANTRY_ASSIGN_OR_RETURN(const ReadCost cost, MeasureCost(*store, compared, plain));
  report_.rows.push_back(LimitRow({.name = "checksum",
                                   .value = Median(cost.percent),
                                   .bound = kChecksumLimit,
                                   .unit = "%",
                                   .better = Better::kLower}));
  report_.rows.back().note = Describe(cost);
  report_.rows.push_back(FigureRow("checksum_cpu", Median(cost.cpu_seconds_per_gigabyte), "s/GB"));
  GANTRY_ASSIGN_OR_RETURN(const ReadCost use, MeasureCost(*store, used, plain));
  report_.rows.push_back(FigureRow("use", Median(use.percent), "%"));
  report_.rows.back().note = Describe(use);
  GANTRY_ASSIGN_OR_RETURN(const ReadCost beside_use, MeasureCost(*store, both, used));
  report_.rows.push_back(FigureRow("checksum_of_used", Median(beside_use.percent), "%"));
  report_.rows.back().note = Describe(beside_use);
  return absl::OkStatus();
}

// Reads of one file by `run` and by `base`, in short turns: drives change their speed from one
// second to the next, and two files never lie alike.
absl::StatusOr<IoBenchmark::ReadCost> IoBenchmark::MeasureCost(StoreLoad& store, const LoadRun& run,
                                                               const LoadRun& base) const {
  SideLog logs[2];
  const auto read = [&](LoadRun side, SideLog& log) -> Measurement {
    side.duration = options_.turn_time() / kCostTurnShare;
    return [&store, &log, side]() -> absl::StatusOr<double> {
      GANTRY_ASSIGN_OR_RETURN(const LoadResult result, store.Run(side));
      log.cpu_seconds_per_gigabyte.push_back(result.cpu_seconds * kGigabyte /
                                             static_cast<double>(result.bytes()));
      return result.bytes_per_second() / kGigabyte;
    };
  };
  const std::vector<Measurement> sides = {read(run, logs[0]), read(base, logs[1])};
  GANTRY_ASSIGN_OR_RETURN(
      const Samples samples,
      Interleave(sides, {.rounds = options_.rounds() * kCostPairsPerRound, .stop = options_.stop}));
  ReadCost cost = {.base_speed = Median(samples[1])};
  for (size_t i = 0; i < samples[0].size(); ++i) {
    cost.percent.push_back(100.0 * (1.0 - samples[0][i] / samples[1][i]));
  }
  for (size_t i = 0; i < logs[0].cpu_seconds_per_gigabyte.size(); ++i) {
    cost.cpu_seconds_per_gigabyte.push_back(logs[0].cpu_seconds_per_gigabyte[i] -
                                            logs[1].cpu_seconds_per_gigabyte[i]);
  }
  return cost;
}

std::string IoBenchmark::Describe(const ReadCost& cost) {
  return StrCat("median of ", cost.percent.size(), " pairs, the middle half from ",
                OneDecimal(Quantile(cost.percent, 0.25)), " to ",
                OneDecimal(Quantile(cost.percent, 0.75)), " %, at ", OneDecimal(cost.base_speed),
                " GB/s");
}

absl::Status IoBenchmark::AddSweep() {
  for (const Bytes block_bytes : {256_KiB, 1_MiB, 4_MiB}) {
    for (const int depth : {1, 8, 32}) {
      const Point point = {.block_bytes = block_bytes,
                           .queue_depth = depth,
                           .file_bytes = std::min(size_, kSweepFile)};
      GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<StoreLoad> store, CreateStore(point, Bytes(0)));
      const std::string name = StrCat("read_bs_", block_bytes.count() / 1024, "K_qd_", depth);
      GANTRY_ASSIGN_OR_RETURN(BenchRow row, Compare(name, {.store = store.get(),
                                                           .point = point,
                                                           .mix = LoadMix::kRead,
                                                           .turn = kSweepTurn,
                                                           .rounds = kSweepRounds,
                                                           .warm_ups = 0}));
      report_.rows.push_back(std::move(row));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BenchReport> IoBenchmark::Run() {
  report_.bench = "io";
  report_.machine = DescribeMachine();
  DescribeDirectory(options_.directory, report_.machine);
  GANTRY_RETURN_IF_ERROR(ChooseSize());
  GANTRY_RETURN_IF_ERROR(AddMixes());
  if (options_.effort == BenchEffort::kFull) GANTRY_RETURN_IF_ERROR(AddSweep());
  report_.machine.Add(
      "fio_buffers", std::string(fio_.buffers == FioBuffers::kRegistered ? "registered" : "plain"));
  for (BenchRow& row :
       WearRows({.prefix = "", .bytes_written_per_parameter = kAdamStateBytes}, options_)) {
    row.note += ", AdamW's states in files";
    report_.rows.push_back(std::move(row));
  }
  return std::move(report_);
}

}  // namespace

std::vector<BenchRow> WearRows(const Wear& wear, const BenchOptions& options) {
  const double bytes = wear.bytes_written_per_parameter * options.model_parameters;
  std::vector<BenchRow> rows = {
      FigureRow(StrCat(wear.prefix, "bytes_written_per_step"), bytes / kGigabyte, "GB"),
      FigureRow(StrCat(wear.prefix, "drive_life_steps"), options.drive_terabytes * 1e12 / bytes,
                "steps")};
  rows[0].note = StrCat(wear.bytes_written_per_parameter, " bytes for each of ",
                        options.model_parameters, " parameters");
  rows[1].note = StrCat("of a drive that may be written ", options.drive_terabytes, " TB");
  return rows;
}

absl::StatusOr<BenchReport> RunIoBenchmark(const BenchOptions& options) {
  GANTRY_RETURN_IF_ERROR(ValidateBenchOptions(options));
  return IoBenchmark(options).Run();
}

}  // namespace gantry
