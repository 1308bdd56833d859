#include "benches/suite/load_benchmark.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/files.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/temporary_directory.h"
#include "benches/suite/interleave.h"
#include "benches/suite/machine.h"
#include "chunk/chunk_layout.h"
#include "device/device.h"
#include "trainer/booster/gemini_plugin.h"
#include "trainer/booster/run_config.h"
#include "trainer/hugging_face/model_folder.h"
#include "trainer/hugging_face/weight_writer.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/decoder_weights.h"
#include "trainer/models/families.h"
#include "trainer/safetensors/reader.h"

namespace gantry {
namespace {

constexpr int64_t kShards = 4;
constexpr Bytes kPieceBytes = 4_MiB;

// A Llama of about this many bytes of bf16.
DecoderConfig ModelOf(Bytes size) {
  DecoderConfig config = FamilyDefaults(DecoderFamily::kLlama);
  const bool large = size >= 512_MiB;
  config.width = large ? 2048 : 256;
  config.ffn_width = 4 * config.width;
  config.head_dim = 64;
  config.heads = config.width / config.head_dim;
  config.kv_heads = config.heads;
  config.vocabulary = large ? 8'000 : 1'000;
  config.max_sequence = 128;
  config.tie_embeddings = true;
  const int64_t layer = 4 * config.width * config.width + 3 * config.width * config.ffn_width;
  const int64_t rest = size.count() / 2 - config.vocabulary * config.width;
  config.layers = std::max<int64_t>(1, (rest + layer / 2) / layer);
  return config;
}

Bytes BytesOf(const DecoderConfig& config) {
  int64_t elements = 0;
  for (const DecoderTensor& tensor : DecoderTensors(config)) elements += tensor.elements();
  return Bytes(elements * SizeOf(config.parameter_dtype));
}

// The process's peak memory since the last time, and now.
class PeakMemory {
 public:
  explicit PeakMemory(FileCalls* files) : files_(*files) {}

  absl::Status Reset() const {
    GANTRY_ASSIGN_OR_RETURN(const FileDescriptor file,
                            OpenFile(files_, "/proc/self/clear_refs", O_WRONLY, 0));
    constexpr std::string_view kPeak = "5";
    return WriteAll(files_, {file.get(), "/proc/self/clear_refs"}, 0,
                    std::as_bytes(std::span(kPeak)));
  }
  // "VmHWM" or "VmRSS".
  absl::StatusOr<Bytes> Read(std::string_view field) const {
    GANTRY_ASSIGN_OR_RETURN(const std::string text,
                            ReadFileToString(files_, "/proc/self/status", 1_MiB));
    const size_t at = text.find(StrCat(field, ":"));
    const size_t digits = text.find_first_of("0123456789", std::min(at, text.size()));
    int64_t kilobytes = 0;
    if (at == std::string::npos || digits == std::string::npos ||
        std::from_chars(text.data() + digits, text.data() + text.size(), kilobytes).ec !=
            std::errc()) {
      return Unavailable("/proc/self/status does not tell ", field);
    }
    return Bytes(kilobytes * 1024);
  }

 private:
  FileCalls& files_;
};

// A model's folder on the drive that is measured.
class LargeModel {
 public:
  static absl::StatusOr<LargeModel> Make(const BenchOptions& options, const DecoderConfig& config) {
    GANTRY_ASSIGN_OR_RETURN(
        TemporaryDirectory folder,
        TemporaryDirectory::Create(options.files, StrCat(options.directory, "/gantry-bench-load")));
    const Bytes shard(BytesOf(config).count() / kShards);
    // Any values; not all the same, as drives notice that.
    const auto value = [](const DecoderTensor& tensor, int64_t first, std::span<float> values) {
      uint32_t state = static_cast<uint32_t>(tensor.layer * 977 + first);
      for (float& to : values) {
        state = state * 1664525u + 1013904223u;
        to = static_cast<float>(static_cast<int32_t>(state)) * 1e-11F;
      }
      return absl::OkStatus();
    };
    GANTRY_RETURN_IF_ERROR(WriteWeights({.files = options.files,
                                         .folder = folder.path(),
                                         .config = &config,
                                         .dtype = DType::kBF16,
                                         .shard_bytes_max = shard},
                                        value));
    return LargeModel(options, std::move(folder));
  }

  const std::string& path() const { return folder_.path(); }

  // Seconds to read every byte of every file from the drive.
  absl::StatusOr<double> ReadFiles() const {
    GANTRY_RETURN_IF_ERROR(Forget());
    std::vector<std::byte> piece(static_cast<size_t>(kPieceBytes.count()));
    const Nanoseconds begin = options_->clock->Now();
    GANTRY_ASSIGN_OR_RETURN(const std::vector<std::string> paths, Paths());
    for (const std::string& path : paths) {
      GANTRY_ASSIGN_OR_RETURN(const FileDescriptor file,
                              OpenFile(*options_->files, path, O_RDONLY, 0));
      (void)posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
      for (int64_t offset = 0;;) {
        const int64_t got =
            RetryInterrupted([&] { return options_->files->ReadAt(file.get(), piece, offset); });
        if (got < 0) return ErrnoStatus(static_cast<int>(-got), StrCat("read ", path));
        if (got == 0) break;
        offset += got;
      }
    }
    return static_cast<double>(options_->clock->Now() - begin) * 1e-9;
  }

  // Seconds to load it.
  absl::StatusOr<double> Load(const DecoderConfig& config, ParameterStore& store) const {
    GANTRY_RETURN_IF_ERROR(Forget());
    const Nanoseconds begin = options_->clock->Now();
    GANTRY_RETURN_IF_ERROR(
        LoadModelFolder(options_->files, path(), config, store, *options_->logger));
    return static_cast<double>(options_->clock->Now() - begin) * 1e-9;
  }

 private:
  LargeModel(const BenchOptions& options, TemporaryDirectory folder)
      : options_(&options), folder_(std::move(folder)) {}

  absl::StatusOr<std::vector<std::string>> Paths() const {
    GANTRY_ASSIGN_OR_RETURN(const SafetensorsReader reader,
                            SafetensorsReader::Open(options_->files, path()));
    std::vector<std::string> paths;
    for (size_t i = 0; i < reader.file_count(); ++i) paths.push_back(reader.path_of(i));
    return paths;
  }

  // Drops the files from the page cache; they are synced, so nothing keeps them there.
  absl::Status Forget() const {
    GANTRY_ASSIGN_OR_RETURN(const std::vector<std::string> paths, Paths());
    for (const std::string& path : paths) {
      GANTRY_ASSIGN_OR_RETURN(const FileDescriptor file,
                              OpenFile(*options_->files, path, O_RDONLY, 0));
      const int error = posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
      if (error != 0) return ErrnoStatus(error, StrCat("drop from the page cache ", path));
    }
    return absl::OkStatus();
  }

  const BenchOptions* options_;
  TemporaryDirectory folder_;
};

// A store for the model, frozen.
absl::StatusOr<std::unique_ptr<GeminiPlugin>> MakeStore(const BenchOptions& options,
                                                        const DecoderConfig& config,
                                                        const MemoryConfig& memory) {
  GANTRY_ASSIGN_OR_RETURN(std::unique_ptr<GeminiPlugin> plugin,
                          GeminiPlugin::Create({.memory = &memory,
                                                .threads = options.compute_threads(),
                                                .compute_dtype = config.parameter_dtype,
                                                .gradient_dtype = config.parameter_dtype,
                                                .clock = options.clock,
                                                .logger = options.logger,
                                                .files = options.files}));
  const auto frozen = [](std::string_view) { return Trainability::kFrozen; };
  GANTRY_RETURN_IF_ERROR(
      RegisterDecoder(plugin->engine(), config, {.trainability = frozen}).status());
  GANTRY_RETURN_IF_ERROR(plugin->engine().Seal());
  return plugin;
}

// What a load adds to the process, beside what it may.
absl::StatusOr<BenchRow> MemoryRow(std::string_view name, const BenchOptions& options,
                                   const LargeModel& model, const DecoderConfig& config,
                                   const MemoryConfig& memory) {
  const PeakMemory peak(options.files);
  GANTRY_ASSIGN_OR_RETURN(const Bytes before, peak.Read("VmRSS"));
  GANTRY_RETURN_IF_ERROR(peak.Reset());
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<GeminiPlugin> plugin,
                          MakeStore(options, config, memory));
  GANTRY_ASSIGN_OR_RETURN(const double seconds, model.Load(config, plugin->engine()));
  GANTRY_ASSIGN_OR_RETURN(const Bytes after, peak.Read("VmHWM"));
  const bool has_host = memory.device != DeviceTopology::kUnified;
  const Bytes budget = memory.device_memory + (has_host ? memory.host_memory : 0_B);
  BenchRow row = LimitRow({.name = name,
                           .value = static_cast<double>((after - before).count()),
                           .bound = static_cast<double>(budget.count()),
                           .unit = "B",
                           .better = Better::kLower});
  row.figures = {{"seconds", seconds},
                 {"model_bytes", static_cast<double>(BytesOf(config).count())}};
  return row;
}

}  // namespace

absl::StatusOr<BenchReport> RunLoadBenchmark(const BenchOptions& options) {
  GANTRY_RETURN_IF_ERROR(ValidateBenchOptions(options));
  BenchReport report{.bench = "load", .machine = DescribeMachine(), .rows = {}};
  const DecoderConfig config = ModelOf(options.SizeOr(Bytes(2'000'000'000), 16_MiB));
  const Bytes size = BytesOf(config);
  options.Tell(StrCat("load: writing a model of ", size));
  GANTRY_ASSIGN_OR_RETURN(const LargeModel model, LargeModel::Make(options, config));

  const MemoryConfig resident{.device_memory = size + 64_MiB};
  const Bytes small = std::max(32_MiB, Bytes(size.count() / 16));
  const MemoryConfig spilled{.device = DeviceTopology::kDiscrete,
                             .device_memory = small,
                             .host_memory = small,
                             .spill_dirs = {options.directory}};
  options.Tell("load: memory, resident and spilled");
  GANTRY_ASSIGN_OR_RETURN(BenchRow spilled_row,
                          MemoryRow("load_spilled_memory", options, model, config, spilled));
  spilled_row.note = "peak beside the budgets of device and host, a sixteenth of the model each";
  GANTRY_ASSIGN_OR_RETURN(BenchRow resident_row,
                          MemoryRow("load_memory", options, model, config, resident));
  resident_row.note = "peak beside the budget, which holds the model";

  options.Tell("load: time, beside reading the files");
  GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<GeminiPlugin> plugin,
                          MakeStore(options, config, resident));
  const std::vector<Measurement> turns = {[&] { return model.Load(config, plugin->engine()); },
                                          [&] { return model.ReadFiles(); }};
  GANTRY_ASSIGN_OR_RETURN(const Samples samples,
                          Interleave(turns, {.rounds = options.rounds(), .stop = options.stop}));
  report.rows.push_back(ComparisonRow({.name = "load_seconds",
                                       .unit = "s",
                                       .better = Better::kLower,
                                       .values = samples[0],
                                       .bounds = samples[1]}));
  report.rows.back().note = "beside reading the same files, not in the page cache either";
  report.rows.push_back(std::move(resident_row));
  report.rows.push_back(std::move(spilled_row));
  return report;
}

}  // namespace gantry
