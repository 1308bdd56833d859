#include "trainer/cli/profile_command.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/hardware.h"
#include "placement_policy/machine.h"
#include "placement_policy/machine_file.h"
#include "trainer/booster/run_config.h"
#include "trainer/cli/console.h"
#include "trainer/cli/interrupt.h"
#include "trainer/cli/machine_probe.h"

namespace gantry {
namespace {

constexpr int kThreadsMax = 1024;
const std::array<std::string, 8> kOptionNames = {
    "dir", "out", "json", "quick", "dtype", "device-memory", "host-memory", "threads"};

struct ProfileRequest {
  ProbeOptions probe;
  std::string out;  // the machine file; empty: none
  OutputFormat format = OutputFormat::kText;
};

absl::Status TakeSubject(Arguments& arguments) {
  constexpr std::string_view kSubjects = "`gantry profile machine` measures this machine";
  if (arguments.words.empty()) return InvalidArgument("say what to profile: ", kSubjects);
  if (arguments.words[0] != "machine") {
    return InvalidArgument("'", arguments.words[0], "' cannot be profiled: ", kSubjects);
  }
  arguments.words.erase(arguments.words.begin());
  return absl::OkStatus();
}

// Every --dir=FOLDER, and what is left of the words.
absl::StatusOr<std::vector<std::string>> TakeDirectories(Arguments& arguments) {
  std::vector<std::string> directories;
  for (const Option& option : arguments.options) {
    if (option.name != "dir") continue;
    if (!option.value.has_value() || option.value->empty()) {
      return InvalidArgument("--dir needs a folder: --dir=FOLDER");
    }
    directories.push_back(*option.value);
  }
  std::erase_if(arguments.options, [](const Option& option) { return option.name == "dir"; });
  directories.insert(directories.end(), arguments.words.begin(), arguments.words.end());
  arguments.words.clear();
  return directories;
}

absl::Status TakeSize(Arguments& arguments, std::string_view name, Bytes& size) {
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

absl::Status TakeThreads(Arguments& arguments, int& threads) {
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> text, TakeValue(arguments, "threads"));
  if (!text.has_value()) return absl::OkStatus();
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, threads);
  if (error == std::errc() && stop == end && threads >= 1 && threads <= kThreadsMax) {
    return absl::OkStatus();
  }
  return InvalidArgument("--threads=", *text, ": expected a number from 1 to ", kThreadsMax);
}

absl::Status TakeDtype(Arguments& arguments, DType& dtype) {
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> text, TakeValue(arguments, "dtype"));
  if (!text.has_value()) return absl::OkStatus();
  for (const DType known : {DType::kBF16, DType::kF32}) {
    if (*text != Name(known)) continue;
    dtype = known;
    return absl::OkStatus();
  }
  return InvalidArgument("--dtype=", *text, ": expected bf16 or f32");
}

absl::Status ExpectKnownOptions(const Arguments& arguments) {
  for (const Option& option : arguments.options) {
    const std::string nearest = NearestName(option.name, kOptionNames.data(), kOptionNames.size());
    return InvalidArgument("unknown option '--", option.name, "'",
                           nearest.empty() ? std::string("; `gantry help profile` lists all")
                                           : StrCat(", did you mean '--", nearest, "'?"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ProfileRequest> ParseRequest(Arguments arguments) {
  GANTRY_RETURN_IF_ERROR(TakeSubject(arguments));
  ProfileRequest request{.probe = {.threads = ThreadsOf(TrainConfig()),
                                   .files = nullptr,
                                   .clock = nullptr,
                                   .logger = nullptr,
                                   .stop = nullptr,
                                   .progress = {}},
                         .out = {}};
  ProbeOptions& probe = request.probe;
  GANTRY_ASSIGN_OR_RETURN(request.format, TakeOutputFormat(arguments));
  GANTRY_ASSIGN_OR_RETURN(const bool quick, TakeFlag(arguments, "quick"));
  if (quick) probe.effort = ProbeEffort::kQuick;
  GANTRY_ASSIGN_OR_RETURN(probe.directories, TakeDirectories(arguments));
  GANTRY_ASSIGN_OR_RETURN(const std::optional<std::string> out, TakeValue(arguments, "out"));
  request.out = out.value_or("");
  GANTRY_RETURN_IF_ERROR(TakeSize(arguments, "device-memory", probe.device_memory));
  GANTRY_RETURN_IF_ERROR(TakeSize(arguments, "host-memory", probe.host_memory));
  GANTRY_RETURN_IF_ERROR(TakeThreads(arguments, probe.threads));
  GANTRY_RETURN_IF_ERROR(TakeDtype(arguments, probe.dtype));
  GANTRY_RETURN_IF_ERROR(ExpectKnownOptions(arguments));
  return request;
}

std::string Number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value < 10 ? "%.2f" : "%.1f", value);
  return text.data();
}

std::string RateText(int64_t bytes_per_second) {
  return StrCat(Number(static_cast<double>(bytes_per_second) * 1e-9), " GB/s");
}

std::string LaneText(const Lane& lane) {
  return StrCat(RateText(lane.bytes_per_second), ", ",
                Number(static_cast<double>(lane.latency_nanoseconds) * 1e-3), " us");
}

std::string BothText(Duplex duplex, int64_t mixed) {
  if (duplex != Duplex::kMixed) return std::string(Name(duplex));
  return StrCat("together ", RateText(mixed));
}

std::string ProfileText(const Hardware& hardware) {
  const MachineRates& rates = hardware.rates;
  std::string text = StrCat(
      "device            ", hardware.device, "\n", "compute           ",
      Number(static_cast<double>(rates.flops_per_second) * 1e-9), " GFLOP/s\n",
      "optimizer         ", RateText(rates.host_update_bytes_per_second), "\n",
      "host to device    ", LaneText(rates.host_to_device), "\n", "device to host    ",
      LaneText(rates.device_to_host), "\n", "both ways         ",
      BothText(rates.copy_duplex, rates.copy_mixed_bytes_per_second), "\n", "device memory     ",
      hardware.device_memory, "\n", "host memory       ", hardware.host_memory, "\n");
  if (hardware.file_bytes == Bytes(0)) return text;
  text += StrCat("file reads        ", LaneText(rates.file_read), "\n", "file writes       ",
                 LaneText(rates.file_write), "\n", "reads and writes  ",
                 BothText(rates.file_duplex, rates.file_mixed_bytes_per_second), "\n",
                 "file space        ", hardware.file_bytes, "\n");
  return text;
}

absl::StatusOr<Hardware> Profile(const ProfileRequest& request) {
  const ProbeOptions& probe = request.probe;
  // First what fails fast.
  if (!request.out.empty()) {
    GANTRY_RETURN_IF_ERROR(MakeParentDirectories(*probe.files, request.out));
  }
  GANTRY_ASSIGN_OR_RETURN(Hardware hardware, MeasureMachine(probe));
  if (!request.out.empty()) {
    const std::string text = FormatMachine(hardware);
    GANTRY_RETURN_IF_ERROR(
        WriteFileAtomically(*probe.files, request.out, std::as_bytes(std::span(text))));
  }
  return hardware;
}

}  // namespace

CommandResult ProfileCommand(Arguments arguments, const CommandContext& context) {
  absl::StatusOr<ProfileRequest> request = ParseRequest(std::move(arguments));
  if (!request.ok()) return UsageError(request.status());
  Console* const console = context.console;
  MonotonicClock clock;
  ConsoleLogger logger(console);
  ProbeOptions& probe = request->probe;
  probe.files = context.files;
  probe.clock = &clock;
  probe.logger = &logger;
  probe.stop = context.stop;
  probe.progress = [console](std::string_view what) { console->Line(StrCat("measuring ", what)); };
  console->Line("gantry: the device is this machine's CPU, with a memory of its own set aside");
  if (probe.directories.empty()) {
    console->Line("gantry: no --dir=FOLDER is given, so there will be no file tier");
  }
  const absl::StatusOr<Hardware> hardware = Profile(*request);
  if (absl::IsCancelled(hardware.status())) {
    return {.exit_code = kExitInterrupted, .status = absl::OkStatus()};
  }
  if (!hardware.ok()) return Failure(hardware.status());
  console->Out(request->format == OutputFormat::kJson ? FormatMachine(*hardware)
                                                      : ProfileText(*hardware));
  return {};
}

}  // namespace gantry
