// From complete gradients to updated parameters: which chunks' gradients are where in their life,
// whose squared norm is to be summed, whose states are wanted next, and the update itself.
//
//   kNone -> kAccumulating -> kComplete -> kNorming -> kNormed -> kUpdating -> kNone
//
// Where updates wait for the global norm, they may run before it is known, as if nothing clipped
// and all gradients were finite (speculation). Such a chunk waits in kTentative for the decision,
// with its gradient; the states it overwrote are set aside in the file tier, where they came from.
// When the decision is what was assumed they are dropped; otherwise the chunk goes back to them and
// to kNormed, so that the result is that of the exact order. A chunk whose states are in memory
// only waits: its update needs no I/O, so there is little to hide.
//
//   kNormed -> kUpdating -> kTentative -> kNone, or -> kNormed, or (step skipped) -> kRestoring
//
// In kRestoring a 16-bit parameter is made anew from its master.
//
// Adafactor reads each gradient twice more in between (factor_table.h); it is never speculated.
//
//   kNormed -> kFactoring -> kNormed, twice
//
// Updates run on the chunk's update tier in the order in which the next forward pass needs the
// parameters. They may run while the backward pass goes on (when nothing waits for the global
// norm), and behind the next step's forward pass.
//
// All calls are made under the engine's mutex except RunJob, which touches pinned memory only.
#ifndef GANTRY_GEMINI_UPDATE_QUEUE_H_
#define GANTRY_GEMINI_UPDATE_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/parallel_for.h"
#include "chunk/chunk_manager.h"
#include "gemini/block_mover.h"
#include "gemini/eight_bit_moments.h"
#include "gemini/factor_table.h"
#include "gemini/parameter_store.h"
#include "gemini/step_decision.h"
#include "offload/optimizer.h"

namespace gantry {

class UpdateQueue {
 public:
  enum class GradientPhase : uint8_t {
    kNone,
    kAccumulating,
    kComplete,
    kNorming,
    kNormed,
    kFactoring,
    kUpdating,
    kTentative,
    kRestoring,
  };

  struct Options {
    ChunkManager* manager;
    BlockMover* mover;
    ThreadTeam* team;
    std::vector<RegistrationOptions> tensors;  // by TensorId
    std::vector<Tier> update_tiers;            // by chunk
    UpdateOrder order = UpdateOrder::kExact;   // not kSpeculative with adafactor
    // Called under the mutex when a chunk's update is done (keys, residency).
    std::function<absl::Status(ChunkId, int64_t start_clock)> on_updated;
  };

  // One step's hyperparameters and decision; lives until its last update is done.
  struct StepContext {
    OptimizerStep hyper;
    int64_t start_clock = 0;  // the engine's moment clock at BeginStep
    int64_t chunks_normed = 0;
    bool decided = false;
    StepDecision decision{};
  };

  struct Job {
    enum class Kind { kNorm, kObserve, kMeasure, kUpdate, kRestore };
    Kind kind;
    ChunkId chunk;
    bool tentative = false;  // an update before the decision
    float gradient_factor = 1.0f;
    std::shared_ptr<StepContext> step;  // shared: a step's updates outlive the step
  };

  explicit UpdateQueue(Options options);

  // A new step's gradients follow. `order` ranks chunks by their first use in the next forward
  // pass (empty: chunk number).
  void BeginStep(const OptimizerStep& hyper, int64_t start_clock, std::span<const int64_t> order);

  // Chunks that carry trainable tensors.
  int64_t trainable_chunks() const { return trainable_chunks_; }
  GradientPhase phase(ChunkId chunk) const { return at(chunk).phase; }
  // Whether the parameter's next version is still to be made.
  bool Pending(ChunkId chunk) const { return at(chunk).phase > GradientPhase::kAccumulating; }
  Tier update_tier(ChunkId chunk) const {
    return update_tiers_[static_cast<size_t>(chunk.value())];
  }

  // REQUIRES: the chunk's phase is kNone.
  void SetUpdateTier(ChunkId chunk, Tier tier);

  void OnGradientBegun(ChunkId chunk);
  void OnGradientComplete(ChunkId chunk);

  // All chunks' norms are in: decides, and lets the updates run. REQUIRES: NormsComplete().
  StepDecision DecideStep();
  bool NormsComplete() const { return current_->chunks_normed == trainable_chunks_; }
  // Drops all gradients of the step (it was skipped). REQUIRES: decided.
  absl::Status SkipStep();
  // Scales, and access between steps, of moments in eight bits.
  EightBitMoments& eight_bit() { return eight_bit_; }
  const EightBitMoments& eight_bit() const { return eight_bit_; }
  // Adafactor's factors.
  FactorTable& factors() { return factors_; }
  const FactorTable& factors() const { return factors_; }
  // Ends speculation as far as nothing is under way: keeps or takes back tentative updates.
  // REQUIRES: decided.
  absl::Status SettleTentative();
  int64_t tentative() const { return tentative_running_ + std::ssize(tentative_); }
  int64_t speculated() const { return speculated_; }  // tentative updates, since the beginning
  int64_t taken_back() const { return taken_back_; }  // of these, undone
  // Whether any chunk of any step is still to be updated.
  bool idle() const { return pending_ == 0; }
  // Whether nothing can be done before the running step is decided.
  bool OnlyUndecidedLeft() const;

  // What the mover should bring to the update tiers, most urgent first.
  std::vector<Want> Wants();

  // A job whose blocks are in place (they are pinned now), or nothing.
  absl::StatusOr<std::optional<Job>> TakeJob();
  bool HasRunnableJob() const;
  int64_t jobs_running() const { return running_; }
  void RunJob(const Job& job);
  absl::Status FinishJob(const Job& job);

 private:
  struct ChunkGradient {
    GradientPhase phase = GradientPhase::kNone;
    std::shared_ptr<StepContext> step;
    int64_t first_segment = 0;  // into partials_
    int64_t segments = 0;       // that carry elements
    int64_t order = 0;
  };

  struct FactorPass {
    Job::Kind kind;
    ChunkId chunk;
  };

  ChunkGradient& at(ChunkId chunk) { return chunks_[static_cast<size_t>(chunk.value())]; }
  const ChunkGradient& at(ChunkId chunk) const {
    return chunks_[static_cast<size_t>(chunk.value())];
  }
  BlockIndex Index(StateKind kind, ChunkId chunk) const { return manager_.IndexOf({kind, chunk}); }
  std::vector<BlockIndex> WrittenBlocks(ChunkId chunk) const;
  std::vector<BlockIndex> UpdatedBlocks(ChunkId chunk) const;
  bool MayUpdate(ChunkId chunk) const;
  bool FiniteNorm(ChunkId chunk) const;
  absl::Status SettleChunk(ChunkId chunk);
  void EndGradient(ChunkId chunk);
  absl::StatusOr<Job> BeginUpdate(ChunkId chunk);
  bool RestoreReady(ChunkId chunk) const;
  absl::StatusOr<Job> BeginRestore(ChunkId chunk);
  void EndRestore(ChunkId chunk);
  void BeginRead(BlockIndex block, Tier tier);
  bool AllWritable(std::span<const BlockIndex> blocks, Tier tier) const;
  std::vector<BlockIndex> RestoredBlocks(ChunkId chunk) const;
  void RunRestore(ChunkId chunk);
  void AddWants(ChunkId chunk, std::vector<Want>& wants) const;
  void RefreshWindow();
  bool GradientArrived(ChunkId chunk) const;
  Want WantGradient(ChunkId chunk) const {
    return {.block = Index(StateKind::kGradient, chunk), .tier = update_tier(chunk)};
  }
  Job BeginPass(Job::Kind kind, ChunkId chunk);
  void EndPass(const Job& job);
  bool UpdateReady(ChunkId chunk) const;
  void RunNorm(ChunkId chunk);
  // update_factors.cc
  bool MayFactor(ChunkId chunk, Job::Kind pass) const;
  std::optional<FactorPass> FindFactorPass() const;
  bool FactorsWait() const;
  void AddFactorWants(int64_t window, std::vector<Want>& wants) const;
  void RunFactorPass(const Job& job);
  void RunUpdate(const Job& job);
  void UpdateSlice(const Job& job, const TensorSlice& slice);
  // Calls body(element in the chunk, count) for the parts of a slice on either side of the chunk's
  // middle: a 4-byte block lies in two slots that need not be neighbours.
  template <typename Body>
  void ForEachPart(const TensorSlice& slice, const Body& body) const {
    const int64_t half = manager_.layout().chunk_elements() / 2;
    const int64_t end = slice.chunk_begin + slice.elements;
    for (int64_t begin = slice.chunk_begin; begin < end;) {
      const int64_t stop = begin < half ? std::min(end, half) : end;
      body(begin, stop - begin);
      begin = stop;
    }
  }
  const RegistrationOptions& OptionsOf(TensorId tensor) const {
    return tensors_[static_cast<size_t>(tensor.value())];
  }
  std::byte* Address(BlockId block, int64_t element) const;
  uint8_t* Codes(ChunkId chunk) const;  // of eight-bit moments
  void UpdateEightBitChunk(const Job& job);
  OptimizerSlice SliceAt(ChunkId chunk, int64_t begin, int64_t count) const;

  ChunkManager& manager_;
  BlockMover& mover_;
  ThreadTeam* team_;
  std::vector<RegistrationOptions> tensors_;
  std::vector<Tier> update_tiers_;
  UpdateOrder update_order_;
  std::function<absl::Status(ChunkId, int64_t)> on_updated_;
  EightBitMoments eight_bit_;
  FactorTable factors_;

  std::vector<ChunkGradient> chunks_;
  std::vector<double> partials_;
  int64_t trainable_chunks_ = 0;
  int64_t pending_ = 0;
  int64_t running_ = 0;
  std::shared_ptr<StepContext> current_;
  std::set<std::pair<int64_t, int64_t>> to_norm_;    // (order, chunk)
  std::set<std::pair<int64_t, int64_t>> to_update_;  // (order, chunk); normed, maybe undecided
  // Of to_update_, whose states are wanted. A chunk stays until its update, also when another comes
  // whose parameters are needed sooner: what was read for it would have to be read again.
  std::vector<ChunkId> window_;
  std::set<std::pair<int64_t, int64_t>> tentative_;   // (order, chunk); updated before the decision
  std::set<std::pair<int64_t, int64_t>> to_restore_;  // (order, chunk)
  int64_t tentative_running_ = 0;
  int64_t speculated_ = 0;
  int64_t taken_back_ = 0;
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_UPDATE_QUEUE_H_
