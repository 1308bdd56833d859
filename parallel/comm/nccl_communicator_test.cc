#include "parallel/comm/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/nccl_calls.h"
#include "parallel/comm/testing/emulated_nccl.h"
#include "parallel/comm/testing/run_ranks.h"

namespace gantry {
namespace {

// One rank with its library, stream and communicator.
struct Rank {
  explicit Rank(EmulatedNcclWorld* world) : calls(world) {}

  NcclOptions Options(Clock* clock) {
    return {.calls = &calls,
            .clock = clock,
            .stream = &stream,
            .stream_done = [this]() -> absl::StatusOr<bool> { return stream.Idle(); },
            .scratch = scratch.data()};
  }

  EmulatedNccl calls;
  EmulatedStream stream;
  std::array<std::byte, 4> scratch{};
};

using RankBody = std::function<absl::Status(Communicator& nccl, Communicator& oracle)>;

// Every rank with a communicator over emulated NCCL beside one of this process.
std::vector<absl::Status> RunNccl(int size, const RankBody& body) {
  EmulatedNcclWorld world;
  MonotonicClock clock;
  return RunRanks(size, [&](Communicator& oracle) -> absl::Status {
    Rank rank(&world);
    GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> nccl,
                            CreateNcclCommunicator(oracle, rank.Options(&clock)));
    GANTRY_RETURN_IF_ERROR(body(*nccl, oracle));
    return oracle.Barrier();
  });
}

void ExpectAllOk(const std::vector<absl::Status>& results) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_TRUE(results[rank].ok()) << "rank " << rank << ": " << results[rank];
  }
}

std::vector<float> Values(int64_t count, int rank) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 13) * 0.25F + static_cast<float>(rank);
  }
  return values;
}
const std::byte* BytesOf(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}
std::byte* BytesOf(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

TEST(NcclCommunicatorTest, EveryOperationGivesWhatTheOracleGives) {
  using Call = std::function<absl::Status(Communicator&, const std::vector<float>& in,
                                          std::vector<float>& out)>;
  const int64_t count = 37;
  const std::vector<Call> operations = {
      [&](Communicator& ranks, const auto& in, auto& out) {
        return ranks.AllReduce({BytesOf(in), BytesOf(out), count}, Reduction::kSum);
      },
      [&](Communicator& ranks, const auto& in, auto& out) {
        return ranks.AllReduce({BytesOf(in), BytesOf(out), count}, Reduction::kMax);
      },
      [&](Communicator& ranks, const auto& in, auto& out) {
        return ranks.ReduceScatter({BytesOf(in), BytesOf(out), count}, Reduction::kMin);
      },
      [&](Communicator& ranks, const auto& in, auto& out) {
        return ranks.AllGather({BytesOf(in), BytesOf(out), count});
      },
      [&](Communicator& ranks, const auto& in, auto& out) {
        out = in;
        return ranks.Broadcast(BytesOf(out), count, DType::kF32, 2);
      },
      [&](Communicator& ranks, const auto& in, auto& out) {
        return ranks.AllToAll({BytesOf(in), BytesOf(out), count});
      },
      [](Communicator& ranks, const auto&, auto&) { return ranks.Barrier(); },
  };
  ExpectAllOk(RunNccl(3, [&](Communicator& nccl, Communicator& oracle) {
    EXPECT_EQ(nccl.size(), 3);
    EXPECT_EQ(nccl.rank(), oracle.rank());
    EXPECT_EQ(nccl.name(), "world");
    for (size_t i = 0; i < operations.size(); ++i) {
      const std::vector<float> in = Values(3 * count, oracle.rank());
      std::vector<float> expected(in.size());
      std::vector<float> out(in.size());
      GANTRY_RETURN_IF_ERROR(operations[i](oracle, in, expected));
      GANTRY_RETURN_IF_ERROR(operations[i](nccl, in, out));
      GANTRY_RETURN_IF_ERROR(nccl.Synchronize());
      EXPECT_EQ(out, expected) << "operation " << i << " on rank " << oracle.rank();
    }
    return absl::OkStatus();
  }));
}

TEST(NcclCommunicatorTest, SplitGroupsWork) {
  ExpectAllOk(RunNccl(5, [&](Communicator& nccl, Communicator& oracle) -> absl::Status {
    const int color = oracle.rank() == 4 ? -1 : oracle.rank() % 2;
    GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> part,
                            nccl.Split(color, -oracle.rank(), "half"));
    EXPECT_EQ(part == nullptr, oracle.rank() == 4);
    if (part == nullptr) return absl::OkStatus();
    EXPECT_EQ(part->size(), 2);
    EXPECT_EQ(part->rank(), oracle.rank() < 2 ? 1 : 0);
    std::vector<float> sum = {static_cast<float>(oracle.rank())};
    GANTRY_RETURN_IF_ERROR(part->AllReduce({BytesOf(sum), BytesOf(sum), 1}, Reduction::kSum));
    GANTRY_RETURN_IF_ERROR(part->Synchronize());
    EXPECT_EQ(sum[0], color == 0 ? 2.0F : 4.0F);
    return absl::OkStatus();
  }));
}

// Time that the test moves on, over real time.
class ShiftedClock final : public Clock {
 public:
  Nanoseconds Now() const override { return real_.Now() + shift_; }
  void SleepUntil(Nanoseconds deadline) override { real_.SleepUntil(deadline - shift_); }
  void Advance(Nanoseconds duration) { shift_ += duration; }

 private:
  MonotonicClock real_;
  Nanoseconds shift_ = 0;
};

TEST(NcclCommunicatorTest, APeerThatDoesNotComeEndsTheWaitWithTheOperationsName) {
  EmulatedNcclWorld world;
  const auto results = RunRanks(2, [&](Communicator& oracle) -> absl::Status {
    Rank rank(&world);
    ShiftedClock clock;
    NcclOptions options = rank.Options(&clock);
    // Whoever waits for the stream finds that much time has passed.
    options.stream_done = [&]() -> absl::StatusOr<bool> {
      clock.Advance(options.timeout);
      return rank.stream.Idle();
    };
    GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> nccl,
                            CreateNcclCommunicator(oracle, options));
    absl::Status status;
    if (oracle.rank() == 0) {
      std::vector<float> sum(8);
      GANTRY_RETURN_IF_ERROR(nccl->AllReduce({BytesOf(sum), BytesOf(sum), 8}, Reduction::kSum));
      status = nccl->Synchronize();
      EXPECT_EQ(nccl->Barrier(), status);
    }
    GANTRY_RETURN_IF_ERROR(oracle.Barrier());
    return status;
  });
  EXPECT_EQ(results[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(results[0].message(),
            "group 'world', rank 0 of 2: up to operation 0, AllReduce (sum) of 8 x f32 did not "
            "finish within 600 s: a rank did not come, or died; the group was aborted");
  EXPECT_TRUE(results[1].ok()) << results[1];
}

TEST(NcclCommunicatorTest, AbortEndsWhatWaits) {
  EmulatedNcclWorld world;
  MonotonicClock clock;
  const auto results = RunRanks(2, [&](Communicator& oracle) -> absl::Status {
    Rank rank(&world);
    GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> nccl,
                            CreateNcclCommunicator(oracle, rank.Options(&clock)));
    absl::Status status;
    if (oracle.rank() == 0) {
      std::vector<float> sum(8);
      GANTRY_RETURN_IF_ERROR(nccl->AllReduce({BytesOf(sum), BytesOf(sum), 8}, Reduction::kSum));
      // thread: as a watchdog would.
      std::thread watchdog([&] { nccl->Abort("the test is over"); });
      status = nccl->Synchronize();
      watchdog.join();
    }
    GANTRY_RETURN_IF_ERROR(oracle.Barrier());
    return status;
  });
  EXPECT_EQ(results[0].message(), "group 'world' was aborted: the test is over");
  EXPECT_EQ(results[0].code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(results[1].ok()) << results[1];
}

TEST(NcclCommunicatorTest, StartingAloneEndsAtTheDeadline) {
  EmulatedNcclWorld world;
  const auto results = RunRanks(2, [&](Communicator& oracle) -> absl::Status {
    Rank rank(&world);
    VirtualClock clock;
    NcclOptions options = rank.Options(&clock);
    options.timeout = 2'000'000'000;
    if (oracle.rank() == 0) return CreateNcclCommunicator(oracle, options).status();
    // Takes part in the meeting on the host, then never starts NCCL.
    float made = 0.0F;
    NcclUniqueId id{};
    GANTRY_RETURN_IF_ERROR(
        oracle.Broadcast(reinterpret_cast<std::byte*>(&made), 1, DType::kF32, 0));
    return oracle.Broadcast(reinterpret_cast<std::byte*>(id.data()), 32, DType::kF32, 0);
  });
  EXPECT_EQ(results[0].code(), absl::StatusCode::kDeadlineExceeded) << results[0];
  EXPECT_EQ(results[0].message(),
            "group 'world', rank 0 of 2: starting did not finish within 2 s: a rank did not come, "
            "or died; the group was aborted");
}

TEST(NcclCommunicatorTest, AFailureOfAnyCallIsAnErrorWithItsName) {
  // Alone, so that no peer waits; all calls up to the last.
  const auto run = [](int64_t fail_call, int64_t* calls) {
    EmulatedNcclWorld world;
    MonotonicClock clock;
    return RunRanks(1, [&](Communicator& oracle) -> absl::Status {
      Rank rank(&world);
      rank.calls.FailCall(fail_call);
      absl::Status status = [&]() -> absl::Status {
        GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> nccl,
                                CreateNcclCommunicator(oracle, rank.Options(&clock)));
        std::vector<float> values = {3.0F};
        const CollectiveBuffers buffers{BytesOf(values), BytesOf(values), 1};
        GANTRY_RETURN_IF_ERROR(nccl->AllReduce(buffers, Reduction::kSum));
        GANTRY_RETURN_IF_ERROR(nccl->Synchronize());
        const OutgoingMessage outgoing{0, BytesOf(values), 1};
        std::vector<float> received(1);
        const IncomingMessage incoming{0, BytesOf(received), 1};
        GANTRY_RETURN_IF_ERROR(nccl->Exchange({&outgoing, 1}, {&incoming, 1}, DType::kF32));
        GANTRY_RETURN_IF_ERROR(nccl->Synchronize());
        EXPECT_EQ(received[0], 3.0F);
        return absl::OkStatus();
      }();
      if (calls != nullptr) *calls = rank.calls.calls();
      return status;
    })[0];
  };
  int64_t calls = 0;
  ASSERT_TRUE(run(-1, &calls).ok());
  ASSERT_GT(calls, 10);
  // Waiting polls, so the number of calls varies; the last of them is CommDestroy, whose failure
  // nobody can act on.
  for (int64_t call = 0; call < 9; ++call) {
    const absl::Status status = run(call, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << "call " << call << ": " << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("group 'world'"));
  }
}

}  // namespace
}  // namespace gantry
