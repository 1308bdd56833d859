// Round trips of random hardware, each field's errors by name, and changed text of all kinds.
#include "placement_policy/machine_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/hardware.h"
#include "placement_policy/machine.h"
#include "placement_policy/testing/random_trace.h"

namespace gantry {
namespace {

using Json = nlohmann::json;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr std::array<Duplex, 3> kDuplexes = {Duplex::kIndependent, Duplex::kExclusive,
                                             Duplex::kMixed};

Lane RandomLane(Dice& dice) {
  return {.bytes_per_second = 1 + dice.Below(1'000'000'000'000'000),
          .latency_nanoseconds = dice.Below(2) * dice.Below(60'000'000'001)};
}

Hardware RandomHardware(Dice& dice) {
  Hardware hardware{.name = StrCat("machine \"", dice.Below(100), "\"\n"),
                    .device = "d",
                    .unified = dice.Below(3) == 0,
                    .device_memory = Bytes(1 + dice.Below(int64_t{1} << 53))};
  MachineRates& rates = hardware.rates;
  rates.host_update_bytes_per_second = 1 + dice.Below(1'000'000'000'000'000);
  rates.device_memory_bytes_per_second = 1 + dice.Below(1'000'000'000'000'000);
  rates.flops_per_second = 1 + dice.Below(int64_t{1} << 53);
  rates.compute_scale = static_cast<double>(1 + dice.Below(1'000'000)) / 1001.0;
  if (!hardware.unified) {
    hardware.host_memory = Bytes(1 + dice.Below(int64_t{1} << 53));
    rates.host_to_device = RandomLane(dice);
    rates.device_to_host = RandomLane(dice);
    rates.copy_duplex = dice.Pick(kDuplexes);
    if (rates.copy_duplex == Duplex::kMixed) rates.copy_mixed_bytes_per_second = 1 + dice.Below(9);
  }
  if (dice.Below(2) == 0) {
    hardware.file_bytes = Bytes(1 + dice.Below(int64_t{1} << 53));
    rates.file_read = RandomLane(dice);
    rates.file_write = RandomLane(dice);
    rates.file_duplex = dice.Pick(kDuplexes);
    if (rates.file_duplex == Duplex::kMixed) rates.file_mixed_bytes_per_second = 1 + dice.Below(9);
  }
  for (int64_t i = dice.Below(4); i > 0; --i) {
    hardware.sources[std::string(dice.Pick(MachineFileFields()))] = StrCat("source ", i);
  }
  return hardware;
}

TEST(MachineFileTest, RandomHardwareSurvivesTheRoundTrip) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    const Hardware hardware = RandomHardware(dice);
    const std::string text = FormatMachine(hardware);
    const absl::StatusOr<Hardware> parsed = ParseMachine(text);
    ASSERT_THAT(parsed, IsOk());
    ASSERT_EQ(*parsed, hardware);
    ASSERT_EQ(FormatMachine(*parsed), text);
  }
}

// The text that docs/formats/machine.md shows.
constexpr std::string_view kText = R"({
  "format": "gantry-machine",
  "version": 1,
  "name": "workstation",
  "unified": false,
  "device": {
    "name": "accelerator",
    "memory_bytes": 25769803776,
    "memory_bytes_per_second": 1000000000000,
    "flops_per_second": 82000000000000
  },
  "host": {
    "memory_bytes": 68719476736,
    "update_bytes_per_second": 60000000000
  },
  "copies": {
    "host_to_device": {
      "bytes_per_second": 25000000000,
      "latency_ns": 20000
    },
    "device_to_host": {
      "bytes_per_second": 24000000000,
      "latency_ns": 20000
    },
    "duplex": "independent"
  },
  "files": {
    "bytes": 2000000000000,
    "read": {
      "bytes_per_second": 7000000000,
      "latency_ns": 90000
    },
    "write": {
      "bytes_per_second": 5000000000,
      "latency_ns": 30000
    },
    "duplex": "mixed",
    "mixed_bytes_per_second": 6100000000
  },
  "compute_scale": 1.0,
  "sources": {
    "host.update_bytes_per_second": "measured",
    "device.memory_bytes": "data sheet"
  }
}
)";

TEST(MachineFileTest, TheDocumentedTextIsRead) {
  const absl::StatusOr<Hardware> hardware = ParseMachine(kText);
  ASSERT_THAT(hardware, IsOk());
  EXPECT_EQ(hardware->name, "workstation");
  EXPECT_EQ(hardware->device, "accelerator");
  EXPECT_FALSE(hardware->unified);
  EXPECT_EQ(hardware->device_memory, 24_GiB);
  EXPECT_EQ(hardware->host_memory, 64_GiB);
  EXPECT_EQ(hardware->file_bytes, Bytes(2'000'000'000'000));
  const MachineRates expected = {
      .host_to_device = {.bytes_per_second = 25'000'000'000, .latency_nanoseconds = 20'000},
      .device_to_host = {.bytes_per_second = 24'000'000'000, .latency_nanoseconds = 20'000},
      .copy_duplex = Duplex::kIndependent,
      .file_read = {.bytes_per_second = 7'000'000'000, .latency_nanoseconds = 90'000},
      .file_write = {.bytes_per_second = 5'000'000'000, .latency_nanoseconds = 30'000},
      .file_duplex = Duplex::kMixed,
      .file_mixed_bytes_per_second = 6'100'000'000,
      .host_update_bytes_per_second = 60'000'000'000,
      .device_memory_bytes_per_second = 1'000'000'000'000,
      .flops_per_second = 82'000'000'000'000};
  EXPECT_EQ(hardware->rates, expected);
  EXPECT_EQ(hardware->sources.at("device.memory_bytes"), "data sheet");
}

TEST(MachineFileTest, ErrorsNameTheField) {
  using Change = std::pair<std::string_view, std::string_view>;
  const std::pair<Change, const char*> cases[] = {
      {{"\"version\": 1", "\"version\": 2"}, "version is 2, but this program reads version 1"},
      {{"gantry-machine", "gantry-trace"}, "format is \"gantry-trace\""},
      {{"\"host\"", "\"hots\""}, "machine file: hots is not known; did you mean 'host'?"},
      {{"\"flops_per_second\"", "\"flop_per_second\""},
       "device.flop_per_second is not known; did you mean 'flops_per_second'?"},
      {{"\"latency_ns\": 90000", "\"latency\": 90000"},
       "files.read.latency is not known; known are bytes_per_second, latency_ns"},
      {{"\"name\": \"accelerator\",", ""}, "device.name is missing"},
      {{"\"unified\": false", "\"unified\": 0"}, "unified is 0, neither true nor false"},
      {{"\"unified\": false", "\"unified\": true"},
       "host.memory_bytes is 68719476736, but a unified machine"},
      {{"25769803776", "0"}, "device.memory_bytes is 0, outside [1, 9007199254740992]"},
      {{"25769803776", "-24"}, "device.memory_bytes is -24, outside"},
      {{"25769803776", "2.5e10"}, "device.memory_bytes is 25000000000.0, not an integer"},
      {{"25769803776", "9007199254740993"}, "device.memory_bytes is 9007199254740993, outside"},
      {{"25769803776", "\"24GiB\""}, "device.memory_bytes is \"24GiB\", not an integer"},
      {{"\"bytes_per_second\": 25000000000", "\"bytes_per_second\": 0"},
       "copies.host_to_device.bytes_per_second is 0, outside"},
      {{"\"bytes_per_second\": 5000000000", "\"bytes_per_second\": -5"},
       "files.write.bytes_per_second is -5, outside"},
      {{"\"bytes_per_second\": 5000000000", "\"bytes_per_second\": 1000000000000001"},
       "file_write.bytes_per_second is 1000000000000001, outside"},
      {{"\"latency_ns\": 30000", "\"latency_ns\": 60000000001"},
       "file_write.latency_nanoseconds is 60000000001, outside"},
      {{"82000000000000", "0"}, "device.flops_per_second is 0, outside"},
      {{"60000000000", "0"}, "host.update_bytes_per_second is 0, outside"},
      {{"\"independent\"", "\"full\""}, "copies.duplex is \"full\", none of independent"},
      {{"\"independent\"", "\"mixed\""}, "copies.mixed_bytes_per_second is missing"},
      {{"\"mixed\"", "\"exclusive\""},
       "files.mixed_bytes_per_second is 6100000000, but duplex is exclusive"},
      {{"6100000000", "0"}, "files.mixed_bytes_per_second is 0, outside"},
      {{"\"compute_scale\": 1.0", "\"compute_scale\": 0"}, "compute_scale is 0, outside"},
      {{"\"compute_scale\": 1.0", "\"compute_scale\": 1000.5"}, "compute_scale is 1000.5, outside"},
      {{"\"compute_scale\": 1.0", "\"compute_scale\": \"1\""}, "compute_scale is \"1\", not a"},
      {{"\"device.memory_bytes\"", "\"device.memory_byte\""},
       "sources.device.memory_byte is not known; did you mean 'device.memory_bytes'?"},
      {{"\"data sheet\"", "1"}, "sources.device.memory_bytes is 1, not a text"}};
  for (const auto& [change, message] : cases) {
    std::string text(kText);
    const size_t at = text.find(change.first);
    ASSERT_NE(at, std::string::npos) << change.first;
    text.replace(at, change.first.size(), change.second);
    EXPECT_THAT(ParseMachine(text), StatusIs(kInvalid, message)) << change.second;
  }
}

TEST(MachineFileTest, OnlyFilesAndSomeMembersMayBeMissing) {
  for (const char* key : {"name", "device", "host", "copies"}) {
    Json json = Json::parse(kText);
    json.erase(key);
    EXPECT_THAT(ParseMachine(json.dump()), StatusIs(kInvalid, StrCat(key, " is missing")));
  }
  Json json = Json::parse(kText);
  for (const char* key : {"unified", "files", "compute_scale", "sources"}) json.erase(key);
  const absl::StatusOr<Hardware> hardware = ParseMachine(json.dump());
  ASSERT_THAT(hardware, IsOk());
  EXPECT_EQ(hardware->file_bytes, 0_B);
  json["unified"] = true;
  json["host"].erase("memory_bytes");
  EXPECT_THAT(ParseMachine(json.dump()), StatusIs(kInvalid, "copies is an object, but a unified"));
  json.erase("copies");
  EXPECT_THAT(ParseMachine(json.dump()), IsOk());
}

TEST(MachineFileTest, EveryTruncationIsAnError) {
  for (size_t size = 0; size + 1 < kText.size(); ++size) {
    ASSERT_THAT(ParseMachine(kText.substr(0, size)), StatusIs(kInvalid, "no JSON")) << size;
  }
  EXPECT_THAT(ParseMachine(std::string(kMachineFileBytesMax + 1, ' ')),
              StatusIs(kInvalid, "it has 1048577 bytes"));
}

bool AcceptsOrRefuses(const std::string& text) {
  const absl::StatusOr<Hardware> parsed = ParseMachine(text);
  if (!parsed.ok()) {
    EXPECT_THAT(parsed.status(), StatusIs(kInvalid));
    return false;
  }
  EXPECT_THAT(parsed->Validate(), IsOk());
  const absl::StatusOr<Hardware> again = ParseMachine(FormatMachine(*parsed));
  EXPECT_THAT(again, IsOk());
  EXPECT_EQ(*again, *parsed);
  return true;
}

TEST(MachineFileFuzzTest, ChangedBytesAndValues) {
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Dice dice(seed);
    std::string text = FormatMachine(RandomHardware(dice));
    if (dice.Below(2) == 0) {
      char& byte = dice.Pick(text);
      byte =
          dice.Below(2) == 0 ? static_cast<char>(dice.Below(256)) : "0123456789-.e"[dice.Below(13)];
    } else {
      Json json = Json::parse(text);
      auto member = json.begin();
      std::advance(member, dice.Below(static_cast<int64_t>(json.size())));
      Json* value = &*member;
      while (value->is_object() && !value->empty()) {
        member = value->begin();
        std::advance(member, dice.Below(static_cast<int64_t>(value->size())));
        value = &*member;
      }
      const std::array<Json, 6> values = {nullptr, true, -1, 5, 0.5, "mixed"};
      *value = dice.Pick(values);
      text = json.dump();
    }
    if (AcceptsOrRefuses(text)) ++accepted;
  }
  EXPECT_GT(accepted, 400);
  EXPECT_LT(accepted, 3600);
}

TEST(MachineFileDeathTest, InvalidHardwareIsNotWritten) {
  Dice dice(1);
  Hardware hardware = RandomHardware(dice);
  hardware.sources["device.colour"] = "seen";
  EXPECT_DEATH(FormatMachine(hardware), "device.colour");
  hardware.sources.clear();
  hardware.rates.flops_per_second = 0;
  EXPECT_DEATH(FormatMachine(hardware), "flops_per_second is 0");
}

}  // namespace
}  // namespace gantry
