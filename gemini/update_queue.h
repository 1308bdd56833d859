// From complete gradients to updated parameters: which chunks' gradients are where in their life,
// whose squared norm is to be summed, whose states are wanted next, and the update itself.
//
//   kNone -> kAccumulating -> kComplete -> kNorming -> kNormed -> kUpdating -> kNone
//
// Updates run on the chunk's update tier in the order in which the next forward pass needs the
// parameters. They may run while the backward pass goes on (when nothing waits for the global
// norm), and behind the next step's forward pass.
//
// All calls are made under the engine's mutex except RunJob, which touches pinned memory only.
#ifndef GANTRY_GEMINI_UPDATE_QUEUE_H_
#define GANTRY_GEMINI_UPDATE_QUEUE_H_

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
    kUpdating,
  };

  struct Options {
    ChunkManager* manager;
    BlockMover* mover;
    ThreadTeam* team;
    std::vector<RegistrationOptions> tensors;  // by TensorId
    std::vector<Tier> update_tiers;            // by chunk
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
    enum class Kind { kNorm, kUpdate };
    Kind kind;
    ChunkId chunk;
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
  // Whether any chunk of any step is still to be updated.
  bool idle() const { return pending_ == 0; }
  // Whether nothing can be done before the running step is decided.
  bool OnlyUndecidedLeft() const;

  // What the mover should bring to the update tiers, most urgent first.
  std::vector<Want> Wants() const;

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

  ChunkGradient& at(ChunkId chunk) { return chunks_[static_cast<size_t>(chunk.value())]; }
  const ChunkGradient& at(ChunkId chunk) const {
    return chunks_[static_cast<size_t>(chunk.value())];
  }
  BlockIndex Index(StateKind kind, ChunkId chunk) const { return manager_.IndexOf({kind, chunk}); }
  std::vector<BlockIndex> WrittenBlocks(ChunkId chunk) const;
  std::vector<BlockIndex> UpdatedBlocks(ChunkId chunk) const;
  bool NormReady(ChunkId chunk) const;
  bool UpdateReady(ChunkId chunk) const;
  void RunNorm(ChunkId chunk);
  void RunUpdate(const Job& job);
  void UpdateSlice(const Job& job, const TensorSlice& slice);
  std::byte* Address(BlockId block, int64_t element) const;
  uint8_t* Codes(ChunkId chunk) const;  // of eight-bit moments
  void UpdateEightBitChunk(const Job& job);
  OptimizerSlice SliceAt(ChunkId chunk, int64_t begin, int64_t count) const;

  ChunkManager& manager_;
  BlockMover& mover_;
  ThreadTeam* team_;
  std::vector<RegistrationOptions> tensors_;
  std::vector<Tier> update_tiers_;
  std::function<absl::Status(ChunkId, int64_t)> on_updated_;
  EightBitMoments eight_bit_;

  std::vector<ChunkGradient> chunks_;
  std::vector<double> partials_;
  int64_t trainable_chunks_ = 0;
  int64_t pending_ = 0;
  int64_t running_ = 0;
  std::shared_ptr<StepContext> current_;
  std::set<std::pair<int64_t, int64_t>> to_norm_;    // (order, chunk)
  std::set<std::pair<int64_t, int64_t>> to_update_;  // (order, chunk); normed, maybe undecided
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_UPDATE_QUEUE_H_
