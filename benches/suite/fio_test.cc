// Reading fio's report, and running it where it is installed.
#include "benches/suite/fio.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

constexpr char kReport[] = R"(fio: a note that is no JSON
{"jobs": [{"error": 0, "job_runtime": 1000, "usr_cpu": 2.0, "sys_cpu": 8.0,
  "read": {"io_bytes": 1500000000, "runtime": 1000, "clat_ns": {"percentile":
     {"50.000000": 100, "99.000000": 200, "99.900000": 300}}},
  "write": {"io_bytes": 500000000, "runtime": 800, "clat_ns": {"min": 0}}}]})";

TEST(Fio, ReportIsRead) {
  const auto result = ParseFioReport(kReport);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->bytes, 2'000'000'000);
  EXPECT_DOUBLE_EQ(result->seconds, 1.0);
  EXPECT_DOUBLE_EQ(result->bytes_per_second(), 2e9);
  EXPECT_DOUBLE_EQ(result->cpu_seconds, 0.1);
  EXPECT_EQ(result->latency_median, 100);
  EXPECT_EQ(result->latency_99, 200);
  EXPECT_EQ(result->latency_99_9, 300);
}

TEST(Fio, WhatIsNoReportIsAnError) {
  std::string failed = kReport;
  failed.replace(failed.find("\"error\": 0"), 10, "\"error\": 5");
  const std::string whole = kReport;
  for (const std::string& text :
       {std::string(), std::string("fio: no such option"), std::string("}{"), std::string("{}"),
        std::string(R"({"jobs": []})"), std::string(R"({"jobs": [{"error": 0}]})"), failed,
        whole.substr(0, whole.size() / 2) + "}"}) {
    EXPECT_TRUE(absl::IsInternal(ParseFioReport(text).status())) << text;
  }
}

FioJob SmallJob(const std::string& file, LoadMix mix) {
  return {.program = "fio",
          .file = file,
          .file_bytes = 1_MiB,
          .block_bytes = 64_KiB,
          .queue_depth = 2,
          .mix = mix,
          .access = FileAccess::kBuffered,
          .buffers = FioBuffers::kPlain,
          .duration = 0};
}

TEST(Fio, ProgramsThatAreNotThereAreTold) {
  FioJob job = SmallJob(::testing::TempDir() + "/fio_none", LoadMix::kWrite);
  job.program = "/no/such/fio";
  const absl::Status status = RunFio(job).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(FromAbsl(status.message())), HasSubstr("--fio=PATH"));
}

TEST(Fio, ProgramsThatFailAreQuoted) {
  FioJob job = SmallJob(::testing::TempDir() + "/fio_false", LoadMix::kWrite);
  job.program = "/bin/false";
  const absl::Status status = RunFio(job).status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
}

TEST(Fio, MovesTheBytesOfTheJob) {
  const std::string file = ::testing::TempDir() + "/fio:colon";
  const auto written = RunFio(SmallJob(file, LoadMix::kWrite));
  if (absl::IsNotFound(written.status())) GTEST_SKIP() << "fio is not installed";
  if (absl::IsInternal(written.status())) GTEST_SKIP() << "no io_uring here: " << written.status();
  ASSERT_THAT(written, IsOk());
  EXPECT_EQ(written->bytes, (1_MiB).count());
  EXPECT_GT(written->seconds, 0.0);
  EXPECT_EQ(written->latency_median, 0.0);
  const auto mixed = RunFio(SmallJob(file, LoadMix::kMixed));
  ASSERT_THAT(mixed, IsOk());
  EXPECT_EQ(mixed->bytes, (1_MiB).count());
  EXPECT_GT(mixed->latency_median, 0.0);
}

}  // namespace
}  // namespace gantry
