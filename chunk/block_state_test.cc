// Every pair of states: legal ones are made, illegal ones must abort with the history.
#include "chunk/block_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace gantry {
namespace {

using enum ChunkState;
using Pair = std::pair<ChunkState, ChunkState>;

// Written out here once more, so that an edit of the table alone fails.
std::set<Pair> LegalPairs() {
  return {
      {kFree, kHold},
      {kHold, kCompute},
      {kCompute, kHold},
      {kCompute, kHoldAfterBackward},
      {kHoldAfterBackward, kCompute},
      {kHoldAfterBackward, kReadyForReduce},
      {kHold, kReadyForReduce},
      {kReadyForReduce, kHold},
      {kHoldAfterBackward, kHold},
      {kHold, kFree},
  };
}

std::vector<ChunkState> AllStates() {
  return {kFree, kHold, kCompute, kHoldAfterBackward, kReadyForReduce};
}

// A machine brought to `state` the usual way, at moments 100, 101, ...
ChunkStateMachine MachineIn(ChunkState state) {
  ChunkStateMachine machine(ChunkId(42));
  for (const ChunkState next : {kHold, kCompute, kHoldAfterBackward, kReadyForReduce}) {
    if (machine.state() == state) break;
    machine.Transition(next, 99 + static_cast<int64_t>(next));
  }
  EXPECT_EQ(machine.state(), state);
  return machine;
}

std::string PairName(const ::testing::TestParamInfo<Pair>& info) {
  std::ostringstream out;
  out << info.param.first << " to " << info.param.second;
  std::string name = out.str();
  std::ranges::replace(name, ' ', '_');
  return name;
}

std::vector<Pair> PairsThatAre(bool legal) {
  std::vector<Pair> pairs;
  for (const ChunkState from : AllStates()) {
    for (const ChunkState to : AllStates()) {
      if (LegalPairs().contains({from, to}) == legal) pairs.emplace_back(from, to);
    }
  }
  return pairs;
}

class LegalTransitionTest : public ::testing::TestWithParam<Pair> {};
TEST_P(LegalTransitionTest, IsMadeAndRemembered) {
  const auto [from, to] = GetParam();
  EXPECT_TRUE(IsLegalTransition(from, to));
  ChunkStateMachine machine = MachineIn(from);
  machine.Transition(to, 777);
  EXPECT_EQ(machine.state(), to);
  std::ostringstream line;
  line << "  moment 777: " << from << " -> " << to << "\n";
  EXPECT_TRUE(machine.History().ends_with(line.str())) << machine.History();
}
INSTANTIATE_TEST_SUITE_P(All, LegalTransitionTest, ::testing::ValuesIn(PairsThatAre(true)),
                         PairName);

class IllegalTransitionDeathTest : public ::testing::TestWithParam<Pair> {};
TEST_P(IllegalTransitionDeathTest, AbortsWithChunkStatesAndHistory) {
  const auto [from, to] = GetParam();
  EXPECT_FALSE(IsLegalTransition(from, to));
  ChunkStateMachine machine = MachineIn(from);
  std::ostringstream expected;
  expected << "chunk#42 may not go from '" << from << "' to '" << to
           << "' at moment 555; last transitions:\n"
           << (from == kFree ? "  none" : "  moment 100: free -> hold");
  EXPECT_DEATH(machine.Transition(to, 555), expected.str());
}
INSTANTIATE_TEST_SUITE_P(All, IllegalTransitionDeathTest, ::testing::ValuesIn(PairsThatAre(false)),
                         PairName);

TEST(ChunkStateTest, TenPairsAreLegalAndFifteenAreNot) {
  EXPECT_EQ(PairsThatAre(true).size(), 10u);
  EXPECT_EQ(PairsThatAre(false).size(), 15u);
}

TEST(ChunkStateTest, StartsFreeWithoutHistory) {
  const ChunkStateMachine machine(ChunkId(3));
  EXPECT_EQ(machine.state(), kFree);
  EXPECT_EQ(machine.chunk(), ChunkId(3));
  EXPECT_EQ(machine.History(), "  none\n");
}

TEST(ChunkStateTest, HistoryHoldsTheLastSixteenInOrder) {
  ChunkStateMachine machine(ChunkId(1));
  machine.Transition(kHold, 0);
  for (int64_t moment = 1; moment <= 36; ++moment) {
    machine.Transition(moment % 2 == 1 ? kCompute : kHold, moment);
  }
  std::string expected;
  for (int64_t moment = 21; moment <= 36; ++moment) {
    expected += "  moment " + std::to_string(moment) +
                (moment % 2 == 1 ? ": hold -> compute\n" : ": compute -> hold\n");
  }
  EXPECT_EQ(machine.History(), expected);
}

TEST(ChunkStateTest, HistoryIsCompleteUpToSixteen) {
  ChunkStateMachine machine(ChunkId(1));
  for (int64_t moment = 0; moment < 16; ++moment) {
    machine.Transition(moment % 2 == 0 ? kHold : kFree, moment);
    const std::string history = machine.History();
    EXPECT_EQ(std::ranges::count(history, '\n'), moment + 1);
    EXPECT_TRUE(history.starts_with("  moment 0: free -> hold\n")) << history;
  }
}

// A step as the engine makes it: two leases of the chunk forward, recomputation and a second
// micro-batch backward, an update; then a step that never touches it; then one that is abandoned.
TEST(ChunkStateTest, WalksThroughWholeSteps) {
  ChunkStateMachine machine(ChunkId(0));
  int64_t moment = 0;
  for (const ChunkState next :
       {kHold, kCompute, kHold, kCompute, kHold, kCompute, kHoldAfterBackward, kCompute,
        kHoldAfterBackward, kReadyForReduce, kHold, kReadyForReduce, kHold, kCompute,
        kHoldAfterBackward, kHold, kFree, kHold}) {
    machine.Transition(next, moment++);
    ASSERT_EQ(machine.state(), next);
  }
}

TEST(ChunkStateTest, EveryStateHasItsOwnName) {
  std::set<std::string_view> names;
  for (const ChunkState state : AllStates()) names.insert(Name(state));
  EXPECT_EQ(names.size(), kChunkStateCount);
}

}  // namespace
}  // namespace gantry
