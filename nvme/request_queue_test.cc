// Order, cancellation and promotion of pieces, without any I/O; at random against a model that
// keeps one flat list.
#include "nvme/request_queue.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/random.h"
#include "base/strings.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

constexpr auto kDemand = IoPriority::kDemand;
constexpr auto kPrefetch = IoPriority::kPrefetch;
constexpr auto kWriteBack = IoPriority::kWriteBack;

// The buffers are never touched, so they all view the same memory.
class RequestQueueTest : public testing::Test {
 protected:
  IoRequest Request(uint64_t tag, IoPriority priority, int64_t pieces) {
    memory_.resize(static_cast<size_t>(
        std::max<int64_t>(pieces * kPieceBytes, static_cast<int64_t>(memory_.size()))));
    return {.kind = IoRequest::Kind::kRead,
            .fd = 0,
            .offset = 0,
            .buffer = std::span(memory_).first(static_cast<size_t>(pieces * kPieceBytes)),
            .priority = priority,
            .tag = tag};
  }
  // Starts everything; tag and number of each piece, as "3.0".
  static std::vector<std::string> StartAll(RequestQueue& queue) {
    std::vector<std::string> started;
    while (queue.HasNext()) {
      const RequestQueue::Piece piece = queue.Next();
      started.push_back(StrCat(piece.tag, ".", piece.progress.piece().offset / kPieceBytes));
    }
    return started;
  }

  std::vector<std::byte> memory_;
};

using Strings = std::vector<std::string>;

TEST_F(RequestQueueTest, StartsByPriorityThenInOrder) {
  RequestQueue queue;
  EXPECT_FALSE(queue.HasNext());
  queue.Push(Request(1, kWriteBack, 2));
  queue.Push(Request(2, kPrefetch, 1));
  queue.Push(Request(3, kDemand, 2));
  queue.Push(Request(4, kDemand, 1));
  EXPECT_EQ(queue.pending(), 4);
  EXPECT_EQ(StartAll(queue), (Strings{"3.0", "3.1", "4.0", "2.0", "1.0", "1.1"}));
}

TEST_F(RequestQueueTest, UrgentPiecesOvertakeThoseThatHaveNotStarted) {
  RequestQueue queue;
  queue.Push(Request(1, kWriteBack, 3));
  EXPECT_EQ(queue.Next().tag, 1U);
  queue.Push(Request(2, kDemand, 2));
  EXPECT_EQ(StartAll(queue), (Strings{"2.0", "2.1", "1.1", "1.2"}));
}

TEST_F(RequestQueueTest, PromotionGoesBehindTheWaitingOfThatPriority) {
  RequestQueue queue;
  queue.Push(Request(1, kWriteBack, 2));
  queue.Push(Request(2, kWriteBack, 2));
  queue.Push(Request(3, kPrefetch, 1));
  EXPECT_EQ(queue.Next().tag, 3U);
  EXPECT_EQ(queue.Next().tag, 1U);
  queue.Push(Request(4, kDemand, 1));
  queue.Promote(1, kDemand);     // its second piece
  queue.Promote(2, kWriteBack);  // not more urgent
  queue.Promote(4, kPrefetch);   // less urgent
  queue.Promote(3, kDemand);     // wholly started
  queue.Promote(77, kDemand);    // unknown
  EXPECT_EQ(StartAll(queue), (Strings{"4.0", "1.1", "2.0", "2.1"}));
}

TEST_F(RequestQueueTest, OnlyWhatHasNotStartedIsCancelled) {
  RequestQueue queue;
  queue.Push(Request(1, kDemand, 2));
  queue.Push(Request(2, kPrefetch, 2));
  EXPECT_EQ(queue.Next().tag, 1U);
  queue.Cancel(1);
  queue.Cancel(77);
  EXPECT_FALSE(queue.HasCompletions());
  queue.Cancel(2);
  std::vector<RequestQueue::Completion> done = queue.TakeCompletions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].tag, 2U);
  EXPECT_TRUE(absl::IsCancelled(done[0].status));
  EXPECT_EQ(queue.pending(), 1);
  queue.Push(Request(2, kDemand, 1));  // the tag is free again
  EXPECT_EQ(StartAll(queue), (Strings{"1.1", "2.0"}));
  queue.Cancel(2);  // wholly started
  EXPECT_FALSE(queue.HasCompletions());
}

TEST_F(RequestQueueTest, AFailedRequestStartsNothingMore) {
  RequestQueue queue;
  queue.Push(Request(1, kDemand, 4));
  queue.Push(Request(2, kDemand, 1));
  queue.Next();
  queue.Next();
  queue.Finish(1, DataLoss("first"));
  EXPECT_FALSE(queue.HasCompletions());  // a piece is out
  EXPECT_EQ(StartAll(queue), Strings{"2.0"});
  queue.Promote(1, kDemand);
  queue.Cancel(1);
  queue.Finish(1, Internal("second"));
  const std::vector<RequestQueue::Completion> done = queue.TakeCompletions();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status.message(), "first");
}

TEST_F(RequestQueueTest, AnEmptyRequestIsACompletion) {
  RequestQueue queue;
  queue.Push(Request(1, kDemand, 0));
  EXPECT_FALSE(queue.HasNext());
  ASSERT_TRUE(queue.HasCompletions());
  EXPECT_TRUE(queue.TakeCompletions()[0].status.ok());
  EXPECT_FALSE(queue.HasCompletions());
}

TEST_F(RequestQueueTest, PiecesCarryTheirHashes) {
  RequestQueue queue;
  IoRequest request = Request(1, kDemand, 2);
  std::vector<uint64_t> hashes(3, 0);
  std::vector<std::byte> bytes(static_cast<size_t>(2 * kPieceBytes + 5), std::byte{7});
  request.buffer = bytes;
  request.piece_hashes = hashes;
  CheckRequest(request);
  queue.Push(request);
  while (queue.HasNext()) HashPiece(queue.Next().progress.piece());
  EXPECT_EQ(hashes[0], Hash64(std::span(bytes).first(kPieceBytes)));
  EXPECT_EQ(hashes[1], hashes[0]);
  EXPECT_EQ(hashes[2], Hash64(std::span(bytes).first(5)));
  request.piece_hashes = std::span(hashes).first(2);
  EXPECT_DEATH(CheckRequest(request), "2 piece hashes for");
}

// The queue as a list in order of arrival at the current priority, searched for everything.
struct Model {
  struct Waiting {
    uint64_t tag;
    IoPriority priority;
    int64_t pieces;
    int64_t started = 0;
    int64_t out = 0;
    bool failed = false;
    bool HasNext() const { return !failed && started < pieces; }
  };
  std::vector<Waiting> requests;
  std::vector<std::pair<uint64_t, bool>> completed;  // tag, OK

  Waiting* Find(uint64_t tag) {
    const auto found = std::ranges::find(requests, tag, &Waiting::tag);
    return found == requests.end() ? nullptr : &*found;
  }
  Waiting* Next() {
    Waiting* best = nullptr;
    for (Waiting& request : requests) {
      if (request.HasNext() && (best == nullptr || request.priority < best->priority)) {
        best = &request;
      }
    }
    return best;
  }
  void Remove(uint64_t tag, bool ok) {
    completed.emplace_back(tag, ok);
    std::erase_if(requests, [&](const Waiting& request) { return request.tag == tag; });
  }
  void Finish(uint64_t tag, bool ok) {
    Waiting& request = *Find(tag);
    --request.out;
    if (!ok) request.failed = true;
    if (request.out == 0 && !request.HasNext()) Remove(tag, !request.failed);
  }
  void Cancel(uint64_t tag) {
    const Waiting* request = Find(tag);
    if (request != nullptr && request->started == 0) Remove(tag, false);
  }
  void Promote(uint64_t tag, IoPriority priority) {
    Waiting* request = Find(tag);
    if (request == nullptr || priority >= request->priority || !request->HasNext()) return;
    Waiting moved = *request;
    moved.priority = priority;
    std::erase_if(requests, [&](const Waiting& other) { return other.tag == tag; });
    requests.push_back(moved);
  }
};

TEST_F(RequestQueueTest, RandomOperationsAgreeWithTheModel) {
  constexpr uint64_t kSeed = 64123;
  SCOPED_TRACE(StrCat("seed ", kSeed));
  const Random random({.seed = kSeed, .stream = 0});
  uint64_t draw = 0;
  auto below = [&](int64_t bound) { return random.Below(bound, draw++); };
  RequestQueue queue;
  Model model;
  std::vector<uint64_t> out;  // tags of pieces under way
  uint64_t next_tag = 1;
  for (int step = 0; step < 30'000; ++step) {
    const auto any_tag = [&] { return next_tag - 1 - static_cast<uint64_t>(below(20)); };
    const int64_t action = below(10);
    if (action < 2) {
      const auto priority = static_cast<IoPriority>(below(kIoPriorityCount));
      const int64_t pieces = 1 + below(6);
      queue.Push(Request(next_tag, priority, pieces));
      model.requests.push_back({.tag = next_tag, .priority = priority, .pieces = pieces});
      ++next_tag;
    } else if (action < 6) {
      Model::Waiting* expected = model.Next();
      ASSERT_EQ(queue.HasNext(), expected != nullptr) << step;
      if (expected == nullptr) continue;
      const RequestQueue::Piece piece = queue.Next();
      ASSERT_EQ(piece.tag, expected->tag) << step;
      ASSERT_EQ(piece.progress.piece().offset, expected->started * kPieceBytes) << step;
      ++expected->started;
      ++expected->out;
      out.push_back(piece.tag);
    } else if (action < 8 && !out.empty()) {
      const auto which = static_cast<size_t>(below(static_cast<int64_t>(out.size())));
      const bool ok = below(20) != 0;
      queue.Finish(out[which], ok ? absl::OkStatus() : DataLoss("injected"));
      model.Finish(out[which], ok);
      out.erase(out.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (action == 8) {
      const uint64_t tag = any_tag();
      queue.Cancel(tag);
      model.Cancel(tag);
    } else {
      const uint64_t tag = any_tag();
      const auto priority = static_cast<IoPriority>(below(kIoPriorityCount));
      queue.Promote(tag, priority);
      model.Promote(tag, priority);
    }
    std::vector<std::pair<uint64_t, bool>> completed;
    for (const RequestQueue::Completion& done : queue.TakeCompletions()) {
      completed.emplace_back(done.tag, done.status.ok());
    }
    ASSERT_EQ(completed, std::exchange(model.completed, {})) << step;
    ASSERT_EQ(queue.pending(), static_cast<int64_t>(model.requests.size())) << step;
  }
}

using RequestQueueDeathTest = RequestQueueTest;

TEST_F(RequestQueueDeathTest, MisuseAborts) {
  RequestQueue queue;
  EXPECT_DEATH(queue.Next(), "nothing waits");
  EXPECT_DEATH(queue.Finish(1, absl::OkStatus()), "unknown request 1");
  queue.Push(Request(1, kDemand, 1));
  EXPECT_DEATH(queue.Push(Request(1, kDemand, 1)), "tag 1 is pending");
  EXPECT_DEATH(queue.Push(Request(1, kDemand, 0)), "tag 1 is pending");
}

}  // namespace
}  // namespace gantry
