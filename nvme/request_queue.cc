#include "nvme/request_queue.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace gantry {

void RequestQueue::Push(const IoRequest& request) {
  SplitRequest split(request);
  if (split.finished()) {
    GANTRY_CHECK(!requests_.contains(request.tag)) << "tag " << request.tag << " is pending";
    completions_.push_back({request.tag, split.TakeStatus()});
    return;
  }
  List& list = Waiting(request.priority);
  list.push_back(std::move(split));
  const bool inserted = requests_.emplace(request.tag, std::prev(list.end())).second;
  GANTRY_CHECK(inserted) << "tag " << request.tag << " is pending";
}

bool RequestQueue::HasNext() const {
  return std::ranges::any_of(waiting_, [](const List& list) { return !list.empty(); });
}

RequestQueue::Piece RequestQueue::Next() {
  const auto list = std::ranges::find_if(waiting_, [](const List& l) { return !l.empty(); });
  GANTRY_CHECK(list != waiting_.end()) << "nothing waits";
  SplitRequest& request = list->front();
  Piece piece = {.tag = request.tag(), .progress = request.Next()};
  if (!request.HasNext()) started_.splice(started_.end(), *list, list->begin());
  return piece;
}

void RequestQueue::Finish(uint64_t tag, absl::Status status) {
  const auto found = requests_.find(tag);
  GANTRY_CHECK(found != requests_.end()) << "a piece of unknown request " << tag;
  const List::iterator request = found->second;
  const bool was_waiting = request->HasNext();
  List& list = was_waiting ? Waiting(request->priority()) : started_;
  request->Finish(std::move(status));
  if (request->finished()) {
    End(list, request);
  } else if (was_waiting && !request->HasNext()) {  // failed, with other pieces still out
    started_.splice(started_.end(), list, request);
  }
}

void RequestQueue::Cancel(uint64_t tag) {
  const auto found = requests_.find(tag);
  if (found == requests_.end()) return;
  const List::iterator request = found->second;
  List& list = Waiting(request->priority());
  if (request->Cancel()) End(list, request);
}

void RequestQueue::Promote(uint64_t tag, IoPriority priority) {
  const auto found = requests_.find(tag);
  if (found == requests_.end()) return;
  const List::iterator request = found->second;
  if (priority >= request->priority() || !request->HasNext()) return;
  List& list = Waiting(request->priority());
  request->set_priority(priority);
  Waiting(priority).splice(Waiting(priority).end(), list, request);
}

void RequestQueue::End(List& list, List::iterator request) {
  completions_.push_back({request->tag(), request->TakeStatus()});
  requests_.erase(request->tag());
  list.erase(request);
}

}  // namespace gantry
