// What is particular to the ring; the common contract is in io_backend_test.cc.
#include "nvme/io_ring.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/files.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/request_progress.h"
#include "nvme/testing_support.h"

namespace gantry {
namespace {

// A pipe gives what it holds, so a read of more is truly short in the completion and must be
// resumed in the right place, several times.
TEST(IoRingTest, ShortReadsOfAPipeAreResumed) {
  WaitingSink sink;
  auto ring = IoRing::Create({.sink = &sink, .queue_depth = 2, .pending_max = 4});
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor reading(ends[0]);
  const FileDescriptor writing(ends[1]);
  AlignedBlock sent(3000);
  sent.Fill(11);
  AlignedBlock received(3000);
  ASSERT_EQ(write(writing.get(), sent.span().data(), 1000), 1000);
  ASSERT_TRUE((*ring)
                  ->Submit({.kind = IoRequest::Kind::kRead,
                            .fd = reading.get(),
                            .offset = 0,
                            .buffer = received.span(),
                            .tag = 1})
                  .ok());
  for (int64_t part = 1; part < 3; ++part) {
    int unread = 1;  // until the ring has taken the last part, so that the next completes by itself
    while (unread != 0) {
      ASSERT_TRUE(Transfer(**ring, sink,
                           {.kind = IoRequest::Kind::kRead,
                            .fd = reading.get(),
                            .offset = 0,
                            .buffer = {},
                            .tag = 2})
                      .ok());
      ASSERT_EQ(ioctl(reading.get(), FIONREAD, &unread), 0);
    }
    ASSERT_EQ(write(writing.get(), sent.part(part * 1000, 1000).data(), 1000), 1000);
  }
  const absl::Status status = sink.Take(1);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(std::ranges::equal(received.span(), sent.span()));
  EXPECT_EQ((*ring)->counters().resubmits, 2);
  EXPECT_EQ((*ring)->counters().bytes_read, 3000);
}

// An empty pipe without blocking answers EAGAIN until something is written.
TEST(IoRingTest, RefusalsAreRetriedAndBounded) {
  WaitingSink sink;
  auto ring = IoRing::Create({.sink = &sink, .queue_depth = 2, .pending_max = 4});
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const FileDescriptor reading(ends[0]);
  const FileDescriptor writing(ends[1]);
  AlignedBlock received(100);
  const IoRequest request = {.kind = IoRequest::Kind::kRead,
                             .fd = reading.get(),
                             .offset = 0,
                             .buffer = received.span(),
                             .tag = 1};
  const IoRequest empty = {
      .kind = IoRequest::Kind::kRead, .fd = reading.get(), .offset = 0, .buffer = {}, .tag = 2};
  ASSERT_TRUE((*ring)->Submit(request).ok());
  // Each delivered completion publishes the counters.
  while ((*ring)->counters().retries < 3) ASSERT_TRUE(Transfer(**ring, sink, empty).ok());
  AlignedBlock sent(100);
  sent.Fill(2);
  ASSERT_EQ(write(writing.get(), sent.span().data(), 100), 100);
  const absl::Status retried = sink.Take(1);
  ASSERT_TRUE(retried.ok()) << retried.ToString();
  EXPECT_TRUE(std::ranges::equal(received.span(), sent.span()));

  const int64_t before = (*ring)->counters().retries;
  const absl::Status refused = Transfer(**ring, sink, request);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused.ToString();
  EXPECT_EQ((*ring)->counters().retries - before, kRetriesMax);
}

TEST(IoRingTest, ReportsItsFlags) {
  WaitingSink sink;
  auto ring = IoRing::Create({.sink = &sink, .queue_depth = 1, .pending_max = 1});
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  EXPECT_FALSE((*ring)->flags().empty());
  EXPECT_EQ((*ring)->name(), "io_uring");
}

}  // namespace
}  // namespace gantry
