#include "placement_policy/machine_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/machine.h"

namespace gantry {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kFormatName = "gantry-machine";
constexpr JsonDocument::Limits kLimits = {.what = "machine file",
                                          .text_bytes_max = kMachineFileBytesMax,
                                          .depth_max = 8,
                                          .values_max = 10'000};

constexpr std::array<std::string_view, 10> kKeys = {"format",        "version", "name",   "unified",
                                                    "device",        "host",    "copies", "files",
                                                    "compute_scale", "sources"};
constexpr std::array<std::string_view, 18> kFields = {"device.memory_bytes",
                                                      "device.memory_bytes_per_second",
                                                      "device.flops_per_second",
                                                      "host.memory_bytes",
                                                      "host.update_bytes_per_second",
                                                      "copies.host_to_device.bytes_per_second",
                                                      "copies.host_to_device.latency_ns",
                                                      "copies.device_to_host.bytes_per_second",
                                                      "copies.device_to_host.latency_ns",
                                                      "copies.duplex",
                                                      "copies.mixed_bytes_per_second",
                                                      "files.bytes",
                                                      "files.read.bytes_per_second",
                                                      "files.read.latency_ns",
                                                      "files.write.bytes_per_second",
                                                      "files.write.latency_ns",
                                                      "files.duplex",
                                                      "files.mixed_bytes_per_second"};
constexpr std::array<Duplex, 3> kDuplexes = {Duplex::kIndependent, Duplex::kExclusive,
                                             Duplex::kMixed};

// The two lanes of a pair and how they share, whichever pair it is.
struct LanePair {
  std::array<std::string_view, 2> names;
  std::array<Lane*, 2> lanes;
  Duplex* duplex;
  int64_t* mixed;
};

LanePair CopyLanes(MachineRates& rates) {
  return {.names = {"host_to_device", "device_to_host"},
          .lanes = {&rates.host_to_device, &rates.device_to_host},
          .duplex = &rates.copy_duplex,
          .mixed = &rates.copy_mixed_bytes_per_second};
}

LanePair FileLanes(MachineRates& rates) {
  return {.names = {"read", "write"},
          .lanes = {&rates.file_read, &rates.file_write},
          .duplex = &rates.file_duplex,
          .mixed = &rates.file_mixed_bytes_per_second};
}

void AddLanes(const LanePair& pair, OrderedJson& json) {
  for (size_t i = 0; i < pair.lanes.size(); ++i) {
    json[std::string(pair.names[i])] = {{"bytes_per_second", pair.lanes[i]->bytes_per_second},
                                        {"latency_ns", pair.lanes[i]->latency_nanoseconds}};
  }
  json["duplex"] = Name(*pair.duplex);
  if (*pair.duplex == Duplex::kMixed) json["mixed_bytes_per_second"] = *pair.mixed;
}

// ---- Reading. Ranges are those of Hardware::Validate; here only what is needed to hold a value.

absl::Status ReadInteger(const JsonNode& object, std::string_view key, int64_t& value) {
  GANTRY_ASSIGN_OR_RETURN(const JsonNode node, object.Member(key));
  GANTRY_ASSIGN_OR_RETURN(value, node.Integer({}));
  return absl::OkStatus();
}

// A figure that a machine must have.
absl::Status ReadPositive(const JsonNode& object, std::string_view key, int64_t& value) {
  GANTRY_ASSIGN_OR_RETURN(const JsonNode node, object.Member(key));
  GANTRY_ASSIGN_OR_RETURN(value, node.Integer({.least = 1}));
  return absl::OkStatus();
}

absl::Status ReadBytes(const JsonNode& object, std::string_view key, Bytes& bytes) {
  int64_t count = 0;
  GANTRY_RETURN_IF_ERROR(ReadPositive(object, key, count));
  bytes = Bytes(count);
  return absl::OkStatus();
}

absl::Status ReadText(const JsonNode& object, std::string_view key, std::string& text) {
  GANTRY_ASSIGN_OR_RETURN(const JsonNode node, object.Member(key));
  GANTRY_ASSIGN_OR_RETURN(const std::string_view value, node.Text());
  text = value;
  return absl::OkStatus();
}

absl::Status ReadLane(const JsonNode& object, std::string_view key, Lane& lane) {
  constexpr std::array<std::string_view, 2> kLaneKeys = {"bytes_per_second", "latency_ns"};
  GANTRY_ASSIGN_OR_RETURN(const JsonNode node, object.Member(key));
  GANTRY_RETURN_IF_ERROR(node.ExpectKeys(kLaneKeys));
  GANTRY_RETURN_IF_ERROR(ReadPositive(node, kLaneKeys[0], lane.bytes_per_second));
  return ReadInteger(node, kLaneKeys[1], lane.latency_nanoseconds);
}

// All of the pair's object but `other_key`.
absl::Status ReadLanes(const JsonNode& node, std::optional<std::string_view> other_key,
                       const LanePair& pair) {
  std::vector<std::string_view> keys = {pair.names[0], pair.names[1], "duplex",
                                        "mixed_bytes_per_second"};
  if (other_key.has_value()) keys.push_back(*other_key);
  GANTRY_RETURN_IF_ERROR(node.ExpectKeys(keys));
  for (size_t i = 0; i < pair.lanes.size(); ++i) {
    GANTRY_RETURN_IF_ERROR(ReadLane(node, pair.names[i], *pair.lanes[i]));
  }
  GANTRY_ASSIGN_OR_RETURN(const JsonNode duplex_node, node.Member("duplex"));
  GANTRY_ASSIGN_OR_RETURN(const std::string_view duplex, duplex_node.Text());
  const auto found = std::ranges::find(kDuplexes, duplex, [](Duplex d) { return Name(d); });
  if (found == kDuplexes.end()) {
    return duplex_node.Error("none of independent, exclusive, mixed");
  }
  *pair.duplex = *found;
  const std::optional<JsonNode> mixed = node.Find("mixed_bytes_per_second");
  if (*pair.duplex == Duplex::kMixed) {
    return ReadPositive(node, "mixed_bytes_per_second", *pair.mixed);
  }
  if (mixed.has_value()) return mixed->Error(StrCat("but duplex is ", duplex));
  return absl::OkStatus();
}

absl::Status ReadDevice(const JsonNode& root, Hardware& hardware) {
  constexpr std::array<std::string_view, 4> kDeviceKeys = {
      "name", "memory_bytes", "memory_bytes_per_second", "flops_per_second"};
  GANTRY_ASSIGN_OR_RETURN(const JsonNode node, root.Member("device"));
  GANTRY_RETURN_IF_ERROR(node.ExpectKeys(kDeviceKeys));
  GANTRY_RETURN_IF_ERROR(ReadText(node, kDeviceKeys[0], hardware.device));
  GANTRY_RETURN_IF_ERROR(ReadBytes(node, kDeviceKeys[1], hardware.device_memory));
  GANTRY_RETURN_IF_ERROR(
      ReadPositive(node, kDeviceKeys[2], hardware.rates.device_memory_bytes_per_second));
  return ReadPositive(node, kDeviceKeys[3], hardware.rates.flops_per_second);
}

absl::Status ReadHost(const JsonNode& root, Hardware& hardware) {
  constexpr std::array<std::string_view, 2> kHostKeys = {"memory_bytes", "update_bytes_per_second"};
  GANTRY_ASSIGN_OR_RETURN(const JsonNode node, root.Member("host"));
  GANTRY_RETURN_IF_ERROR(node.ExpectKeys(kHostKeys));
  GANTRY_RETURN_IF_ERROR(
      ReadPositive(node, kHostKeys[1], hardware.rates.host_update_bytes_per_second));
  if (!hardware.unified) return ReadBytes(node, kHostKeys[0], hardware.host_memory);
  const std::optional<JsonNode> memory = node.Find(kHostKeys[0]);
  if (!memory.has_value()) return absl::OkStatus();
  return memory->Error("but a unified machine has the device's memory only");
}

absl::Status ReadCopies(const JsonNode& root, Hardware& hardware) {
  if (!hardware.unified) {
    GANTRY_ASSIGN_OR_RETURN(const JsonNode node, root.Member("copies"));
    return ReadLanes(node, std::nullopt, CopyLanes(hardware.rates));
  }
  const std::optional<JsonNode> node = root.Find("copies");
  if (!node.has_value()) return absl::OkStatus();
  return node->Error("but a unified machine has no copy lanes");
}

absl::Status ReadFiles(const JsonNode& root, Hardware& hardware) {
  const std::optional<JsonNode> node = root.Find("files");
  if (!node.has_value()) return absl::OkStatus();
  GANTRY_RETURN_IF_ERROR(ReadLanes(*node, "bytes", FileLanes(hardware.rates)));
  return ReadBytes(*node, "bytes", hardware.file_bytes);
}

absl::Status ReadSources(const JsonNode& root, Hardware& hardware) {
  const std::optional<JsonNode> node = root.Find("sources");
  if (!node.has_value()) return absl::OkStatus();
  GANTRY_RETURN_IF_ERROR(node->ExpectKeys(kFields));
  for (const std::string_view field : kFields) {
    if (!node->Find(field).has_value()) continue;
    GANTRY_RETURN_IF_ERROR(ReadText(*node, field, hardware.sources[std::string(field)]));
  }
  return absl::OkStatus();
}

absl::Status ReadScalars(const JsonNode& root, Hardware& hardware) {
  GANTRY_RETURN_IF_ERROR(ReadText(root, "name", hardware.name));
  if (const std::optional<JsonNode> unified = root.Find("unified"); unified.has_value()) {
    GANTRY_ASSIGN_OR_RETURN(hardware.unified, unified->Flag());
  }
  if (const std::optional<JsonNode> scale = root.Find("compute_scale"); scale.has_value()) {
    constexpr double kLeast = std::numeric_limits<double>::min();
    GANTRY_ASSIGN_OR_RETURN(hardware.rates.compute_scale,
                            scale->Real({.least = kLeast, .most = 1000.0}));
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const std::string_view> MachineFileFields() { return kFields; }

std::string FormatMachine(const Hardware& hardware) {
  GANTRY_CHECK_OK(hardware.Validate());
  MachineRates rates = hardware.rates;
  OrderedJson json = {{"format", kFormatName},
                      {"version", kMachineFileVersion},
                      {"name", hardware.name},
                      {"unified", hardware.unified},
                      {"device",
                       {{"name", hardware.device},
                        {"memory_bytes", hardware.device_memory.count()},
                        {"memory_bytes_per_second", rates.device_memory_bytes_per_second},
                        {"flops_per_second", rates.flops_per_second}}},
                      {"host", OrderedJson::object()}};
  if (!hardware.unified) {
    json["host"]["memory_bytes"] = hardware.host_memory.count();
    AddLanes(CopyLanes(rates), json["copies"]);
  }
  json["host"]["update_bytes_per_second"] = rates.host_update_bytes_per_second;
  if (hardware.file_bytes > Bytes(0)) {
    json["files"]["bytes"] = hardware.file_bytes.count();
    AddLanes(FileLanes(rates), json["files"]);
  }
  json["compute_scale"] = rates.compute_scale;
  for (const auto& [field, source] : hardware.sources) {
    GANTRY_CHECK(std::ranges::find(kFields, field) != kFields.end()) << field;
    json["sources"][field] = source;
  }
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

absl::StatusOr<Hardware> ParseMachine(std::string_view text) {
  GANTRY_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, kLimits));
  // First, so that a later version is called that and not full of unknown keys.
  GANTRY_RETURN_IF_ERROR(document.ExpectFormat(kFormatName, kMachineFileVersion));
  const JsonNode root = document.root();
  GANTRY_RETURN_IF_ERROR(root.ExpectKeys(kKeys));
  Hardware hardware;
  GANTRY_RETURN_IF_ERROR(ReadScalars(root, hardware));
  GANTRY_RETURN_IF_ERROR(ReadDevice(root, hardware));
  GANTRY_RETURN_IF_ERROR(ReadHost(root, hardware));
  GANTRY_RETURN_IF_ERROR(ReadCopies(root, hardware));
  GANTRY_RETURN_IF_ERROR(ReadFiles(root, hardware));
  GANTRY_RETURN_IF_ERROR(ReadSources(root, hardware));
  GANTRY_RETURN_IF_ERROR(hardware.Validate());
  return hardware;
}

}  // namespace gantry
