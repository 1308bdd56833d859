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
#include "nvme/testing_support.h"

namespace gantry {
namespace {

// A pipe gives what it holds, so a read of more is truly short in the completion and must be
// resumed in the right place, several times.
TEST(IoRingTest, ShortReadsOfAPipeAreResumed) {
  WaitingSink sink;
  auto ring = IoRing::Create({.sink = &sink, .queue_depth = 2});
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor reading(ends[0]);
  const FileDescriptor writing(ends[1]);
  AlignedBlock sent(3000);
  sent.Fill(11);
  AlignedBlock received(3000);
  ASSERT_EQ(write(writing.get(), sent.span().data(), 1000), 1000);
  (*ring)->Submit({.kind = IoRequest::Kind::kRead,
                   .fd = reading.get(),
                   .offset = 0,
                   .buffer = received.span(),
                   .tag = 1});
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

// Answers each empty request (tag 1) with the next, until the real one (tag 0) is done.
class BusySink final : public IoSink {
 public:
  static constexpr int kEmptyMax = 100'000;
  void OnIoComplete(uint64_t tag, absl::Status status) override {
    EXPECT_TRUE(status.ok()) << status.ToString();
    if (tag == 0) done = true;
    if (tag == 1 && !done && ++empty_requests < kEmptyMax) {
      ring->Submit(next);
    }
  }
  // Written before the first request, then used by the ring's thread until it is joined.
  IoRing* ring = nullptr;
  IoRequest next{};
  bool done = false;
  int empty_requests = 0;
};

TEST(IoRingTest, EmptyRequestsDoNotStarveOthers) {
  BusySink sink;
  auto ring = IoRing::Create({.sink = &sink, .queue_depth = 2});
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  const FileDescriptor file(open("/proc/version", O_RDONLY | O_CLOEXEC));
  AlignedBlock block(16);
  IoRequest request = {
      .kind = IoRequest::Kind::kRead, .fd = file.get(), .offset = 0, .buffer = {}, .tag = 1};
  sink.ring = ring->get();
  sink.next = request;
  (*ring)->Submit(request);
  request.buffer = block.span();
  request.tag = 0;
  (*ring)->Submit(request);
  ring->reset();
  EXPECT_TRUE(sink.done);
  EXPECT_LT(sink.empty_requests, BusySink::kEmptyMax);
}

TEST(IoRingTest, ReportsItsFlags) {
  WaitingSink sink;
  auto ring = IoRing::Create({.sink = &sink, .queue_depth = 1});
  ASSERT_TRUE(ring.ok()) << ring.status().ToString();
  EXPECT_FALSE((*ring)->setup().flags.empty());
  EXPECT_EQ((*ring)->name(), "io_uring");
}

}  // namespace
}  // namespace gantry
