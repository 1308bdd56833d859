#include "placement_policy/machine_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/hardware.h"
#include "placement_policy/machine.h"
#include "placement_policy/machine_file.h"

namespace gantry {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::vector<std::string> NamesOf(CatalogPart::Kind kind) {
  std::vector<std::string> names;
  for (const CatalogPart& part : CatalogParts()) {
    if (part.kind == kind) names.push_back(part.name);
  }
  return names;
}

// Every device with every link and drive: valid, writable, and each figure of its file has a
// source.
TEST(MachineCatalogTest, EveryFigureHasASource) {
  std::set<std::string> fields(MachineFileFields().begin(), MachineFileFields().end());
  fields.erase("copies.mixed_bytes_per_second");
  fields.erase("files.mixed_bytes_per_second");
  int machines = 0;
  for (const std::string& device : NamesOf(CatalogPart::Kind::kDevice)) {
    for (const std::string& link : NamesOf(CatalogPart::Kind::kLink)) {
      for (const std::string& drive : NamesOf(CatalogPart::Kind::kDrive)) {
        const std::string name = StrCat(device, "+", link, "+3x", drive);
        SCOPED_TRACE(name);
        const absl::StatusOr<Hardware> hardware = CatalogMachine(name);
        ASSERT_THAT(hardware, IsOk());
        EXPECT_EQ(hardware->name, name);
        EXPECT_THAT(hardware->Validate(), IsOk());
        std::set<std::string> sourced;
        for (const auto& [field, source] : hardware->sources) {
          EXPECT_FALSE(source.empty());
          sourced.insert(field);
        }
        EXPECT_EQ(sourced, fields);
        const absl::StatusOr<Hardware> read = ParseMachine(FormatMachine(*hardware));
        ASSERT_THAT(read, IsOk());
        EXPECT_EQ(*read, *hardware);
        ++machines;
      }
    }
  }
  EXPECT_EQ(machines, 11 * 5 * 4);
}

TEST(MachineCatalogTest, DevicesAloneHaveALinkAndNoFiles) {
  for (const std::string& device : NamesOf(CatalogPart::Kind::kDevice)) {
    const absl::StatusOr<Hardware> hardware = CatalogMachine(device);
    ASSERT_THAT(hardware, IsOk());
    EXPECT_EQ(hardware->file_bytes, 0_B);
    EXPECT_GT(hardware->rates.host_to_device.bytes_per_second, 0);
    EXPECT_GT(hardware->host_memory, hardware->device_memory);
  }
}

// The figures that the plans' suite is measured with.
TEST(MachineCatalogTest, TheStudysMachines) {
  const struct {
    const char* name;
    int64_t flops;
    int64_t update;
  } cases[] = {{"study-rtx4090", 82'000'000'000'000, 60'000'000'000},
               {"study-a100", 156'000'000'000'000, 160'000'000'000},
               {"study-h100", 445'000'000'000'000, 250'000'000'000}};
  for (const auto& c : cases) {
    const absl::StatusOr<Hardware> hardware = CatalogMachine(StrCat(c.name, "+4xstudy"));
    ASSERT_THAT(hardware, IsOk());
    const MachineRates& rates = hardware->rates;
    EXPECT_EQ(rates.flops_per_second, c.flops);
    EXPECT_EQ(rates.host_update_bytes_per_second, c.update);
    EXPECT_EQ(rates.host_to_device.bytes_per_second, 25'000'000'000);
    EXPECT_EQ(rates.device_to_host.bytes_per_second, 25'000'000'000);
    EXPECT_EQ(rates.copy_duplex, Duplex::kIndependent);
    EXPECT_EQ(rates.file_read.bytes_per_second, 28'000'000'000);
    EXPECT_EQ(rates.file_write.bytes_per_second, 20'000'000'000);
    EXPECT_EQ(rates.file_duplex, Duplex::kExclusive);
  }
}

TEST(MachineCatalogTest, PartsReplaceTheDevicesOwn) {
  const absl::StatusOr<Hardware> hardware =
      CatalogMachine("rtx4090+pcie5+2xgen4+host=96GiB+vram=16GiB+dram=70GB");
  ASSERT_THAT(hardware, IsOk());
  EXPECT_EQ(hardware->device, "NVIDIA GeForce RTX 4090 24 GB");
  EXPECT_EQ(hardware->device_memory, 16_GiB);
  EXPECT_EQ(hardware->host_memory, 96_GiB);
  EXPECT_EQ(hardware->file_bytes, Bytes(4'000'000'000'000));
  EXPECT_EQ(hardware->rates.flops_per_second, 82'600'000'000'000);
  EXPECT_EQ(hardware->rates.host_update_bytes_per_second, 70'000'000'000);
  EXPECT_EQ(hardware->rates.host_to_device.bytes_per_second, 50'400'000'000);
  EXPECT_EQ(hardware->rates.file_read.bytes_per_second, 14'900'000'000);
  EXPECT_EQ(hardware->sources.at("host.memory_bytes"), "given as host=");
  // In any order; one drive needs no number.
  const absl::StatusOr<Hardware> other = CatalogMachine("h100+host=2GiB+gen5+pcie4");
  ASSERT_THAT(other, IsOk());
  EXPECT_EQ(other->host_memory, 2_GiB);
  EXPECT_EQ(other->rates.file_read.bytes_per_second, 12'400'000'000);
  EXPECT_EQ(other->rates.host_to_device.bytes_per_second, 25'200'000'000);
}

TEST(MachineCatalogTest, OneToEightDrives) {
  for (int count = 1; count <= 8; ++count) {
    const absl::StatusOr<Hardware> hardware = CatalogMachine(StrCat("h100+", count, "xgen3"));
    ASSERT_THAT(hardware, IsOk());
    EXPECT_EQ(hardware->rates.file_read.bytes_per_second, count * int64_t{3'500'000'000});
  }
  for (const char* count : {"0", "9", "10", "08", "99999999999999999999"}) {
    EXPECT_THAT(CatalogMachine(StrCat("h100+", count, "xgen3")),
                StatusIs(kInvalid, StrCat("'", count, "xgen3': from 1 to 8 drives")));
  }
}

TEST(MachineCatalogTest, ErrorsNameThePart) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "machine '': '' is not known; there are rtx3060, rtx3080, rtx4090, a100-40"},
      {"rtx409", "'rtx409' is not known, did you mean 'rtx4090'?; there are rtx3060"},
      {"RTX4090", "'RTX4090' is not known"},
      {"gen4", "'gen4' is not known"},
      {"rtx4090+pcie6", "'pcie6' is not known, did you mean 'pcie3'?"},
      {"rtx4090+", "'' is not known; there are pcie3"},
      {"rtx4090++pcie4", "'' is not known"},
      {"rtx4090+2xgen6", "'gen6' is not known, did you mean 'gen3'?; there are gen3, gen4, gen5"},
      {"rtx4090+xgen4", "'xgen4' is not known, did you mean 'gen4'?"},
      {"rtx4090+pcie4+pcie4", "has two links"},
      {"rtx4090+gen3+gen4", "has two kinds of drives"},
      {"rtx4090+h100", "has two devices"},
      {"rtx4090+host=1GiB+host=2GiB", "has two sizes 'host='"},
      {"rtx4090+hosts=1GiB", "'hosts=' is not known, did you mean 'host='?"},
      {"rtx4090+host=", "'host=': expected a size like 64GiB that is more than 0"},
      {"rtx4090+vram=0", "'vram=0': expected a size"},
      {"rtx4090+vram=-1GiB", "'vram=-1GiB': expected a size"},
      {"rtx4090+host=1e9", "'host=1e9': expected a size"},
      {"rtx4090+host=8388609GiB", "host_memory is 9007200328482816, outside"},
      {"rtx4090+dram=2000000GB", "host_update_bytes_per_second is 2000000000000000, outside"}};
  for (const auto& [name, message] : cases) {
    EXPECT_THAT(CatalogMachine(name), StatusIs(kInvalid, message)) << name;
  }
}

}  // namespace
}  // namespace gantry
