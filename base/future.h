// A one-shot result that another thread delivers: Promise<T> sets, Future<T> waits.
// Dropping a Future without Wait or Then is a programmer error (aborts), so that no error of an
// asynchronous operation is lost; dropping a Promise delivers kCancelled.
#ifndef GANTRY_BASE_FUTURE_H_
#define GANTRY_BASE_FUTURE_H_

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/mutex.h"

namespace gantry {

namespace future_internal {
template <typename T>
struct State {
  Mutex mutex;
  CondVar changed;
  std::optional<absl::StatusOr<T>> result GANTRY_GUARDED_BY(mutex);
  std::function<void(absl::StatusOr<T>)> callback GANTRY_GUARDED_BY(mutex);
};
}  // namespace future_internal

// Move-only. Thread-compatible.
template <typename T>
class [[nodiscard]] Future {
 public:
  Future() = default;
  Future(Future&&) noexcept = default;
  Future& operator=(Future&& other) noexcept {
    GANTRY_CHECK(state_ == nullptr) << "a future was overwritten before it was consumed";
    state_ = std::move(other.state_);
    return *this;
  }
  ~Future() { GANTRY_CHECK(state_ == nullptr) << "a future was dropped before it was consumed"; }

  bool valid() const { return state_ != nullptr; }
  bool Ready() const {
    GANTRY_CHECK(valid());
    MutexLock lock(state_->mutex);
    return state_->result.has_value();
  }
  // Blocks until the result is there and consumes the future.
  absl::StatusOr<T> Wait() {
    GANTRY_CHECK(valid()) << "the future was consumed before";
    auto state = std::move(state_);
    MutexLock lock(state->mutex);
    while (!state->result.has_value()) state->changed.Wait(state->mutex);
    return *std::move(state->result);
  }
  // Consumes the future; `callback` runs once, on the delivering thread, or at once when the
  // result is already there.
  void Then(std::function<void(absl::StatusOr<T>)> callback) {
    GANTRY_CHECK(valid()) << "the future was consumed before";
    auto state = std::move(state_);
    std::optional<absl::StatusOr<T>> ready;
    {
      MutexLock lock(state->mutex);
      if (state->result.has_value()) {
        ready = std::move(state->result);
      } else {
        state->callback = std::move(callback);
        return;
      }
    }
    callback(*std::move(ready));
  }

 private:
  template <typename U>
  friend class Promise;
  explicit Future(std::shared_ptr<future_internal::State<T>> state) : state_(std::move(state)) {}
  // shared: the promise's thread and the future's thread both hold it.
  std::shared_ptr<future_internal::State<T>> state_;
};

// Move-only.
template <typename T>
class Promise {
 public:
  Promise() : state_(std::make_shared<future_internal::State<T>>()) {}
  Promise(Promise&&) noexcept = default;
  Promise& operator=(Promise&&) = delete;
  ~Promise() {
    if (state_ != nullptr) Set(absl::CancelledError("the promise was dropped"));
  }

  // The one future of this promise. REQUIRES: called once, before Set.
  Future<T> GetFuture() {
    GANTRY_CHECK(state_ != nullptr) << "the promise was kept before";
    return Future<T>(state_);
  }

  // Delivers and consumes the promise.
  void Set(absl::StatusOr<T> result) {
    GANTRY_CHECK(state_ != nullptr) << "the promise was kept before";
    auto state = std::move(state_);
    std::function<void(absl::StatusOr<T>)> callback;
    {
      MutexLock lock(state->mutex);
      if (state->callback) {
        callback = std::move(state->callback);
      } else {
        state->result = std::move(result);
        state->changed.NotifyAll();
        return;
      }
    }
    callback(std::move(result));
  }

 private:
  std::shared_ptr<future_internal::State<T>> state_;
};

}  // namespace gantry

#endif  // GANTRY_BASE_FUTURE_H_
