#include "placement_policy/machine_catalog.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/machine.h"

namespace gantry {
namespace {

using std::string_view_literals::operator""sv;

constexpr int kDrivesMax = 8;

// A number in its SI unit (bytes, bytes a second, FLOP a second), and where it comes from.
struct Figure {
  double value;
  std::string_view source;
};

struct DevicePart {
  std::string_view name;
  std::string_view title;
  Figure memory;
  Figure memory_rate;
  Figure flops;
  std::string_view link;
  Figure host_memory;
  Figure update_rate;
};

struct LinkPart {
  std::string_view name;
  std::string_view title;
  Figure rate;  // each way
};

struct DrivePart {
  std::string_view name;
  std::string_view title;
  Figure bytes;
  Figure read;
  Figure write;
};

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
// Of what a memory or a link can do, streams reach about this much.
constexpr double kReached = 0.8;
// Of a device's peak, a training step reaches about this much.
constexpr double kUsed = 0.5;
// Of a drive's sequential write, what lasts when its cache is full.
constexpr double kLasting = 0.7;

constexpr std::string_view kGeForceMemory = "NVIDIA GeForce specifications, in binary GB";
constexpr std::string_view kDesktopHost = "assumed: a usual desktop; set it with host=";
constexpr std::string_view kServerHost = "assumed: a usual server's share; set it with host=";
constexpr std::string_view kStudySource = "assumed by the planning study";

constexpr Figure kDdr4Desktop = {
    kReached * 51.2e9, "assumed: two channels of DDR4-3200 (JEDEC: 51.2 GB/s), 0.8 reached"};
constexpr Figure kDdr5Desktop = {
    kReached * 76.8e9, "assumed: two channels of DDR5-4800 (JEDEC: 76.8 GB/s), 0.8 reached"};
constexpr Figure kDdr4Server = {
    kReached * 204.8e9, "assumed: eight channels of DDR4-3200 (JEDEC: 204.8 GB/s), 0.8 reached"};
constexpr Figure kDdr5Server = {
    kReached * 307.2e9, "assumed: eight channels of DDR5-4800 (JEDEC: 307.2 GB/s), 0.8 reached"};

constexpr std::array<DevicePart, 11> kDevices = {{
    {.name = "rtx3060",
     .title = "NVIDIA GeForce RTX 3060 12 GB",
     .memory = {12 * kGiB, kGeForceMemory},
     .memory_rate = {kReached * 360e9, "NVIDIA GeForce RTX 3060: 360 GB/s, 0.8 assumed"},
     .flops = {kUsed * 25.5e12,
               "twice its 12.7 TFLOPS fp32, the ratio of dense bf16 to fp32 in the NVIDIA GA102 "
               "whitepaper; half of that peak assumed"},
     .link = "pcie4",
     .host_memory = {32 * kGiB, kDesktopHost},
     .update_rate = kDdr4Desktop},
    {.name = "rtx3080",
     .title = "NVIDIA GeForce RTX 3080 10 GB",
     .memory = {10 * kGiB, kGeForceMemory},
     .memory_rate = {kReached * 760e9, "NVIDIA GA102 whitepaper: 760 GB/s, 0.8 assumed"},
     .flops = {kUsed * 59.5e12,
               "NVIDIA GA102 whitepaper: 59.5 TFLOPS dense bf16; half of that peak assumed"},
     .link = "pcie4",
     .host_memory = {64 * kGiB, kDesktopHost},
     .update_rate = kDdr4Desktop},
    {.name = "rtx4090",
     .title = "NVIDIA GeForce RTX 4090 24 GB",
     .memory = {24 * kGiB, kGeForceMemory},
     .memory_rate = {kReached * 1008e9, "NVIDIA Ada whitepaper: 1008 GB/s, 0.8 assumed"},
     .flops = {kUsed * 165.2e12,
               "NVIDIA Ada whitepaper: 165.2 TFLOPS dense bf16; half of that peak assumed"},
     .link = "pcie4",
     .host_memory = {64 * kGiB, kDesktopHost},
     .update_rate = kDdr5Desktop},
    {.name = "a100-40",
     .title = "NVIDIA A100 40 GB",
     .memory = {40 * kGiB, "NVIDIA A100 data sheet, in binary GB"},
     .memory_rate = {kReached * 1555e9, "NVIDIA A100 data sheet: 1555 GB/s, 0.8 assumed"},
     .flops = {kUsed * 312e12,
               "NVIDIA A100 data sheet: 312 TFLOPS dense bf16; half of that peak assumed"},
     .link = "pcie4",
     .host_memory = {512 * kGiB, kServerHost},
     .update_rate = kDdr4Server},
    {.name = "a100-80",
     .title = "NVIDIA A100 80 GB SXM",
     .memory = {80 * kGiB, "NVIDIA A100 data sheet, in binary GB"},
     .memory_rate = {kReached * 2039e9, "NVIDIA A100 data sheet, SXM: 2039 GB/s, 0.8 assumed"},
     .flops = {kUsed * 312e12,
               "NVIDIA A100 data sheet: 312 TFLOPS dense bf16; half of that peak assumed"},
     .link = "pcie4",
     .host_memory = {512 * kGiB, kServerHost},
     .update_rate = kDdr4Server},
    {.name = "h100",
     .title = "NVIDIA H100 80 GB SXM",
     .memory = {80 * kGiB, "NVIDIA H100 data sheet, in binary GB"},
     .memory_rate = {kReached * 3350e9, "NVIDIA H100 data sheet, SXM: 3.35 TB/s, 0.8 assumed"},
     .flops = {kUsed * 989e12,
               "NVIDIA H100 data sheet, SXM: 989 TFLOPS dense bf16; half of that peak assumed"},
     .link = "pcie5",
     .host_memory = {1024 * kGiB, kServerHost},
     .update_rate = kDdr5Server},
    {.name = "h200",
     .title = "NVIDIA H200 141 GB SXM",
     .memory = {141e9, "NVIDIA H200 data sheet: 141 GB, taken as decimal"},
     .memory_rate = {kReached * 4800e9, "NVIDIA H200 data sheet: 4.8 TB/s, 0.8 assumed"},
     .flops = {kUsed * 989e12,
               "NVIDIA H200 data sheet, SXM: 989 TFLOPS dense bf16; half of that peak assumed"},
     .link = "pcie5",
     .host_memory = {1024 * kGiB, kServerHost},
     .update_rate = kDdr5Server},
    {.name = "gh200",
     .title = "NVIDIA GH200 96 GB",
     .memory = {96 * kGiB, "NVIDIA GH200 data sheet: 96 GB HBM3, in binary GB"},
     .memory_rate = {kReached * 4000e9, "NVIDIA GH200 data sheet: 4 TB/s, 0.8 assumed"},
     .flops = {kUsed * 990e12,
               "NVIDIA GH200 data sheet: 990 TFLOPS dense bf16; half of that peak assumed"},
     .link = "c2c",
     .host_memory = {480e9, "NVIDIA GH200 data sheet: up to 480 GB LPDDR5X, taken as decimal"},
     .update_rate = {kReached * 512e9,
                     "NVIDIA GH200 data sheet: up to 512 GB/s of LPDDR5X, 0.8 assumed"}},
    {.name = "study-rtx4090",
     .title = "RTX 4090 as the planning study took it",
     .memory = {24 * kGiB, kGeForceMemory},
     .memory_rate = {kReached * 1008e9, "NVIDIA Ada whitepaper: 1008 GB/s, 0.8 assumed"},
     .flops = {82e12, kStudySource},
     .link = "study-pcie",
     .host_memory = {1024 * kGiB, kStudySource},
     .update_rate = {60e9, kStudySource}},
    {.name = "study-a100",
     .title = "A100 as the planning study took it",
     .memory = {80 * kGiB, "NVIDIA A100 data sheet, in binary GB"},
     .memory_rate = {kReached * 2039e9, "NVIDIA A100 data sheet, SXM: 2039 GB/s, 0.8 assumed"},
     .flops = {156e12, kStudySource},
     .link = "study-pcie",
     .host_memory = {1024 * kGiB, kStudySource},
     .update_rate = {160e9, kStudySource}},
    {.name = "study-h100",
     .title = "H100 as the planning study took it",
     .memory = {80 * kGiB, "NVIDIA H100 data sheet, in binary GB"},
     .memory_rate = {kReached * 3350e9, "NVIDIA H100 data sheet, SXM: 3.35 TB/s, 0.8 assumed"},
     .flops = {445e12, kStudySource},
     .link = "study-pcie",
     .host_memory = {1024 * kGiB, kStudySource},
     .update_rate = {250e9, kStudySource}},
}};

constexpr std::array<LinkPart, 5> kLinks = {{
    {"pcie3",
     "PCI Express 3.0 x16",
     {kReached * 15.75e9, "PCI Express 3.0 x16: 15.75 GB/s each way, 0.8 assumed"}},
    {"pcie4",
     "PCI Express 4.0 x16",
     {kReached * 31.5e9, "PCI Express 4.0 x16: 31.5 GB/s each way, 0.8 assumed"}},
    {"pcie5",
     "PCI Express 5.0 x16",
     {kReached * 63.0e9, "PCI Express 5.0 x16: 63 GB/s each way, 0.8 assumed"}},
    {"c2c",
     "NVLink-C2C of a GH200",
     {kReached * 450e9, "NVIDIA GH200 data sheet: 900 GB/s both ways together, 0.8 assumed"}},
    {"study-pcie", "the planning study's link", {25e9, kStudySource}},
}};

constexpr Figure kDriveBytes = {2e12, "assumed: 2 TB a drive"};
constexpr std::array<DrivePart, 4> kDrives = {{
    {"gen3",
     "PCI Express 3.0 SSD",
     kDriveBytes,
     {3.5e9, "Samsung 970 EVO Plus data sheet: 3.5 GB/s sequential read"},
     {kLasting * 3.3e9,
      "Samsung 970 EVO Plus data sheet: 3.3 GB/s sequential write; 0.7 assumed to last"}},
    {"gen4",
     "PCI Express 4.0 SSD",
     kDriveBytes,
     {7.45e9, "Samsung 990 PRO data sheet: 7.45 GB/s sequential read"},
     {kLasting * 6.9e9,
      "Samsung 990 PRO data sheet: 6.9 GB/s sequential write; 0.7 assumed to last"}},
    {"gen5",
     "PCI Express 5.0 SSD",
     kDriveBytes,
     {12.4e9, "Crucial T700 data sheet: 12.4 GB/s sequential read"},
     {kLasting * 11.8e9,
      "Crucial T700 data sheet: 11.8 GB/s sequential write; 0.7 assumed to last"}},
    {"study", "the planning study's SSD", kDriveBytes, {7e9, kStudySource}, {5e9, kStudySource}},
}};

// ---- Putting together

int64_t Rounded(double value) { return std::llround(value); }

void SetSource(Hardware& hardware, std::string_view field, std::string_view source) {
  hardware.sources[std::string(field)] = source;
}

void Set(Hardware& hardware, std::string_view field, const Figure& figure, int64_t& value) {
  value = Rounded(figure.value);
  SetSource(hardware, field, figure.source);
}

void Set(Hardware& hardware, std::string_view field, const Figure& figure, Bytes& value) {
  value = Bytes(Rounded(figure.value));
  SetSource(hardware, field, figure.source);
}

void SetDevice(const DevicePart& part, Hardware& hardware) {
  MachineRates& rates = hardware.rates;
  hardware.device = part.title;
  Set(hardware, "device.memory_bytes", part.memory, hardware.device_memory);
  Set(hardware, "device.memory_bytes_per_second", part.memory_rate,
      rates.device_memory_bytes_per_second);
  Set(hardware, "device.flops_per_second", part.flops, rates.flops_per_second);
  Set(hardware, "host.memory_bytes", part.host_memory, hardware.host_memory);
  Set(hardware, "host.update_bytes_per_second", part.update_rate,
      rates.host_update_bytes_per_second);
}

void SetLink(const LinkPart& part, Hardware& hardware) {
  constexpr int64_t kLatency = 20'000;
  constexpr std::string_view kLatencySource = "assumed: 20 us to start a copy";
  MachineRates& rates = hardware.rates;
  Set(hardware, "copies.host_to_device.bytes_per_second", part.rate,
      rates.host_to_device.bytes_per_second);
  Set(hardware, "copies.device_to_host.bytes_per_second", part.rate,
      rates.device_to_host.bytes_per_second);
  rates.host_to_device.latency_nanoseconds = kLatency;
  rates.device_to_host.latency_nanoseconds = kLatency;
  SetSource(hardware, "copies.host_to_device.latency_ns", kLatencySource);
  SetSource(hardware, "copies.device_to_host.latency_ns", kLatencySource);
  rates.copy_duplex = Duplex::kIndependent;
  SetSource(hardware, "copies.duplex", "assumed: a full-duplex link and an engine for each way");
}

struct DriveCount {
  const DrivePart* part;
  int count;
};

void SetDrives(const DriveCount& drives, Hardware& hardware) {
  constexpr int64_t kReadLatency = 100'000;
  constexpr int64_t kWriteLatency = 50'000;
  MachineRates& rates = hardware.rates;
  const auto striped = [&](std::string_view field, const Figure& figure, int64_t& value) {
    value = Rounded(figure.value * drives.count);
    SetSource(hardware, field,
              drives.count == 1
                  ? std::string(figure.source)
                  : StrCat(figure.source, "; times ", drives.count, ", assumed of stripes"));
  };
  int64_t bytes = 0;
  striped("files.bytes", drives.part->bytes, bytes);
  hardware.file_bytes = Bytes(bytes);
  striped("files.read.bytes_per_second", drives.part->read, rates.file_read.bytes_per_second);
  striped("files.write.bytes_per_second", drives.part->write, rates.file_write.bytes_per_second);
  rates.file_read.latency_nanoseconds = kReadLatency;
  rates.file_write.latency_nanoseconds = kWriteLatency;
  SetSource(hardware, "files.read.latency_ns", "assumed: flash and kernel, 100 us");
  SetSource(hardware, "files.write.latency_ns", "assumed: the drive's cache and kernel, 50 us");
  rates.file_duplex = Duplex::kExclusive;
  SetSource(hardware, "files.duplex", "assumed: reads and writes share the drive's channels");
}

// ---- Parsing

template <typename Parts>
auto Find(const Parts& parts, std::string_view name) -> decltype(&parts[0]) {
  const auto found =
      std::ranges::find_if(parts, [&](const auto& part) { return part.name == name; });
  return found == parts.end() ? nullptr : &*found;
}

std::string Joined(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) text += StrCat(text.empty() ? "" : ", ", name);
  return text;
}

absl::Status UnknownPart(std::string_view machine, std::string_view part,
                         const std::vector<std::string>& names) {
  const std::string nearest = NearestName(part, names.data(), names.size());
  return InvalidArgument("machine '", machine, "': '", part, "' is not known",
                         nearest.empty() ? "" : StrCat(", did you mean '", nearest, "'?"),
                         "; there are ", Joined(names));
}

std::vector<std::string> DeviceNames() {
  std::vector<std::string> names;
  for (const DevicePart& part : kDevices) names.emplace_back(part.name);
  return names;
}

std::vector<std::string> OtherNames() {
  std::vector<std::string> names;
  for (const LinkPart& part : kLinks) names.emplace_back(part.name);
  for (const DrivePart& part : kDrives) names.emplace_back(part.name);
  names.insert(names.end(), {"host=", "vram=", "dram="});
  return names;
}

// What the parts behind the device said.
struct Chosen {
  const LinkPart* link = nullptr;
  std::optional<DriveCount> drives;
  std::optional<Bytes> host, vram, dram;
};

// "8xgen4" or "gen4"; null when it is none.
absl::StatusOr<DriveCount> ParseDrives(std::string_view machine, std::string_view part) {
  std::string_view kind = part;
  int count = 1;
  const size_t x = part.find('x');
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (x != 0 && x != std::string_view::npos && std::ranges::all_of(part.substr(0, x), is_digit)) {
    kind = part.substr(x + 1);
    // Two digits are too many already.
    count = x == 1 ? part[0] - '0' : 0;
  }
  const DrivePart* drive = Find(kDrives, kind);
  if (drive == nullptr) {
    if (kind.size() == part.size()) return UnknownPart(machine, part, OtherNames());
    std::vector<std::string> names;
    for (const DrivePart& known : kDrives) names.emplace_back(known.name);
    return UnknownPart(machine, kind, names);
  }
  if (count < 1 || count > kDrivesMax) {
    return InvalidArgument("machine '", machine, "': '", part, "': from 1 to ", kDrivesMax,
                           " drives");
  }
  return DriveCount{.part = drive, .count = count};
}

absl::Status Twice(std::string_view machine, std::string_view what) {
  return InvalidArgument("machine '", machine, "' has two ", what);
}

absl::Status ParseOption(std::string_view machine, std::string_view part, Chosen& chosen) {
  const size_t equals = part.find('=');
  const std::string_view key = part.substr(0, equals);
  std::optional<Bytes>* const option = key == "host"sv   ? &chosen.host
                                       : key == "vram"sv ? &chosen.vram
                                       : key == "dram"sv ? &chosen.dram
                                                         : nullptr;
  if (option == nullptr) {
    return UnknownPart(machine, part.substr(0, equals + 1), {"host=", "vram=", "dram="});
  }
  if (option->has_value()) return Twice(machine, StrCat("sizes '", key, "='"));
  const absl::StatusOr<Bytes> size = ParseBytes(part.substr(equals + 1));
  if (!size.ok() || *size <= Bytes::Zero()) {
    return InvalidArgument("machine '", machine, "': '", part,
                           "': expected a size like 64GiB that is more than 0");
  }
  *option = *size;
  return absl::OkStatus();
}

absl::Status ParsePart(std::string_view machine, std::string_view part, Chosen& chosen) {
  if (part.find('=') != std::string_view::npos) return ParseOption(machine, part, chosen);
  if (const LinkPart* link = Find(kLinks, part); link != nullptr) {
    if (chosen.link != nullptr) return Twice(machine, "links");
    chosen.link = link;
    return absl::OkStatus();
  }
  if (Find(kDevices, part) != nullptr) return Twice(machine, "devices");
  GANTRY_ASSIGN_OR_RETURN(const DriveCount drives, ParseDrives(machine, part));
  if (chosen.drives.has_value()) return Twice(machine, "kinds of drives");
  chosen.drives = drives;
  return absl::OkStatus();
}

std::string RateText(double per_second) {
  return StrCat(std::round(per_second / 1e8) / 10.0, " GB/s");
}

}  // namespace

absl::StatusOr<Hardware> CatalogMachine(std::string_view name) {
  size_t end = name.find('+');
  const DevicePart* const device = Find(kDevices, name.substr(0, end));
  if (device == nullptr) return UnknownPart(name, name.substr(0, end), DeviceNames());
  Chosen chosen;
  while (end != std::string_view::npos) {
    const size_t begin = end + 1;
    end = name.find('+', begin);
    const size_t size = end == std::string_view::npos ? name.size() - begin : end - begin;
    GANTRY_RETURN_IF_ERROR(ParsePart(name, name.substr(begin, size), chosen));
  }
  Hardware hardware;
  hardware.name = name;
  SetDevice(*device, hardware);
  SetLink(chosen.link != nullptr ? *chosen.link : *Find(kLinks, device->link), hardware);
  if (chosen.drives.has_value()) SetDrives(*chosen.drives, hardware);
  if (chosen.vram.has_value()) {
    hardware.device_memory = *chosen.vram;
    SetSource(hardware, "device.memory_bytes", "given as vram=");
  }
  if (chosen.host.has_value()) {
    hardware.host_memory = *chosen.host;
    SetSource(hardware, "host.memory_bytes", "given as host=");
  }
  if (chosen.dram.has_value()) {
    hardware.rates.host_update_bytes_per_second = chosen.dram->count();
    SetSource(hardware, "host.update_bytes_per_second", "given as dram=");
  }
  if (const absl::Status valid = hardware.Validate(); !valid.ok()) {
    return InvalidArgument("machine '", name, "': ", valid.message());
  }
  return hardware;
}

std::vector<CatalogPart> CatalogParts() {
  std::vector<CatalogPart> parts;
  for (const DevicePart& part : kDevices) {
    parts.push_back({.kind = CatalogPart::Kind::kDevice,
                     .name = std::string(part.name),
                     .text = StrCat(part.title, ": ", std::round(part.flops.value / 1e12),
                                    " TFLOPS effective, host updates at ",
                                    RateText(part.update_rate.value), ", ", part.link)});
  }
  for (const LinkPart& part : kLinks) {
    parts.push_back({.kind = CatalogPart::Kind::kLink,
                     .name = std::string(part.name),
                     .text = StrCat(part.title, ": ", RateText(part.rate.value), " each way")});
  }
  for (const DrivePart& part : kDrives) {
    parts.push_back({.kind = CatalogPart::Kind::kDrive,
                     .name = std::string(part.name),
                     .text = StrCat(part.title, ": ", RateText(part.read.value), " read, ",
                                    RateText(part.write.value), " written")});
  }
  return parts;
}

}  // namespace gantry
