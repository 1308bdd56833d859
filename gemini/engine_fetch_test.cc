// How often the engine fetches: with the policy auto and nothing fetched ahead, a cyclic sequence
// of reads costs exactly the optimum, which an exhaustive search over all residencies finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"

namespace gantry {
namespace {

constexpr int64_t kChunk = kChunkGranularityElements;

// The least number of fetches that serve `reads` (blocks below 16) in order with `slots` slots,
// starting empty: a shortest path over all sets of resident blocks.
int64_t LeastFetches(const std::vector<int>& reads, int slots) {
  constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max() / 2;
  std::vector<int64_t> cost(size_t{1} << 16, kInfinite);
  cost[0] = 0;
  for (const int block : reads) {
    std::vector<int64_t> next(cost.size(), kInfinite);
    const auto bit = uint32_t{1} << block;
    for (uint32_t set = 0; set < cost.size(); ++set) {
      if (cost[set] == kInfinite) continue;
      if ((set & bit) != 0) {
        next[set] = std::min(next[set], cost[set]);
        continue;
      }
      if (std::popcount(set) < slots) {
        next[set | bit] = std::min(next[set | bit], cost[set] + 1);
        continue;
      }
      for (uint32_t rest = set; rest != 0; rest &= rest - 1) {
        const uint32_t victim = rest & (~rest + 1);
        int64_t& entry = next[(set & ~victim) | bit];
        entry = std::min(entry, cost[set] + 1);
      }
    }
    cost = std::move(next);
  }
  return *std::min_element(cost.begin(), cost.end());
}

TEST(LeastFetchesTest, KnowsTheTextbookExample) {
  // The sequence of the FIFO anomaly.
  const std::vector<int> reads = {1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5};
  EXPECT_EQ(LeastFetches(reads, 3), 7);
  EXPECT_EQ(LeastFetches(reads, 4), 6);
  EXPECT_EQ(LeastFetches(reads, 5), 5);
}

class EngineFetchTest : public ::testing::TestWithParam<DeviceTopology> {
 protected:
  static constexpr int kBlocks = 7;

  struct Model {
    Trainability trainability = Trainability::kFrozen;
    int64_t look_ahead = 0;
  };

  void Make(std::string_view policy, int64_t device_slots, const Model& model) {
    engine_.reset();
    auto team = ThreadTeam::Create({.threads = 1});
    ASSERT_THAT(team, IsOk());
    team_ = *std::move(team);
    auto device = CreateHostDevice({.topology = GetParam(), .clock = &clock_});
    ASSERT_THAT(device, IsOk());
    device_ = *std::move(device);
    auto engine = Engine::Create({.device = device_.get(),
                                  .team = team_.get(),
                                  .clock = &clock_,
                                  .logger = &logger_,
                                  .files = &files_,
                                  .device_memory = Bytes(2 * kChunk * device_slots),
                                  .host_memory = Bytes(2 * kChunk * 64),
                                  .spill_directories = {::testing::TempDir()},
                                  .policy = std::string(policy),
                                  .static_fractions = {},
                                  .look_ahead = model.look_ahead,
                                  .chunk_elements = kChunk});
    ASSERT_THAT(engine, IsOk());
    engine_ = *std::move(engine);
    tensors_.clear();
    for (int i = 0; i < kBlocks; ++i) {
      const auto id = engine_->Register({.name = StrCat("t", i),
                                         .shape = {kChunk},
                                         .dtype = DType::kBF16,
                                         .trainability = model.trainability},
                                        {});
      ASSERT_THAT(id, IsOk());
      tensors_.push_back(*id);
    }
  }

  void Step(const std::vector<int>& reads) {
    ASSERT_THAT(engine_->BeginStep({.trace_key = "reads", .optimizer = {}}), IsOk());
    ASSERT_THAT(engine_->BeginMicroBatch(), IsOk());
    for (const int block : reads) {
      const ParameterUse use{tensors_[static_cast<size_t>(block)], ParameterAccess::kRead};
      ASSERT_THAT(engine_->Acquire({&use, 1}, "read", Phase::kForward), IsOk());
    }
    ASSERT_THAT(engine_->EndStep(), IsOk());
  }

  // Blocks that came to the device. A unified device makes the zeros of a new block itself.
  int64_t Fetches() const {
    const auto lane = GetParam() == DeviceTopology::kUnified ? TransferLane::kFileRead
                                                             : TransferLane::kHostToDevice;
    return engine_->statistics().lanes[static_cast<size_t>(lane)].transfers +
           (GetParam() == DeviceTopology::kUnified ? kBlocks : 0);
  }

  MonotonicClock clock_;
  MemoryLogger logger_;
  PosixFileCalls files_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::vector<TensorId> tensors_;
};

TEST_P(EngineFetchTest, AutoFetchesAsRarelyAsPossible) {
  int64_t lru_total = 0;
  int64_t auto_total = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    const Random random({.seed = seed, .stream = 0});
    std::vector<int> reads;
    for (int i = 0; i < kBlocks; ++i) reads.push_back(i);  // each at least once
    for (uint64_t i = 0; i < 10; ++i) reads.push_back(static_cast<int>(random.Below(kBlocks, i)));
    const int64_t slots = 2 + random.Below(4, 100);
    for (const std::string_view policy : {"auto", "lru"}) {
      Make(policy, slots, {});
      Step(reads);  // dry: the plan is known from the first step on
      ASSERT_THAT(engine_->Seal(), IsOk());
      std::vector<int> all;
      for (int step = 0; step < 5; ++step) {
        Step(reads);
        all.insert(all.end(), reads.begin(), reads.end());
        if (policy == "lru") continue;
        EXPECT_EQ(Fetches(), LeastFetches(all, static_cast<int>(slots))) << "after step " << step;
      }
      (policy == "lru" ? lru_total : auto_total) += Fetches();
    }
  }
  EXPECT_LT(auto_total, lru_total);
}

// A training step over all trainable tensors: forward in order, backward in reverse.
absl::Status TrainStep(Engine* engine, const std::vector<TensorId>& tensors, int64_t step) {
  GANTRY_RETURN_IF_ERROR(engine->BeginStep(
      {.optimizer = OptimizerStep{.learning_rate = 1e-2, .step = step, .max_gradient_norm = 1.0}}));
  GANTRY_RETURN_IF_ERROR(engine->BeginMicroBatch());
  for (const TensorId tensor : tensors) {
    const ParameterUse use{tensor, ParameterAccess::kRead};
    GANTRY_RETURN_IF_ERROR(engine->Acquire({&use, 1}, "forward", Phase::kForward).status());
    GANTRY_RETURN_IF_ERROR(engine->Drain());
  }
  for (size_t i = tensors.size(); i-- > 0;) {
    const ParameterUse use{tensors[i], ParameterAccess::kReadAndGradient};
    {
      GANTRY_ASSIGN_OR_RETURN(const Lease lease,
                              engine->Acquire({&use, 1}, "backward", Phase::kBackward));
      if (!engine->dry_run()) {
        std::memset(lease[0].gradient, 0,
                    static_cast<size_t>(lease[0].elements * SizeOf(lease[0].gradient_dtype)));
      }
    }
    engine->GradientReady(tensors[i]);
    GANTRY_RETURN_IF_ERROR(engine->Drain());
  }
  GANTRY_RETURN_IF_ERROR(engine->EndStep().status());
  return engine->Drain();
}

// With room for everything, and time for every transfer, no lease of a later step ever waits:
// neither where all stays on the device, nor where each step's parameters come up from the host.
TEST_P(EngineFetchTest, NoLeaseWaitsWhereThereIsRoomAndTime) {
  for (const std::string_view policy : {"auto", "device"}) {
    SCOPED_TRACE(policy);
    Make(policy, 100, {.trainability = Trainability::kTrainable, .look_ahead = 2});
    ASSERT_THAT(TrainStep(engine_.get(), tensors_, 1), IsOk());  // dry
    ASSERT_THAT(engine_->Seal(), IsOk());
    for (int64_t step = 1; step <= 8; ++step) {
      engine_->ResetStatistics();
      ASSERT_THAT(TrainStep(engine_.get(), tensors_, step), IsOk());
      if (step <= 2) continue;
      EXPECT_EQ(engine_->statistics().leases, 2 * kBlocks);
      EXPECT_EQ(engine_->statistics().leases_off_plan, 0);
      EXPECT_EQ(engine_->statistics().leases_waited, 0) << "in step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Topologies, EngineFetchTest,
                         ::testing::Values(DeviceTopology::kUnified, DeviceTopology::kDiscrete),
                         [](const auto& info) {
                           return info.param == DeviceTopology::kUnified ? "unified" : "discrete";
                         });

}  // namespace
}  // namespace gantry
