// Finds pieces of work on a device that touch the same bytes without an order between them, one of
// them writing: what a missing event between two streams leads to. What counts is what orders the
// work (streams, events, the host's waits), not when it happened to run, so that a race is found in
// every run in which both pieces of work are there.
//
// Order is kept with vector clocks. The host counts as one actor, whatever its threads: what one of
// them has waited for, all have.
//
// Thread-compatible.
#ifndef GANTRY_DEVICE_CUDA_EMULATION_ACCESS_LOG_H_
#define GANTRY_DEVICE_CUDA_EMULATION_ACCESS_LOG_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gantry {

// How far somebody knows each actor's work to be done. Actors count from 0.
class VectorClock {
 public:
  uint64_t at(size_t actor) const { return actor < ticks_.size() ? ticks_[actor] : 0; }
  // Counts one more piece of work of the actor; its number.
  uint64_t Tick(size_t actor);
  void Join(const VectorClock& other);

 private:
  std::vector<uint64_t> ticks_;
};

// A piece of work. Immutable once it was submitted.
struct WorkOrder {
  size_t actor = 0;     // the stream
  uint64_t tick = 0;    // of the actor
  VectorClock clock;    // what was done before it
  uint64_t number = 0;  // in the order of submission, over all streams
  std::string what;     // "work 7 (copy of 64.0 KiB to the device) on stream 2"
};

// Bytes [begin, end) of an object that a piece of work touches.
struct MemoryAccess {
  int64_t object;
  int64_t begin;
  int64_t end;
  bool write;
  int64_t place;                          // through which mapping or registration
  std::shared_ptr<const WorkOrder> work;  // shared by the accesses of one piece of work
};

class AccessLog {
 public:
  // Adds an access. Returns another one's work that is not ordered with it; null: there is none.
  std::shared_ptr<const WorkOrder> Add(const MemoryAccess& access);
  // Work that went through `place` and is not known to be done; null: there is none.
  std::shared_ptr<const WorkOrder> Unfinished(int64_t place, const VectorClock& host) const;
  void ForgetObject(int64_t object) { accesses_.erase(object); }
  // Forgets what can conflict with nothing any more: what the host knows to be done is before all
  // that is submitted from now on, as number `next`. Work from `oldest_open` on, submitted before,
  // may still add accesses.
  void Sweep(const VectorClock& host, uint64_t next, uint64_t oldest_open);
  int64_t size() const;

 private:
  struct Entry {
    MemoryAccess access;
    uint64_t known_before = 0;  // the number of work before which the host knew it; 0: it does not
  };
  std::map<int64_t, std::vector<Entry>> accesses_;  // by object
};

}  // namespace gantry

#endif  // GANTRY_DEVICE_CUDA_EMULATION_ACCESS_LOG_H_
