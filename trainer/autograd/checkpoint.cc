#include "trainer/autograd/checkpoint.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace gantry {

// Changes how the tape's operators behave, until destruction.
class CheckpointScope {
 public:
  enum class Run { kFirst, kRecomputation };

  CheckpointScope(Tape& tape, Run run, int64_t saves_needed) : tape_(tape), outer_(tape.scope_) {
    tape.scope_ = {.records = run == Run::kRecomputation,
                   .counts = outer_.counts && run == Run::kFirst,
                   .recomputes = outer_.recomputes || run == Run::kRecomputation,
                   .skips = tape.skipping(),
                   .saves = 0,
                   .saves_needed = saves_needed};
  }
  ~CheckpointScope() { tape_.scope_ = outer_; }
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

  int64_t saves() const { return tape_.scope_.saves; }
  static size_t NodeCount(const Tape& tape) { return tape.nodes_.size(); }
  static absl::Status RunNodesDownTo(Tape& tape, size_t count) {
    return tape.RunNodesDownTo(count);
  }

 private:
  Tape& tape_;
  Tape::Scope outer_;
};

namespace {

class CheckpointNode final : public Node {
 public:
  CheckpointNode(Var input, GradientCellPtr output, CheckpointBody body, int64_t saves)
      : input_(std::move(input)),
        output_(std::move(output)),
        body_(std::move(body)),
        saves_(saves) {}

  absl::Status Backward(Tape& tape) override {
    if (!output_->sum.has_memory()) return absl::OkStatus();
    const size_t nodes = CheckpointScope::NodeCount(tape);
    GANTRY_RETURN_IF_ERROR(Recompute(tape));
    input_ = Var();
    return CheckpointScope::RunNodesDownTo(tape, nodes);
  }

 private:
  // Records the body's nodes and hands the output's gradient to the last of them.
  absl::Status Recompute(Tape& tape) {
    const CheckpointScope scope(tape, CheckpointScope::Run::kRecomputation, saves_);
    GANTRY_ASSIGN_OR_RETURN(const Var output, body_(tape, input_));
    GANTRY_CHECK_EQ(scope.saves(), saves_) << "a checkpoint's body differs between its two runs";
    GANTRY_CHECK(output.requires_gradient());
    output.gradient()->sum = Tape::TakeGradient(output_);
    return absl::OkStatus();
  }

  Var input_;
  GradientCellPtr output_;
  CheckpointBody body_;
  int64_t saves_;
};

}  // namespace

absl::StatusOr<Var> Checkpoint(Tape& tape, const Var& input, CheckpointBody body) {
  if (tape.mode() == Tape::Mode::kEvaluation) return body(tape, input);
  Var saved(tape.Save(input.value()), input.gradient());
  int64_t saves = 0;
  Var output;
  {
    const CheckpointScope scope(tape, CheckpointScope::Run::kFirst, -1);
    GANTRY_ASSIGN_OR_RETURN(output, body(tape, input));
    saves = scope.saves();
  }
  if (output.requires_gradient()) {
    tape.Record(std::make_unique<CheckpointNode>(std::move(saved), output.gradient(),
                                                 std::move(body), saves));
  }
  return output;
}

}  // namespace gantry
