#include "base/mutex.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace gantry {
namespace {

// The thread-safety analysis covers members, so what the tests guard is one.
class Counter {
 public:
  void Add() {
    MutexLock lock(mutex_);
    ++value_;
    changed_.NotifyAll();
  }
  // Waits until the value is a multiple of `turns` plus `turn`, then adds one.
  void AddInTurn(int64_t turn, int64_t turns) {
    MutexLock lock(mutex_);
    while (value_ % turns != turn) changed_.Wait(mutex_);
    order_.push_back(turn);
    ++value_;
    changed_.NotifyAll();
  }
  int64_t value() {
    MutexLock lock(mutex_);
    return value_;
  }
  std::vector<int64_t> order() {
    MutexLock lock(mutex_);
    return order_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int64_t value_ GANTRY_GUARDED_BY(mutex_) = 0;
  std::vector<int64_t> order_ GANTRY_GUARDED_BY(mutex_);
};

TEST(MutexTest, ExcludesOtherThreads) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 5000;
  Counter counter;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < kRounds; ++round) counter.Add();
      });
    }
  }
  EXPECT_EQ(counter.value(), kThreads * kRounds);
}

TEST(MutexTest, ConditionsHandOver) {
  constexpr int64_t kThreads = 3;
  constexpr int64_t kRounds = 50;
  Counter counter;
  {
    std::vector<std::jthread> threads;
    for (int64_t turn = 0; turn < kThreads; ++turn) {
      threads.emplace_back([&, turn] {
        for (int64_t round = 0; round < kRounds; ++round) counter.AddInTurn(turn, kThreads);
      });
    }
  }
  const std::vector<int64_t> order = counter.order();
  ASSERT_EQ(order.size(), static_cast<size_t>(kThreads * kRounds));
  for (size_t i = 0; i < order.size(); ++i) {
    ASSERT_EQ(order[i], static_cast<int64_t>(i) % kThreads) << i;
  }
}

}  // namespace
}  // namespace gantry
