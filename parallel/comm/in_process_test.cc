#include "parallel/comm/in_process.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/random.h"
#include "base/strings.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/testing/run_ranks.h"

namespace gantry {
namespace {

// Values of an array of a type, of which every rank has its own.
struct Array {
  DType dtype;
  std::vector<std::byte> bytes;
  Array(DType type, int64_t count)
      : dtype(type), bytes(static_cast<size_t>(count * SizeOf(type)), std::byte{0x5a}) {}
  float At(int64_t i) const { return LoadElement(dtype, bytes.data(), i); }
  void Set(int64_t i, float value) { StoreElement(dtype, bytes.data(), i, value); }
  int64_t count() const { return static_cast<int64_t>(bytes.size()) / SizeOf(dtype); }
};

Array RandomArray(DType dtype, int64_t count, uint64_t seed) {
  Array array(dtype, count);
  const Random random({.seed = seed, .stream = 0});
  for (int64_t i = 0; i < count; ++i) {
    array.Set(i, static_cast<float>(random.Uniform(static_cast<uint64_t>(i)) * 8.0 - 4.0));
  }
  return array;
}

float Round(DType dtype, float value) {
  Array one(dtype, 1);
  one.Set(0, value);
  return one.At(0);
}

void ExpectAllOk(const std::vector<absl::Status>& results) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_TRUE(results[rank].ok()) << "rank " << rank << ": " << results[rank];
  }
}

struct Case {
  int size;
  int64_t count;
  DType dtype;
};

class InProcessTest : public ::testing::TestWithParam<Case> {
 protected:
  // The sum over ranks in their order.
  float Sum(int64_t i, int64_t count) const {
    float sum = 0.0F;
    for (int rank = 0; rank < GetParam().size; ++rank) {
      const float value = RandomArray(GetParam().dtype, count, static_cast<uint64_t>(rank)).At(i);
      sum = rank == 0 ? value : sum + value;
    }
    return Round(GetParam().dtype, sum);
  }
};

TEST_P(InProcessTest, AllReduceAddsInTheOrderOfRanks) {
  const auto& [size, count, dtype] = GetParam();
  for (const bool in_place : {false, true}) {
    ExpectAllOk(RunRanks(size, [&](Communicator& ranks) {
      Array input = RandomArray(dtype, count, static_cast<uint64_t>(ranks.rank()));
      Array other(dtype, count);
      Array& output = in_place ? input : other;
      const absl::Status status = ranks.AllReduce({.input = input.bytes.data(),
                                                   .output = output.bytes.data(),
                                                   .count = count,
                                                   .dtype = dtype},
                                                  Reduction::kSum);
      for (int64_t i = 0; i < count && ranks.rank() == size - 1; i += 97) {
        EXPECT_EQ(output.At(i), Sum(i, count)) << i;
      }
      return status;
    }));
  }
}

TEST_P(InProcessTest, ReduceScatterThenAllGatherIsAllReduce) {
  const auto& [size, count, dtype] = GetParam();
  ExpectAllOk(RunRanks(size, [&, size = size, count = count, dtype = dtype](Communicator& ranks) {
    Array values = RandomArray(dtype, size * count, static_cast<uint64_t>(ranks.rank()));
    Array expected(dtype, size * count);
    absl::Status status = ranks.AllReduce({.input = values.bytes.data(),
                                           .output = expected.bytes.data(),
                                           .count = size * count,
                                           .dtype = dtype},
                                          Reduction::kSum);
    // Both in place: this rank's part of the whole.
    std::byte* part = values.bytes.data() + ranks.rank() * count * SizeOf(dtype);
    status.Update(ranks.ReduceScatter(
        {.input = values.bytes.data(), .output = part, .count = count, .dtype = dtype},
        Reduction::kSum));
    status.Update(ranks.AllGather(
        {.input = part, .output = values.bytes.data(), .count = count, .dtype = dtype}));
    EXPECT_EQ(values.bytes, expected.bytes) << "rank " << ranks.rank();
    return status;
  }));
}

TEST_P(InProcessTest, BroadcastComesFromTheRoot) {
  const auto& [size, count, dtype] = GetParam();
  const int root = size - 1;
  ExpectAllOk(RunRanks(size, [&, count = count, dtype = dtype](Communicator& ranks) {
    Array values = RandomArray(dtype, count, static_cast<uint64_t>(ranks.rank()));
    const absl::Status status = ranks.Broadcast(values.bytes.data(), count, dtype, root);
    EXPECT_EQ(values.bytes, RandomArray(dtype, count, static_cast<uint64_t>(root)).bytes);
    return status;
  }));
}

TEST_P(InProcessTest, AllToAllTransposes) {
  const auto& [size, count, dtype] = GetParam();
  ExpectAllOk(RunRanks(size, [&, size = size, count = count, dtype = dtype](Communicator& ranks) {
    const Array input = RandomArray(dtype, size * count, static_cast<uint64_t>(ranks.rank()));
    Array output(dtype, size * count);
    const absl::Status status = ranks.AllToAll({.input = input.bytes.data(),
                                                .output = output.bytes.data(),
                                                .count = count,
                                                .dtype = dtype});
    for (int peer = 0; peer < size; ++peer) {
      const Array theirs = RandomArray(dtype, size * count, static_cast<uint64_t>(peer));
      for (int64_t i = 0; i < count; i += 31) {
        EXPECT_EQ(output.At(peer * count + i), theirs.At(ranks.rank() * count + i));
      }
    }
    return status;
  }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, InProcessTest,
                         ::testing::Values(Case{1, 0, DType::kF32}, Case{1, 5, DType::kBF16},
                                           Case{2, 1, DType::kF32}, Case{3, 4097, DType::kBF16},
                                           Case{4, 2048, DType::kF16}, Case{7, 33, DType::kF32},
                                           Case{16, 129, DType::kBF16}),
                         [](const auto& info) {
                           return StrCat("Ranks", info.param.size, "Count", info.param.count,
                                         info.param.dtype);
                         });

TEST(InProcessRanksTest, SixteenBitSumsRoundOnce) {
  // 256 + eight times 1 in bf16, whose neighbours of 256 are 2 apart: rounding after every addition
  // would stay at 256.
  ExpectAllOk(RunRanks(9, [](Communicator& ranks) {
    Array value(DType::kBF16, 1);
    value.Set(0, ranks.rank() == 0 ? 256.0F : 1.0F);
    const absl::Status status = ranks.AllReduce({.input = value.bytes.data(),
                                                 .output = value.bytes.data(),
                                                 .count = 1,
                                                 .dtype = DType::kBF16},
                                                Reduction::kSum);
    EXPECT_EQ(value.At(0), 264.0F);
    return status;
  }));
}

TEST(InProcessRanksTest, MaximumAndMinimumKeepNan) {
  for (const Reduction reduction : {Reduction::kMax, Reduction::kMin}) {
    ExpectAllOk(RunRanks(3, [&](Communicator& ranks) {
      std::vector<float> values = {static_cast<float>(ranks.rank()), 1.0F};
      if (ranks.rank() == 1) values[1] = std::numeric_limits<float>::quiet_NaN();
      auto* bytes = reinterpret_cast<std::byte*>(values.data());
      const absl::Status status =
          ranks.AllReduce({.input = bytes, .output = bytes, .count = 2}, reduction);
      EXPECT_EQ(values[0], reduction == Reduction::kMax ? 2.0F : 0.0F);
      EXPECT_TRUE(std::isnan(values[1]));
      return status;
    }));
  }
}

TEST(InProcessRanksTest, ExchangesOfUnequalSizesAndNothing) {
  // Rank r sends r + peer elements to each other rank; to itself too.
  ExpectAllOk(RunRanks(4, [](Communicator& ranks) {
    std::vector<std::vector<float>> sent(4);
    std::vector<std::vector<float>> received(4);
    std::vector<OutgoingMessage> outgoing;
    std::vector<IncomingMessage> incoming;
    for (int peer = 3; peer >= 0; --peer) {
      const auto p = static_cast<size_t>(peer);
      const int64_t count = ranks.rank() + peer;
      sent[p].assign(static_cast<size_t>(count), static_cast<float>(10 * ranks.rank() + peer));
      received[p].resize(static_cast<size_t>(count));
      outgoing.push_back({peer, reinterpret_cast<const std::byte*>(sent[p].data()), count});
      incoming.push_back({peer, reinterpret_cast<std::byte*>(received[p].data()), count});
    }
    const absl::Status status = ranks.Exchange(outgoing, incoming, DType::kF32);
    for (int peer = 0; peer < 4; ++peer) {
      for (const float value : received[static_cast<size_t>(peer)]) {
        EXPECT_EQ(value, static_cast<float>(10 * peer + ranks.rank()));
      }
    }
    return status;
  }));
}

TEST(InProcessRanksTest, MessagesBetweenTwoRanksPairUpInOrder) {
  ExpectAllOk(RunRanks(2, [](Communicator& ranks) {
    absl::Status status;
    for (int i = 0; i < 100; ++i) {
      auto value = static_cast<float>(i);
      auto* bytes = reinterpret_cast<std::byte*>(&value);
      if (ranks.rank() == 0) {
        status.Update(ranks.Send({1, bytes, 1}, DType::kF32));
      } else {
        value = -1.0F;
        status.Update(ranks.Receive({0, bytes, 1}, DType::kF32));
        EXPECT_EQ(value, static_cast<float>(i));
      }
    }
    return status;
  }));
}

TEST(InProcessRanksTest, SplitOrdersByKeyAndLeavesOutNegativeColors) {
  ExpectAllOk(RunRanks(6, [](Communicator& ranks) {
    const int color = ranks.rank() == 5 ? -1 : ranks.rank() % 2;
    absl::StatusOr<std::unique_ptr<Communicator>> part = ranks.Split(color, -ranks.rank(), "half");
    EXPECT_TRUE(part.ok()) << part.status();
    if (!part.ok()) return part.status();
    EXPECT_EQ(*part == nullptr, ranks.rank() == 5);
    if (*part == nullptr) return absl::OkStatus();
    EXPECT_EQ((*part)->size(), color == 0 ? 3 : 2);
    EXPECT_EQ((*part)->rank(), (color == 0 ? 4 - ranks.rank() : 3 - ranks.rank()) / 2);
    return (*part)->Barrier();
  }));
}

void ExpectAll(const std::vector<absl::Status>& results, absl::StatusCode code,
               const std::string& text) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].code(), code) << "rank " << rank << ": " << results[rank];
    EXPECT_NE(std::string(results[rank].message()).find(text), std::string::npos)
        << "rank " << rank << ": " << results[rank];
  }
}

TEST(InProcessRanksTest, RanksThatDoNotAgreeAllHear) {
  ExpectAll(RunRanks(3,
                     [](Communicator& ranks) {
                       std::vector<float> values(8);
                       auto* bytes = reinterpret_cast<std::byte*>(values.data());
                       const CollectiveBuffers buffers{
                           .input = bytes, .output = bytes, .count = ranks.rank() == 2 ? 7 : 8};
                       return ranks.AllReduce(buffers, Reduction::kSum);
                     }),
            absl::StatusCode::kInvalidArgument,
            "operation 0 of group 'world': rank 0 called AllReduce (sum) of 8 x f32, rank 2 called "
            "AllReduce (sum) of 7 x f32");
  ExpectAll(RunRanks(2,
                     [](Communicator& ranks) {
                       float value = 0.0F;
                       auto* bytes = reinterpret_cast<std::byte*>(&value);
                       if (ranks.rank() == 0) return ranks.Send({1, bytes, 1}, DType::kF32);
                       return ranks.Receive({0, bytes, 1}, DType::kBF16);
                     }),
            absl::StatusCode::kInvalidArgument, "rank 0 sends 1 x f32, rank 1 receives 1 x bf16");
}

TEST(InProcessRanksTest, AWaitWithoutEndIsAnErrorThatSaysWhoWaitsForWhat) {
  ExpectAll(
      RunRanks(2,
               [](Communicator& ranks) {
                 float value = 0.0F;
                 auto* bytes = reinterpret_cast<std::byte*>(&value);
                 if (ranks.rank() == 0) return ranks.Barrier();
                 return ranks.Receive({0, bytes, 1}, DType::kF32);
               }),
      absl::StatusCode::kUnavailable,
      "no rank can go on: rank 0 waits in Barrier, operation 0 of 'world'; rank 1 waits for 1 "
      "messages in 'world'");
}

TEST(InProcessRanksTest, ARankThatLeavesEndsTheWaitOfTheOthers) {
  const auto results = RunRanks(3, [](Communicator& ranks) {
    return ranks.rank() == 1 ? absl::OkStatus() : ranks.Barrier();
  });
  EXPECT_TRUE(results[1].ok());
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(results[rank].code(), absl::StatusCode::kUnavailable) << results[rank];
    EXPECT_NE(std::string(results[rank].message()).find("rank 1 left"), std::string::npos)
        << results[rank];
  }
}

TEST(InProcessRanksTest, AbortEndsWaitsAndStays) {
  std::vector<std::unique_ptr<Communicator>> ranks = InProcessRanks(2);
  absl::Status waited;
  // thread: the rank that waits.
  std::thread waiting([&] { waited = ranks[0]->Barrier(); });
  ranks[1]->Abort("the disk is full");
  waiting.join();
  EXPECT_EQ(waited.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(waited.message(), "group 'world' was aborted: the disk is full");
  EXPECT_EQ(ranks[1]->Barrier().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(ranks[1]->Synchronize().code(), absl::StatusCode::kAborted);
}

TEST(InProcessRanksTest, ManyGroupsAtOnce) {
  // Rows and columns of a 4 x 4 grid, used in turns that differ from rank to rank in nothing but
  // timing.
  ExpectAllOk(RunRanks(16, [](Communicator& world) {
    absl::StatusOr<std::unique_ptr<Communicator>> row = world.Split(world.rank() / 4, 0, "row");
    absl::StatusOr<std::unique_ptr<Communicator>> column =
        world.Split(world.rank() % 4, 0, "column");
    if (!row.ok()) return row.status();
    if (!column.ok()) return column.status();
    absl::Status status;
    float value = static_cast<float>(world.rank());
    auto* bytes = reinterpret_cast<std::byte*>(&value);
    const CollectiveBuffers buffers{.input = bytes, .output = bytes, .count = 1};
    for (int i = 0; i < 20; ++i) {
      value = static_cast<float>(world.rank());
      status.Update((*row)->AllReduce(buffers, Reduction::kSum));
      status.Update((*column)->AllReduce(buffers, Reduction::kSum));
      EXPECT_EQ(value, 120.0F);
    }
    return status;
  }));
}

TEST(InProcessRanksDeathTest, ARootOutsideTheGroup) {
  std::vector<std::unique_ptr<Communicator>> ranks = InProcessRanks(1);
  EXPECT_DEATH(ranks[0]->Broadcast(nullptr, 0, DType::kF32, 1).IgnoreError(), "1 of 1");
}

}  // namespace
}  // namespace gantry
