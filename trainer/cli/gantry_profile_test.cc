// The program measures the machine: what it writes is a machine file with a source for each figure,
// nothing is left in the folders, and what cannot be measured is one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/testing/status_matchers.h"
#include "placement_policy/hardware.h"
#include "placement_policy/machine.h"
#include "placement_policy/machine_file.h"
#include "trainer/cli/testing/program.h"
#include "trainer/cli/testing/program_folder.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Figures that are there have a source: rates that are mixed only, latencies also where they are 0.
void ExpectSources(const Hardware& hardware) {
  for (const std::string_view field : MachineFileFields()) {
    const bool mixed = field.ends_with("mixed_bytes_per_second");
    const bool files = field.starts_with("files.");
    const Duplex duplex = files ? hardware.rates.file_duplex : hardware.rates.copy_duplex;
    const bool there =
        (!files || hardware.file_bytes > 0_B) && (!mixed || duplex == Duplex::kMixed);
    EXPECT_EQ(hardware.sources.contains(std::string(field)), there) << field;
  }
}

TEST(GantryProfile, MeasuresTheMachine) {
  const ProgramFolder folder("profile");
  std::filesystem::create_directories(folder.path() + "/a");
  std::filesystem::create_directories(folder.path() + "/b");
  const ProgramResult profile =
      folder.Run({"profile", "machine", "--quick", "--dir=a", "--dir=b", "--out=out/machine.json",
                  "--json", "--threads=1", "--dtype=f32", "--device-memory=3GiB"});
  ASSERT_EQ(profile.exit_code, 0) << profile.err;
  EXPECT_THAT(profile.err, HasSubstr("the device is this machine's CPU"));
  EXPECT_THAT(profile.err, HasSubstr("measuring files: reads\n"));
  EXPECT_THAT(profile.err, Not(HasSubstr("no --dir")));
  EXPECT_EQ(folder.Read("out/machine.json"), profile.out);
  const absl::StatusOr<Hardware> hardware = ParseMachine(profile.out);
  ASSERT_THAT(hardware, IsOk());
  EXPECT_EQ(hardware->device, "CPU, 1 thread, emulated device");
  EXPECT_EQ(hardware->device_memory, 3_GiB);
  EXPECT_GT(hardware->host_memory, 0_B);
  EXPECT_GT(hardware->file_bytes, 0_B);
  EXPECT_EQ(hardware->sources.at("device.memory_bytes"), "given");
  EXPECT_EQ(hardware->sources.at("device.flops_per_second"),
            "measured: the three products of a linear layer, f32");
  // Anything slower would mean that a unit is wrong.
  const MachineRates& rates = hardware->rates;
  for (const int64_t rate :
       {rates.host_to_device.bytes_per_second, rates.device_to_host.bytes_per_second,
        rates.file_read.bytes_per_second, rates.file_write.bytes_per_second,
        rates.host_update_bytes_per_second, rates.flops_per_second}) {
    EXPECT_GT(rate, 1'000'000);
  }
  EXPECT_GT(rates.host_to_device.latency_nanoseconds, 0);
  ExpectSources(*hardware);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() + "/a"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() + "/b"));
}

TEST(GantryProfile, WithoutFoldersThereIsNoFileTier) {
  const ProgramFolder folder("profile-memory");
  const ProgramResult profile = folder.Run({"profile", "machine", "--quick", "--out=machine.json"});
  ASSERT_EQ(profile.exit_code, 0) << profile.err;
  EXPECT_THAT(profile.err, HasSubstr("no --dir=FOLDER is given, so there will be no file tier"));
  EXPECT_THAT(profile.out, HasSubstr("host to device"));
  EXPECT_THAT(profile.out, Not(HasSubstr("file")));
  const absl::StatusOr<Hardware> hardware = ParseMachine(folder.Read("machine.json"));
  ASSERT_THAT(hardware, IsOk());
  EXPECT_EQ(hardware->file_bytes, 0_B);
  ExpectSources(*hardware);
}

TEST(GantryProfile, ErrorsAreOneLine) {
  const ProgramFolder folder("profile-errors");
  const std::pair<std::vector<std::string>, const char*> usage[] = {
      {{}, "say what to profile: `gantry profile machine` measures this machine"},
      {{"machines"}, "'machines' cannot be profiled: `gantry profile machine` measures"},
      {{"machine", "--dirs=a"}, "unknown option '--dirs', did you mean '--dir'?"},
      {{"machine", "--dir"}, "--dir needs a folder"},
      {{"machine", "--threads=0"}, "--threads=0: expected a number from 1 to 1024"},
      {{"machine", "--threads=2x"}, "--threads=2x: expected a number"},
      {{"machine", "--dtype=f16"}, "--dtype=f16: expected bf16 or f32"},
      {{"machine", "--host-memory=0"}, "--host-memory=0: expected a size"},
      {{"machine", "--out"}, "--out"}};
  for (const auto& [arguments, message] : usage) {
    std::vector<std::string> all = {"profile"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ProgramResult result = folder.Run(all);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr(message));
  }
  const ProgramResult missing = folder.Run({"profile", "machine", "--quick", "nowhere"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("nowhere"));
  const ProgramResult locked =
      folder.Run({"profile", "machine", "--quick", "--out=/proc/none/machine.json"});
  EXPECT_EQ(locked.exit_code, 1);
  EXPECT_THAT(locked.err, HasSubstr("create directory /proc/none"));
  EXPECT_THAT(locked.err, Not(HasSubstr("measuring")));
}

}  // namespace
}  // namespace gantry
