// Which piece an I/O backend starts next, without any I/O: requests wait in one queue per priority,
// are started piece by piece, and leave as completions.
//
//   queue.Push(request);
//   while (there is room && queue.HasNext()) Issue(queue.Next());
//   queue.Finish(tag, status);                        // one piece has ended
//   for (auto& done : queue.TakeCompletions()) sink->OnIoComplete(done.tag,
//   std::move(done.status));
//
// Pieces start by priority and then in the order of Push. Every operation takes constant time.
//
// Thread-compatible. Views the buffers of the requests.
#ifndef GANTRY_NVME_REQUEST_QUEUE_H_
#define GANTRY_NVME_REQUEST_QUEUE_H_

#include <array>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "nvme/io_backend.h"
#include "nvme/request_progress.h"

namespace gantry {

class RequestQueue {
 public:
  struct Piece {
    uint64_t tag;  // of its request
    RequestProgress progress;
  };
  struct Completion {
    uint64_t tag;
    absl::Status status;
  };

  // Takes a request; an empty one is a completion at once. REQUIRES: no pending request has its
  // tag.
  void Push(const IoRequest& request);
  // Whether a piece may start.
  bool HasNext() const;
  // Starts the next piece. REQUIRES: HasNext().
  Piece Next();
  // Ends a piece that Next started. After an error no further piece of its request starts.
  void Finish(uint64_t tag, absl::Status status);

  // As IoBackend::Cancel and Promote.
  void Cancel(uint64_t tag);
  void Promote(uint64_t tag, IoPriority priority);

  // Requests that have ended, in that order; their tags are free.
  bool HasCompletions() const { return !completions_.empty(); }
  std::vector<Completion> TakeCompletions() { return std::exchange(completions_, {}); }

  // Requests that have not ended.
  int64_t pending() const { return static_cast<int64_t>(requests_.size()); }

 private:
  using List = std::list<SplitRequest>;

  List& Waiting(IoPriority priority) { return waiting_[static_cast<size_t>(priority)]; }
  void End(List& list, List::iterator request);

  // A request is in one list at a time and moves between them, so that its iterator stays valid.
  std::array<List, kIoPriorityCount> waiting_;              // with pieces left to start
  List started_;                                            // wholly started, not ended
  absl::flat_hash_map<uint64_t, List::iterator> requests_;  // by tag
  std::vector<Completion> completions_;
};

}  // namespace gantry

#endif  // GANTRY_NVME_REQUEST_QUEUE_H_
