// The machinery behind Simulate: one simulation's state. Internal to the simulator's target.
#ifndef GANTRY_PLACEMENT_POLICY_SIMULATION_H_
#define GANTRY_PLACEMENT_POLICY_SIMULATION_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "placement_policy/movement_problem.h"
#include "placement_policy/simulator.h"
#include "placement_policy/slot_profile.h"

namespace gantry {

class Simulation {
 public:
  Simulation(const MovementProblem& problem, const MovementPlan& plan,
             const SimulationOptions& options);

  absl::StatusOr<SimulatedStep> Run();

 private:
  // An absolute moment: step x moment count + moment.
  using Time = int64_t;
  static constexpr Time kNever = int64_t{1} << 60;
  // What a file is read for. Those of a kind need the same number of free buffers.
  enum class ReadKind : uint8_t { kUpdate, kLaterUpdate, kUrgentBlock, kBlockAhead };
  static constexpr int kReadKindCount = 4;
  // (not urgent, key, staged)
  using Read = std::tuple<bool, Time, int32_t>;

  // Something to do with a block or an update, and by when; the smallest comes first.
  using Task = std::pair<Time, int32_t>;
  using Tasks = std::priority_queue<Task, std::vector<Task>, std::greater<>>;

  enum class Phase : uint8_t { kAbsent, kFetching, kPresent, kLeaving };
  // Where the content of a block in files, or the states of an update, are.
  enum class Stage : uint8_t { kFile, kReading, kBuffer, kWaiting, kWriting };

  struct Block {
    Phase phase = Phase::kAbsent;
    bool dirty = false;
    bool writing = false;  // on the lane down
    bool pending = false;  // its next version is not on the host yet
    bool wanted = false;   // absent, and its next use needs its content
    Time next_use = 0;
    int32_t use = -1;  // the next use
    Time last_use = -1;
    Time evict_key = 0;  // where it stands in evictable_
  };
  struct Update {
    Time deadline = kNever;  // when the parameter's next version is used
    int64_t step = 0;        // whose gradient it waits for, or has
    bool released = false;   // its gradient is on the host
  };
  // The states of an update or a block in files, by update, then by block.
  struct Staged {
    Stage stage = Stage::kFile;  // kBuffer for states that are in memory
    Time key = -1;               // by when it is to be read
    bool urgent = false;
    bool wanted = false;    // to be read, once it is in its file
    ReadKind kind{};        // the queue in which it stands
    bool in_queue = false;  // it can be read now
  };
  struct Lane {
    bool busy = false;
    Nanoseconds end = 0;
    int32_t block = -1;
    int32_t update = -1;
    Time time = 0;
    Nanoseconds begin = 0;
  };
  struct StepTotals {
    Nanoseconds end = 0;
    std::array<Nanoseconds, kSimulatedStallCount> stalls{};
    std::array<Nanoseconds, kSimulatedLaneCount> busy{};
    std::array<int64_t, kSimulatedLaneCount> bytes{};
    std::array<int64_t, kSimulatedLaneCount> moves{};
    Nanoseconds compute = 0;
    std::vector<int64_t> state;  // what the next step starts with, roughly
  };

  // simulation.cc: time, moments, and what follows a use.
  void Prepare();
  void PrepareEarlyWrites();
  absl::Status Loop();
  bool StartSomething();
  bool TryStartMoment();
  SimulatedStall StallOf(const MovementProblem::Moment& moment) const;
  bool NormKnown(Time moment) const;
  void EndMoment();
  void AfterUse(int32_t use);
  void EndGradients(int64_t moment);
  void EndStep();
  int64_t Period() const;
  bool GivesUp() const;
  SimulatedStep Result() const;
  absl::Status Stuck() const;
  const MovementProblem::Moment& moment_at(Time time) const {
    return problem_.moments[static_cast<size_t>(time % count_)];
  }
  // Slots that blocks may hold now, whether the moment computes or is about to.
  int64_t capacity_now() const { return moment_at(cursor_).capacity; }

  // simulation_lanes.cc: what the lanes carry next, and what follows a transfer.
  bool StartLanes();
  bool StartFetch();
  bool StartWriteDown();
  bool StartUpdate();
  bool StartFileRead();
  bool StartFileWrite();
  void Begin(SimulatedLane lane, int64_t bytes, Nanoseconds duration, Lane job);
  void Finish(SimulatedLane lane);
  void FinishFetch(int32_t block);
  void FinishWriteDown(const Lane& job);
  void FinishUpdate(int32_t update);
  void FinishFileRead(const Lane& job);
  void FinishFileWrite(const Lane& job);
  bool LaneFree(SimulatedLane lane) const;
  // The next block to fetch, with its moment; none when nothing may start now.
  int32_t PickFetch();
  int32_t PickOnDemand();
  // From when on the plan lets content for the block's next use be fetched.
  Time FetchFrom(const Block& b) const;
  // Whether `slots` are free now; evicts what may go for them. `for_use`: when they are used.
  bool MakeRoom(int64_t slots, Time for_use);
  int32_t PickVictim(Time for_use) const;
  Residency residency(int32_t block) const;
  void Drop(int32_t block);
  void Free(int32_t block);
  // The block is absent and wanted: lets the lanes know, if its content is there.
  void Offer(int32_t block);
  // Something in a file is wanted, by when, and what for; again when any of that changes.
  void OfferRead(int32_t staged, Time key, bool urgent);
  void EnqueueRead(int32_t staged);
  void TakeFromReads(int32_t staged);
  ReadKind ReadKindOf(int32_t staged) const;
  int64_t BuffersNeeded(ReadKind kind) const;
  // The parameter's next version can be fetched now.
  void OfferVersion(int32_t parameter);
  void ReleaseUpdate(int32_t update);
  void OfferStates(int32_t update);
  // Gradient and states are there.
  void OfferUpdate(int32_t update);
  int32_t update_count() const { return static_cast<int32_t>(problem_.updates.size()); }
  int32_t staged_of_block(int32_t block) const { return update_count() + block; }
  int64_t StagedBytes(int32_t staged) const;
  Block& block(int32_t index) { return blocks_[static_cast<size_t>(index)]; }
  const Block& block(int32_t index) const { return blocks_[static_cast<size_t>(index)]; }
  Staged& staged(int32_t index) { return staged_[static_cast<size_t>(index)]; }
  const Staged& staged(int32_t index) const { return staged_[static_cast<size_t>(index)]; }
  bool in_file(int32_t block) const { return problem_.in_file[static_cast<size_t>(block)]; }
  int64_t slots(int32_t block) const { return problem_.block_slots[static_cast<size_t>(block)]; }
  bool keep_set() const { return plan_.mode == MovementPlan::Mode::kKeepSet; }
  // Slots that the moment to come will create.
  int64_t CreatedNext() const;
  void NoteNorm();
  void NoteWait(Nanoseconds end);

  const MovementProblem& problem_;
  const MovementPlan& plan_;
  const SimulationOptions& options_;
  const UseCycle cycle_;
  const int64_t count_;  // moments of a step

  std::vector<Block> blocks_;
  std::vector<Update> updates_;
  std::vector<Staged> staged_;
  bool blocks_in_files_ = false;
  std::vector<std::vector<int32_t>> completes_;  // moment -> updates whose gradient is complete
  std::vector<bool> early_write_;                // by use: write the block back after it
  std::vector<int64_t> slack_;                   // by moment, without early fetches
  std::optional<SlotProfile> profile_;           // kKeepSet

  Nanoseconds now_ = 0;
  Time cursor_ = 0;  // the moment that computes, or that is next
  bool computing_ = false;
  Nanoseconds compute_end_ = 0;
  Nanoseconds compute_begin_ = 0;
  int64_t held_ = 0;            // slots
  int64_t leaving_ = 0;         // of these, of blocks that leave
  int64_t pending_ = 0;         // blocks
  int64_t free_buffers_ = 0;    // on the host
  int64_t writes_waiting_ = 0;  // changed blocks of files that want a buffer
  int64_t norm_step_ = 0;       // steps whose norm is known
  int64_t gradients_down_ = 0;  // of the step norm_step_
  std::array<Lane, kSimulatedLaneCount> lanes_{};

  Tasks fetches_;           // kKeepSet: blocks whose content is on the host
  Tasks early_fetches_;     // of these, by the moment from which the plan allows the fetch
  Tasks write_downs_;       // blocks that leave, gradients among them
  Tasks file_write_downs_;  // of these, blocks of files
  Tasks early_writes_;
  // Updates whose gradient and states are there: states that stay in memory, and those in buffers.
  Tasks released_;
  Tasks released_in_buffers_;
  std::array<std::set<Read>, kReadKindCount> reads_;  // by kind: what can be read
  int64_t reads_wanted_ = 0;
  std::queue<int32_t> file_writes_;               // staged
  std::set<std::pair<Time, int32_t>> evictable_;  // kOnDemand: present blocks by key

  std::vector<StepTotals> totals_;
  StepTotals running_;
  int64_t moves_ = 0;
  std::vector<Nanoseconds> compute_;  // by moment
  std::vector<SimulatedEvent> events_;
  std::vector<SimulatedDrop> drops_;
  std::vector<SimulatedWait> waits_;
};

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_SIMULATION_H_
