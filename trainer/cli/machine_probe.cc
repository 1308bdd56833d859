#include "trainer/cli/machine_probe.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/device.h"
#include "device/host/host_device.h"
#include "kernels/kernel_context.h"
#include "kernels/matmul.h"
#include "kernels/views.h"
#include "nvme/create_io_backend.h"
#include "nvme/io_backend.h"
#include "nvme/measure_bandwidth.h"
#include "nvme/run_directory.h"
#include "offload/optimizer.h"
#include "placement_policy/machine.h"

namespace gantry {
namespace {

constexpr Bytes kBlockBytes = 8_MiB;
constexpr int64_t kSmallCopyBytes = 4096;
constexpr int64_t kElementBytes = 16;  // master, momentum, variance, gradient, parameter
// Two lanes whose common rate is this share of the sum of theirs do not disturb each other.
constexpr double kUndisturbed = 0.95;

// How much and how often.
struct Load {
  int64_t blocks;  // of a slab
  int rounds;
  int small_copies;
  MatrixShape matrix;  // [out, in]
  int64_t tokens;
  Bytes file_bytes;
  Bytes file_traffic;
  Nanoseconds file_time;
};
constexpr Load kFullLoad = {.blocks = 32,
                            .rounds = 7,
                            .small_copies = 500,
                            .matrix = {.rows = 2048, .cols = 2048},
                            .tokens = 512,
                            .file_bytes = 2_GiB,
                            .file_traffic = 8_GiB,
                            .file_time = 2'000'000'000};
constexpr Load kQuickLoad = {.blocks = 2,
                             .rounds = 2,
                             .small_copies = 10,
                             .matrix = {.rows = 128, .cols = 128},
                             .tokens = 64,
                             .file_bytes = 8_MiB,
                             .file_traffic = 32_MiB,
                             .file_time = 20'000'000};

// Counts completions.
class CountingSink final : public CopySink {
 public:
  void OnCopyComplete(uint64_t, absl::Status status) override {
    MutexLock lock(mutex_);
    status_.Update(status);
    ++done_;
    changed_.NotifyAll();
  }
  // Waits for so many more.
  absl::Status WaitFor(int64_t count) {
    MutexLock lock(mutex_);
    waited_for_ += count;
    while (done_ < waited_for_) changed_.Wait(mutex_);
    return status_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int64_t done_ GANTRY_GUARDED_BY(mutex_) = 0;
  int64_t waited_for_ GANTRY_GUARDED_BY(mutex_) = 0;
  absl::Status status_ GANTRY_GUARDED_BY(mutex_);
};

int64_t PerSecond(double amount, Nanoseconds time) {
  return std::max<int64_t>(
      1, std::llround(amount * 1e9 / static_cast<double>(std::max<Nanoseconds>(time, 1))));
}

// Two rates and their common one as duplex: independent where they add up.
Duplex DuplexOf(const Lane& a, const Lane& b, int64_t mixed) {
  const double sum =
      static_cast<double>(a.bytes_per_second) + static_cast<double>(b.bytes_per_second);
  return static_cast<double>(mixed) >= kUndisturbed * sum ? Duplex::kIndependent : Duplex::kMixed;
}

class MachineProbe {
 public:
  explicit MachineProbe(const ProbeOptions& options)
      : options_(options), load_(options.effort == ProbeEffort::kFull ? kFullLoad : kQuickLoad) {}

  absl::StatusOr<Hardware> Run() {
    GANTRY_ASSIGN_OR_RETURN(team_, ThreadTeam::Create({.threads = options_.threads}));
    DescribeMemory();
    GANTRY_RETURN_IF_ERROR(MeasureCopies());
    GANTRY_RETURN_IF_ERROR(MeasureUpdates());
    GANTRY_RETURN_IF_ERROR(MeasureProducts());
    if (!options_.directories.empty()) GANTRY_RETURN_IF_ERROR(MeasureFiles());
    GANTRY_RETURN_IF_ERROR(hardware_.Validate());
    return std::move(hardware_);
  }

 private:
  // Says what comes next, unless it must not come.
  absl::Status Next(std::string_view what) {
    if (options_.stop->requested()) return absl::CancelledError("stopped");
    options_.progress(what);
    return absl::OkStatus();
  }

  void SetSource(std::string_view field, std::string_view source) {
    hardware_.sources[std::string(field)] = source;
  }

  // The time of `work`, the median of the rounds behind a first one that warms up.
  template <typename Work>
  absl::StatusOr<Nanoseconds> MedianTime(int rounds, const Work& work) {
    GANTRY_RETURN_IF_ERROR(work());
    std::vector<Nanoseconds> times;
    for (int i = 0; i < rounds; ++i) {
      const Nanoseconds begin = options_.clock->Now();
      GANTRY_RETURN_IF_ERROR(work());
      times.push_back(options_.clock->Now() - begin);
    }
    std::ranges::sort(times);
    return times[(times.size() - 1) / 2];
  }

  void DescribeMemory();
  absl::Status MeasureCopies();
  absl::Status MeasureUpdates();
  absl::Status MeasureProducts();
  absl::Status MeasureFiles();
  absl::Status DescribeDirectories();
  absl::StatusOr<int64_t> FileRate(IoMix mix, int queue_depth);
  absl::StatusOr<double> RateIn(const RunDirectory& run, IoMix mix, int queue_depth) const;
  Nanoseconds FileLatency(int64_t rate_alone, int64_t rate) const;

  const ProbeOptions& options_;
  const Load load_;
  std::unique_ptr<ThreadTeam> team_;
  std::vector<std::unique_ptr<RunDirectory>> runs_;
  Hardware hardware_;
};

void MachineProbe::DescribeMemory() {
  const int64_t memory = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  hardware_.name = "measured machine";
  hardware_.device = StrCat("CPU, ", options_.threads,
                            options_.threads == 1 ? " thread" : " threads", ", emulated device");
  const bool has_device = options_.device_memory > Bytes(0);
  const bool has_host = options_.host_memory > Bytes(0);
  hardware_.device_memory = has_device ? options_.device_memory : Bytes(memory / 4);
  hardware_.host_memory = has_host ? options_.host_memory : Bytes(memory / 2);
  SetSource("device.memory_bytes",
            has_device ? "given" : "assumed: a quarter of the machine's memory");
  SetSource("host.memory_bytes", has_host ? "given" : "assumed: half of the machine's memory");
}

absl::Status MachineProbe::MeasureCopies() {
  GANTRY_RETURN_IF_ERROR(Next("copies between host and device"));
  GANTRY_ASSIGN_OR_RETURN(
      const auto device,
      CreateHostDevice({.topology = DeviceTopology::kDiscrete, .clock = options_.clock}));
  const auto slab = [&](MemoryKind kind) {
    return device->CreateSlab(
        {.kind = kind, .slot_bytes = kBlockBytes, .slot_count = load_.blocks});
  };
  GANTRY_ASSIGN_OR_RETURN(const auto near, slab(MemoryKind::kDevice));
  GANTRY_ASSIGN_OR_RETURN(const auto far, slab(MemoryKind::kHostPinned));
  CountingSink sink;
  GANTRY_ASSIGN_OR_RETURN(const auto up,
                          device->CreateCopyLane(CopyDirection::kHostToDevice, &sink));
  GANTRY_ASSIGN_OR_RETURN(const auto down,
                          device->CreateCopyLane(CopyDirection::kDeviceToHost, &sink));
  const auto copy_up = [&](int64_t block, Bytes bytes) {
    up->Submit({.destination = near->parking(SlotId(block)),
                .source = far->parking(SlotId(block)),
                .bytes = bytes,
                .tag = 0});
  };
  const auto copy_down = [&](int64_t block, Bytes bytes) {
    down->Submit({.destination = far->parking(SlotId(block)),
                  .source = near->parking(SlotId(block)),
                  .bytes = bytes,
                  .tag = 0});
  };
  // All blocks one way; with both ways, each does one half of them.
  const auto all = [&](bool upwards, bool downwards) {
    return [&, upwards, downwards] {
      const int64_t half = load_.blocks / 2;
      for (int64_t i = 0; i < load_.blocks; ++i) {
        if (upwards && (!downwards || i < half)) copy_up(i, kBlockBytes);
        if (downwards && (!upwards || i >= half)) copy_down(i, kBlockBytes);
      }
      return sink.WaitFor(load_.blocks);
    };
  };
  const auto bytes = static_cast<double>(load_.blocks * kBlockBytes.count());
  GANTRY_ASSIGN_OR_RETURN(const Nanoseconds up_time, MedianTime(load_.rounds, all(true, false)));
  GANTRY_ASSIGN_OR_RETURN(const Nanoseconds down_time, MedianTime(load_.rounds, all(false, true)));
  GANTRY_ASSIGN_OR_RETURN(const Nanoseconds both_time, MedianTime(load_.rounds, all(true, true)));
  const auto small = [&](const auto& copy) {
    return [&] {
      copy(0, Bytes(kSmallCopyBytes));
      return sink.WaitFor(1);
    };
  };
  MachineRates& rates = hardware_.rates;
  GANTRY_ASSIGN_OR_RETURN(rates.host_to_device.latency_nanoseconds,
                          MedianTime(load_.small_copies, small(copy_up)));
  GANTRY_ASSIGN_OR_RETURN(rates.device_to_host.latency_nanoseconds,
                          MedianTime(load_.small_copies, small(copy_down)));
  rates.host_to_device.bytes_per_second = PerSecond(bytes, up_time);
  rates.device_to_host.bytes_per_second = PerSecond(bytes, down_time);
  const int64_t mixed = PerSecond(bytes, both_time);
  rates.copy_duplex = DuplexOf(rates.host_to_device, rates.device_to_host, mixed);
  if (rates.copy_duplex == Duplex::kMixed) {
    rates.copy_mixed_bytes_per_second = mixed;
    SetSource("copies.mixed_bytes_per_second", "measured: both ways at once");
  }
  for (const std::string_view lane : {"host_to_device", "device_to_host"}) {
    SetSource(StrCat("copies.", lane, ".bytes_per_second"), "measured: blocks of 8 MiB");
    SetSource(StrCat("copies.", lane, ".latency_ns"), "measured: a copy of 4 KiB alone");
  }
  SetSource("copies.duplex", "measured: both ways at once");
  return absl::OkStatus();
}

absl::Status MachineProbe::MeasureUpdates() {
  GANTRY_RETURN_IF_ERROR(Next("optimizer updates"));
  GANTRY_ASSIGN_OR_RETURN(const auto device, CreateHostDevice({.topology = DeviceTopology::kUnified,
                                                               .clock = options_.clock}));
  GANTRY_ASSIGN_OR_RETURN(const auto slab, device->CreateSlab({.kind = MemoryKind::kHostPinned,
                                                               .slot_bytes = kBlockBytes,
                                                               .slot_count = load_.blocks}));
  const int64_t count = load_.blocks * kBlockBytes.count() / kElementBytes;
  auto* const floats = reinterpret_cast<float*>(slab->parking(SlotId(0)));
  auto* const halves = reinterpret_cast<uint16_t*>(floats + 3 * count);
  // Values as in the middle of a run: none is subnormal, which would slow the arithmetic down.
  std::fill_n(floats, count, 0.5f);
  std::fill_n(floats + count, count, 1e-3f);
  std::fill_n(floats + 2 * count, count, 1e-5f);
  std::fill_n(halves, count, BFloat16(0.01f).bits);
  std::fill_n(halves + count, count, BFloat16(0.5f).bits);
  const OptimizerSlice slice = {
      .count = count,
      .master = floats,
      .momentum = floats + count,
      .variance = floats + 2 * count,
      .gradient = {.data = halves, .dtype = DType::kBF16},
      .parameter = Elements{.data = halves + count, .dtype = DType::kBF16}};
  const OptimizerHyper hyper = {.learning_rate = 1e-4, .weight_decay = 0.01, .step = 10};
  GANTRY_ASSIGN_OR_RETURN(const Nanoseconds time, MedianTime(load_.rounds, [&] {
                            UpdateSlice(slice, hyper, 1.0f, team_.get());
                            return absl::OkStatus();
                          }));
  const int64_t rate = PerSecond(static_cast<double>(count * kUpdateBytesPerParameter), time);
  hardware_.rates.host_update_bytes_per_second = rate;
  hardware_.rates.device_memory_bytes_per_second = rate;
  SetSource("host.update_bytes_per_second", "measured: adamw, bf16 parameters");
  SetSource("device.memory_bytes_per_second",
            "measured: adamw, bf16 parameters; the device's memory is the host's");
  return absl::OkStatus();
}

absl::Status MachineProbe::MeasureProducts() {
  GANTRY_RETURN_IF_ERROR(Next("matrix products"));
  GANTRY_ASSIGN_OR_RETURN(const auto matmul, MatMul::Create({}));
  const KernelContext context = {.team = team_.get(), .matmul = matmul.get()};
  const int64_t size = SizeOf(options_.dtype);
  std::vector<std::vector<std::byte>> memory;
  const auto matrix = [&](MatrixShape shape) {
    const int64_t elements = shape.rows * shape.cols;
    std::vector<std::byte>& bytes = memory.emplace_back(static_cast<size_t>(elements * size));
    for (int64_t i = 0; i < elements; ++i) {
      StoreElement(options_.dtype, bytes.data(), i, 0.01f * static_cast<float>(i % 97));
    }
    return MatrixView{.data = bytes.data(),
                      .dtype = options_.dtype,
                      .rows = shape.rows,
                      .cols = shape.cols,
                      .row_stride = shape.cols};
  };
  const MatrixShape weight_shape = load_.matrix;
  const MatrixShape in_shape = {.rows = load_.tokens, .cols = weight_shape.cols};
  const MatrixShape out_shape = {.rows = load_.tokens, .cols = weight_shape.rows};
  const MatrixView x = matrix(in_shape), grad_x = matrix(in_shape);
  const MatrixView y = matrix(out_shape), grad_y = matrix(out_shape);
  const MatrixView weight = matrix(weight_shape), grad_weight = matrix(weight_shape);
  // A layer's three products, as in a training step.
  GANTRY_ASSIGN_OR_RETURN(
      const Nanoseconds time, MedianTime(load_.rounds, [&]() -> absl::Status {
        GANTRY_RETURN_IF_ERROR(LinearForward(context, {.x = x, .weight = weight, .y = y}));
        GANTRY_RETURN_IF_ERROR(
            LinearBackwardInput(context, {.grad_y = grad_y,
                                          .weight = weight,
                                          .grad_x = grad_x,
                                          .accumulate = Accumulate::kOverwrite}));
        return LinearBackwardWeight(context, {.grad_y = grad_y,
                                              .x = x,
                                              .grad_weight = grad_weight,
                                              .accumulate = Accumulate::kOverwrite});
      }));
  const double flops = 3.0 * 2.0 * static_cast<double>(load_.tokens) *
                       static_cast<double>(weight_shape.rows * weight_shape.cols);
  hardware_.rates.flops_per_second = PerSecond(flops, time);
  SetSource("device.flops_per_second",
            StrCat("measured: the three products of a linear layer, ", Name(options_.dtype)));
  return absl::OkStatus();
}

// Folders on one file system share its space.
absl::Status MachineProbe::DescribeDirectories() {
  std::set<dev_t> counted;
  int64_t available = 0;
  for (const std::string& directory : options_.directories) {
    GANTRY_ASSIGN_OR_RETURN(runs_.emplace_back(),
                            RunDirectory::Create(options_.files, *options_.clock, directory));
    struct stat facts{};
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(directory, error);
    if (error || stat(directory.c_str(), &facts) != 0) {
      return NotFound("the free space of '", directory, "' could not be read");
    }
    if (counted.insert(facts.st_dev).second) available += static_cast<int64_t>(space.available);
  }
  hardware_.file_bytes = Bytes(std::max<int64_t>(available, 1));
  SetSource("files.bytes", "measured: what is free");
  return absl::OkStatus();
}

absl::StatusOr<double> MachineProbe::RateIn(const RunDirectory& run, IoMix mix,
                                            int queue_depth) const {
  return MeasureBandwidth({.directory = &run,
                           .make_io = CreateIoBackend,
                           .mix = mix,
                           .queue_depth = queue_depth,
                           .file_bytes_max = load_.file_bytes,
                           .duration = load_.file_time,
                           .bytes_max = load_.file_traffic,
                           .clock = options_.clock,
                           .files = options_.files,
                           .logger = options_.logger});
}

// Of all directories together.
absl::StatusOr<int64_t> MachineProbe::FileRate(IoMix mix, int queue_depth) {
  std::vector<absl::StatusOr<double>> rates(runs_.size(), 0.0);
  // thread: directories are used at once, and each load blocks its caller.
  std::vector<std::thread> others;
  try {
    for (size_t i = 1; i < runs_.size(); ++i) {
      others.emplace_back([&, i] { rates[i] = RateIn(*runs_[i], mix, queue_depth); });
    }
  } catch (const std::system_error& error) {
    for (std::thread& other : others) other.join();
    return Unavailable("a thread could not be started: ", error.what());
  }
  rates[0] = RateIn(*runs_[0], mix, queue_depth);
  for (std::thread& other : others) other.join();
  double sum = 0.0;
  for (const absl::StatusOr<double>& rate : rates) {
    GANTRY_RETURN_IF_ERROR(rate.status());
    sum += *rate;
  }
  return std::max<int64_t>(1, std::llround(sum));
}

// What one request of a piece takes longer than its bytes do, each directory having one.
Nanoseconds MachineProbe::FileLatency(int64_t rate_alone, int64_t rate) const {
  const double bytes = static_cast<double>(kPieceBytes) * static_cast<double>(runs_.size());
  const double seconds =
      bytes / static_cast<double>(rate_alone) - bytes / static_cast<double>(rate);
  return std::max<Nanoseconds>(0, std::llround(seconds * 1e9));
}

absl::Status MachineProbe::MeasureFiles() {
  constexpr int kQueueDepth = 16;
  GANTRY_RETURN_IF_ERROR(DescribeDirectories());
  MachineRates& rates = hardware_.rates;
  GANTRY_RETURN_IF_ERROR(Next("files: writes"));
  GANTRY_ASSIGN_OR_RETURN(rates.file_write.bytes_per_second, FileRate(IoMix::kWrites, kQueueDepth));
  GANTRY_ASSIGN_OR_RETURN(const int64_t write_alone, FileRate(IoMix::kWrites, 1));
  GANTRY_RETURN_IF_ERROR(Next("files: reads"));
  GANTRY_ASSIGN_OR_RETURN(rates.file_read.bytes_per_second, FileRate(IoMix::kReads, kQueueDepth));
  GANTRY_ASSIGN_OR_RETURN(const int64_t read_alone, FileRate(IoMix::kReads, 1));
  GANTRY_RETURN_IF_ERROR(Next("files: reads and writes"));
  GANTRY_ASSIGN_OR_RETURN(const int64_t mixed, FileRate(IoMix::kReadsAndWrites, kQueueDepth));
  rates.file_read.latency_nanoseconds = FileLatency(read_alone, rates.file_read.bytes_per_second);
  rates.file_write.latency_nanoseconds =
      FileLatency(write_alone, rates.file_write.bytes_per_second);
  rates.file_duplex = DuplexOf(rates.file_read, rates.file_write, mixed);
  if (rates.file_duplex == Duplex::kMixed) {
    rates.file_mixed_bytes_per_second = mixed;
    SetSource("files.mixed_bytes_per_second", "measured: reads and writes by turns");
  }
  for (const std::string_view lane : {"read", "write"}) {
    SetSource(StrCat("files.", lane, ".bytes_per_second"),
              "measured: 16 requests of 1 MiB at once");
    SetSource(StrCat("files.", lane, ".latency_ns"),
              "measured: a request of 1 MiB alone, less its bytes' time");
  }
  SetSource("files.duplex", "measured: reads and writes by turns");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Hardware> MeasureMachine(const ProbeOptions& options) {
  return MachineProbe(options).Run();
}

}  // namespace gantry
