#include "trainer/cli/plan_command.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/hardware.h"
#include "placement_policy/report/report_page.h"
#include "placement_policy/report/report_trace.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/synthetic_layout.h"
#include "placement_policy/synthetic_trace.h"
#include "trainer/cli/console.h"
#include "trainer/cli/plan_forecast.h"
#include "trainer/cli/plan_page.h"
#include "trainer/cli/plan_report.h"
#include "trainer/cli/planning_inputs.h"

namespace gantry {
namespace {

constexpr int64_t kDrivesMax = 64;
constexpr int64_t kRanksMax = 4096;
constexpr int kThreadsMax = 1024;
const std::array<std::string, 20> kOptionNames = {
    "model",  "machine",     "lora",      "seq",    "batch",        "micro-batches", "order",
    "zero",   "ranks",       "recompute", "clip",   "json",         "device-memory", "threads",
    "drives", "host-memory", "drive-tbw", "report", "report-trace", "chunk-size"};

struct PlanRequest {
  PlanSettings settings;
  Hardware hardware;
  OutputFormat format = OutputFormat::kText;
  int64_t threads = 0;  // 0: all processors
  // Files for the step to look at; nothing: none.
  std::optional<std::string> page = std::nullopt;
  std::optional<std::string> trace = std::nullopt;
};

struct Range {
  int64_t least;
  int64_t most;
};

absl::Status TakeInteger(Arguments& arguments, std::string_view name, Range range,
                         int64_t& number) {
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> text, TakeValue(arguments, name));
  if (!text.has_value()) return absl::OkStatus();
  int64_t value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < range.least || value > range.most) {
    return InvalidArgument("--", name, "=", *text, ": expected a whole number from ", range.least,
                           " to ", range.most);
  }
  number = value;
  return absl::OkStatus();
}

absl::Status TakeMemory(Arguments& arguments, std::string_view name, std::optional<Bytes>& size) {
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> text, TakeValue(arguments, name));
  if (!text.has_value()) return absl::OkStatus();
  const absl::StatusOr<Bytes> bytes = ParseBytes(*text);
  if (!bytes.ok() || *bytes <= Bytes::Zero()) {
    return InvalidArgument("--", name, "=", *text,
                           ": expected a size like 8GiB that is more than 0");
  }
  size = *bytes;
  return absl::OkStatus();
}

// Which of `names` is behind --name; nothing when it is not there.
template <size_t kCount>
absl::StatusOr<std::optional<size_t>> TakeChoice(
    Arguments& arguments, std::string_view name,
    const std::array<std::string_view, kCount>& names) {
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> text, TakeValue(arguments, name));
  if (!text.has_value()) return std::optional<size_t>();
  std::string all;
  for (size_t i = 0; i < kCount; ++i) {
    if (*text == names[i]) return std::optional(i);
    all += StrCat(i == 0 ? "" : ", ", names[i]);
  }
  return InvalidArgument("--", name, "=", *text, ": expected one of ", all);
}

// In bytes of 2-byte elements, as a slot has.
absl::Status TakeChunkSize(Arguments& arguments, PlanSettings& settings) {
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                          TakeValue(arguments, "chunk-size"));
  if (!text.has_value() || *text == "auto") return absl::OkStatus();
  constexpr int64_t kUnit = 2 * kSyntheticChunkGranularity;
  const absl::StatusOr<Bytes> bytes = ParseBytes(*text);
  if (!bytes.ok() || *bytes <= Bytes::Zero() || bytes->count() % kUnit != 0) {
    return InvalidArgument("--chunk-size=", *text, ": expected auto, or a multiple of ",
                           Bytes(kUnit), " like 32MiB");
  }
  settings.chunk_elements = bytes->count() / 2;
  return absl::OkStatus();
}

absl::Status TakeStep(Arguments& arguments, PlanSettings& settings) {
  constexpr Range kMany = {1, int64_t{1} << 24};
  SyntheticOptions& step = settings.step;
  // Unless told otherwise, as far as the model's positions go.
  constexpr int64_t kSequenceLength = 2048;
  step.sequence_length = settings.shape.positions > 0
                             ? std::min(settings.shape.positions, kSequenceLength)
                             : kSequenceLength;
  GANTRY_RETURN_IF_ERROR(TakeInteger(arguments, "seq", kMany, step.sequence_length));
  GANTRY_RETURN_IF_ERROR(TakeInteger(arguments, "batch", kMany, step.sequences));
  GANTRY_RETURN_IF_ERROR(TakeInteger(arguments, "micro-batches", {1, 65536}, step.micro_batches));
  GANTRY_RETURN_IF_ERROR(TakeInteger(arguments, "lora", {0, 65536}, step.lora_rank));
  // Micro-batches add up in f32, as in training.
  if (step.micro_batches > 1) step.gradient_dtype = DType::kF32;
  constexpr std::array<std::string_view, 3> kOrders = {"micro-batch-major", "layer-major", "auto"};
  GANTRY_ASSIGN_OR_RETURN(const auto order, TakeChoice(arguments, "order", kOrders));
  if (order == 0) settings.order = MicroBatchOrder::kMicroBatchMajor;
  if (order == 1) settings.order = MicroBatchOrder::kLayerMajor;
  GANTRY_RETURN_IF_ERROR(TakeChunkSize(arguments, settings));
  constexpr std::array<std::string_view, 3> kRecomputations = {"none", "full", "auto"};
  GANTRY_ASSIGN_OR_RETURN(const auto recompute,
                          TakeChoice(arguments, "recompute", kRecomputations));
  if (recompute == 0) settings.recomputation = Recomputation::kNone;
  if (recompute == 1) settings.recomputation = Recomputation::kFull;
  constexpr std::array<std::string_view, 3> kClips = {"none", "speculative", "exact"};
  GANTRY_ASSIGN_OR_RETURN(const auto clip, TakeChoice(arguments, "clip", kClips));
  settings.wait_for_norm = clip == 2;
  return absl::OkStatus();
}

absl::Status TakeRanks(Arguments& arguments, PlanSettings& settings) {
  int64_t stage = 0;
  GANTRY_RETURN_IF_ERROR(TakeInteger(arguments, "ranks", {1, kRanksMax}, settings.ranks));
  GANTRY_RETURN_IF_ERROR(TakeInteger(arguments, "zero", {0, 3}, stage));
  settings.zero_stage = static_cast<int>(stage);
  return absl::OkStatus();
}

// "2" of "rtx4090+2xgen4"; 1 of machine files, and when there are none.
int64_t DrivesOf(std::string_view machine) {
  for (size_t i = 1; i + 1 < machine.size(); ++i) {
    const bool is_count = machine[i - 1] == '+' && machine[i] >= '1' && machine[i] <= '9';
    if (is_count && machine[i + 1] == 'x') return machine[i] - '0';
  }
  return 1;
}

absl::Status TakeDrives(Arguments& arguments, const std::string& machine, PlanSettings& settings) {
  settings.drives = DrivesOf(machine);
  GANTRY_RETURN_IF_ERROR(TakeInteger(arguments, "drives", {1, kDrivesMax}, settings.drives));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> text, TakeValue(arguments, "drive-tbw"));
  if (!text.has_value()) return absl::OkStatus();
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, settings.drive_terabytes);
  if (error != std::errc() || stop != end || !(settings.drive_terabytes > 0.0) ||
      settings.drive_terabytes > 1e9) {
    return InvalidArgument("--drive-tbw=", *text, ": expected terabytes, more than 0");
  }
  return absl::OkStatus();
}

absl::Status ExpectKnownOptions(const Arguments& arguments) {
  for (const Option& option : arguments.options) {
    const std::string nearest = NearestName(option.name, kOptionNames.data(), kOptionNames.size());
    return InvalidArgument("unknown option '--", option.name, "'",
                           nearest.empty() ? std::string("; `gantry help plan` lists all")
                                           : StrCat(", did you mean '--", nearest, "'?"));
  }
  return ExpectNothingElse(arguments);
}

absl::StatusOr<PlanRequest> ParseRequest(FileCalls& files, Arguments arguments) {
  PlanRequest request;
  PlanSettings& settings = request.settings;
  GANTRY_ASSIGN_OR_RETURN(request.format, TakeOutputFormat(arguments));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> model, TakeValue(arguments, "model"));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> machine,
                          TakeValue(arguments, "machine"));
  if (!model.has_value()) {
    return InvalidArgument(
        "name a model: --model=FOLDER, --model=config.json or a built-in one like llama2-7b");
  }
  if (!machine.has_value()) {
    return InvalidArgument(
        "name a machine: --machine=rtx4090+pcie4+2xgen4 or a file of `gantry profile machine`");
  }
  settings.model_name = *model;
  GANTRY_ASSIGN_OR_RETURN(settings.shape, LoadModelShape(files, *model));
  GANTRY_ASSIGN_OR_RETURN(request.hardware, LoadHardware(files, *machine));
  GANTRY_RETURN_IF_ERROR(TakeStep(arguments, settings));
  GANTRY_RETURN_IF_ERROR(TakeRanks(arguments, settings));
  GANTRY_RETURN_IF_ERROR(TakeDrives(arguments, *machine, settings));
  GANTRY_RETURN_IF_ERROR(TakeMemory(arguments, "device-memory", settings.device_memory));
  GANTRY_RETURN_IF_ERROR(TakeMemory(arguments, "host-memory", settings.host_memory));
  GANTRY_RETURN_IF_ERROR(TakeInteger(arguments, "threads", {1, kThreadsMax}, request.threads));
  GANTRY_ASSIGN_OR_RETURN(request.page, TakeValue(arguments, "report"));
  GANTRY_ASSIGN_OR_RETURN(request.trace, TakeValue(arguments, "report-trace"));
  GANTRY_RETURN_IF_ERROR(ExpectKnownOptions(arguments));
  return request;
}

// Fails before anything takes long.
absl::Status PrepareOutputs(FileCalls& files, const PlanRequest& request) {
  for (const std::optional<std::string>& path : {request.page, request.trace}) {
    if (path.has_value()) GANTRY_RETURN_IF_ERROR(MakeParentDirectories(files, *path));
  }
  return absl::OkStatus();
}

absl::Status WriteReport(FileCalls& files, const PlanRequest& request, const Forecast& forecast) {
  if (!request.page.has_value() && !request.trace.has_value()) return absl::OkStatus();
  GANTRY_ASSIGN_OR_RETURN(const StepReport report,
                          PlanStepReport(request.settings, request.hardware, forecast));
  const auto write = [&files](const std::optional<std::string>& path, const std::string& text) {
    if (!path.has_value()) return absl::OkStatus();
    return WriteFileAtomically(files, *path, std::as_bytes(std::span(text)));
  };
  GANTRY_RETURN_IF_ERROR(write(request.page, ReportPage(report)));
  return write(request.trace, ReportTrace(report));
}

}  // namespace

CommandResult PlanCommand(Arguments arguments, const CommandContext& context) {
  absl::StatusOr<PlanRequest> request = ParseRequest(*context.files, std::move(arguments));
  if (!request.ok()) return UsageError(request.status());
  const absl::Status prepared = PrepareOutputs(*context.files, *request);
  if (!prepared.ok()) return Failure(prepared);
  int64_t threads = request->threads;
  if (threads == 0) threads = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  absl::StatusOr<std::unique_ptr<ThreadTeam>> team =
      ThreadTeam::Create({.threads = static_cast<int>(threads)});
  if (!team.ok()) return Failure(team.status());
  const absl::StatusOr<Forecast> forecast =
      MakeForecast(request->settings, request->hardware, **team);
  if (absl::IsInvalidArgument(forecast.status())) return UsageError(forecast.status());
  if (!forecast.ok()) return Failure(forecast.status());
  const absl::Status written = WriteReport(*context.files, *request, *forecast);
  if (!written.ok()) return Failure(written);
  context.console->Out(request->format == OutputFormat::kJson
                           ? PlanJson(request->settings, request->hardware, *forecast)
                           : PlanText(request->settings, request->hardware, *forecast));
  return {};
}

}  // namespace gantry
