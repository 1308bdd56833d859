#include "placement_policy/synthetic_trace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/model_structure.h"
#include "placement_policy/operator_cost.h"
#include "placement_policy/synthetic_layout.h"

namespace gantry {
namespace {

constexpr int64_t kSequencesMax = kMicroBatchTokensMax;
constexpr int64_t kMicroBatchesMax = 65536;
constexpr int64_t kSyntheticMomentsMax = int64_t{1} << 22;
constexpr double kActivationBytesMax = 0x1p56;  // few enough slots for Trace::Validate
constexpr double kStepSecondsMax = 1e6;         // 11 days: far from overflow in nanoseconds
constexpr double kFlopsPerSecondMax = 1e21;
constexpr double kNanosecondsPerSecond = 1e9;

struct Range {
  int64_t least;
  int64_t most;
};

absl::Status CheckOption(std::string_view name, int64_t value, Range range) {
  if (value >= range.least && value <= range.most) return absl::OkStatus();
  return InvalidArgument("synthetic trace: ", name, " is ", value, "; it must be in [", range.least,
                         ", ", range.most, "]");
}

absl::Status CheckTypes(const SyntheticOptions& options) {
  for (size_t i = 0; i < options.state_slots.size(); ++i) {
    GANTRY_RETURN_IF_ERROR(
        CheckOption(StrCat("state_slots[", i, "]"), options.state_slots[i], {0, 2}));
  }
  if (options.gradient_dtype == DType::kF16) {
    return InvalidArgument("synthetic trace: gradient_dtype is f16; it must be bf16 or f32");
  }
  if (options.parameter_dtype == DType::kF32 && options.gradient_dtype != DType::kF32) {
    return InvalidArgument("synthetic trace: gradient_dtype is ", options.gradient_dtype,
                           "; f32 parameters have f32 gradients");
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const ModelShape& shape, const SyntheticOptions& options) {
  GANTRY_RETURN_IF_ERROR(CheckOption("sequences", options.sequences, {1, kSequencesMax}));
  const int64_t length_max =
      shape.positions > 0 ? std::min(shape.positions, kMicroBatchTokensMax) : kMicroBatchTokensMax;
  GANTRY_RETURN_IF_ERROR(CheckOption("sequence_length", options.sequence_length, {1, length_max}));
  if (options.sequences * options.sequence_length > kMicroBatchTokensMax) {
    return InvalidArgument("synthetic trace: sequences is ", options.sequences, " of ",
                           options.sequence_length, " tokens; a micro-batch has at most ",
                           kMicroBatchTokensMax, " tokens");
  }
  GANTRY_RETURN_IF_ERROR(
      CheckOption("micro_batches", options.micro_batches, {1, kMicroBatchesMax}));
  if (!(options.flops_per_second > 0.0 && options.flops_per_second <= kFlopsPerSecondMax)) {
    return InvalidArgument("synthetic trace: flops_per_second is ", options.flops_per_second,
                           "; it must be in (0, ", kFlopsPerSecondMax, "]");
  }
  return CheckTypes(options);
}

// Consecutive operators that run forward together and backward together: what lies before the
// layers, each layer, what lies behind them.
struct Segment {
  int64_t first_operator;
  int64_t operator_count;
  int32_t layer;
};

std::vector<Segment> SegmentsOf(const ModelStructure& structure) {
  std::vector<Segment> segments;
  for (size_t i = 0; i < structure.operators.size(); ++i) {
    const int32_t layer = structure.operators[i].layer;
    if (segments.empty() || segments.back().layer != layer) {
      segments.push_back({static_cast<int64_t>(i), 0, layer});
    }
    ++segments.back().operator_count;
  }
  return segments;
}

// What is saved between the passes, as whole slots. A micro-batch needs what it saved last first,
// so its saved activations alive are always the first so many. Each gets what it adds to their sum
// rounded down: many small ones do not vanish, and no sum exceeds what the moments hold.
class SavedActivations {
 public:
  SavedActivations(int64_t slot_bytes, int64_t micro_batches, Trace& trace)
      : slot_bytes_(slot_bytes), trace_(trace), open_(static_cast<size_t>(micro_batches)) {}

  struct Entry {
    int64_t micro_batch;
    int64_t bytes;
    Nanoseconds recompute;
  };
  // Saved by the moment added last.
  void Push(const Entry& entry) {
    std::vector<Open>& open = open_[static_cast<size_t>(entry.micro_batch)];
    const int64_t before = open.empty() ? 0 : open.back().bytes_to_here;
    const int64_t after = before + entry.bytes;
    open.push_back({trace_.activations.size(), after});
    trace_.activations.push_back({.created = LastMoment(),
                                  .used = -1,
                                  .slots = after / slot_bytes_ - before / slot_bytes_,
                                  .recompute = entry.recompute});
  }
  // What the micro-batch saved last is needed by the moment added next.
  void Pop(int64_t micro_batch) {
    std::vector<Open>& open = open_[static_cast<size_t>(micro_batch)];
    GANTRY_CHECK(!open.empty());
    trace_.activations[open.back().index].used = LastMoment() + 1;
    open.pop_back();
  }
  bool empty() const { return std::ranges::all_of(open_, &std::vector<Open>::empty); }

 private:
  struct Open {
    size_t index;           // into trace_.activations
    int64_t bytes_to_here;  // of the micro-batch, with this one
  };
  int32_t LastMoment() const { return static_cast<int32_t>(trace_.moments.size()) - 1; }

  int64_t slot_bytes_;
  Trace& trace_;
  std::vector<std::vector<Open>> open_;  // per micro-batch
};

class StepWriter {
 public:
  StepWriter(const ModelShape& shape, const SyntheticOptions& options,
             const ModelStructure& structure, const SyntheticLayout& layout)
      : options_(options),
        structure_(structure),
        layout_(layout),
        segments_(SegmentsOf(structure)),
        slot_bytes_(layout.chunk_elements() * 2),
        saved_(slot_bytes_, options.micro_batches, trace_),
        forward_elapsed_(static_cast<size_t>(options.micro_batches), 0),
        gradient_begun_(static_cast<size_t>(layout.chunk_count()), false),
        parameter_seen_(static_cast<size_t>(layout.chunk_count()), false) {
    const MicroBatchShape micro_batch = {.sequences = options.sequences,
                                         .length = options.sequence_length,
                                         .dtype = options.activation_dtype};
    stream_bytes_ = shape.width * micro_batch.tokens() * SizeOf(options.activation_dtype);
    costs_.reserve(structure.operators.size());
    for (const ModelOperator& op : structure.operators) {
      costs_.push_back(CostOf(shape, structure, op, micro_batch));
    }
    trace_.slot_bytes = Bytes(slot_bytes_);
    trace_.tokens = micro_batch.tokens() * options.micro_batches;
  }

  // Errors for steps with more moments, bytes or time than a trace should have.
  absl::Status CheckSize() const {
    double moments = 0.0;
    double bytes = 0.0;
    double flops = 0.0;
    for (size_t i = 0; i < costs_.size(); ++i) {
      const OperatorCost& cost = costs_[i];
      moments += 3.0 * static_cast<double>(layout_.TilesOf(static_cast<int64_t>(i)).size());
      bytes += static_cast<double>(cost.saved_bytes + cost.stream_bytes) +
               static_cast<double>(cost.forward_bytes + cost.backward_bytes);
      flops += 2.0 * ForwardFlops(i) + BackwardFlops(i);
    }
    const auto micro_batches = static_cast<double>(options_.micro_batches);
    if (moments * micro_batches > static_cast<double>(kSyntheticMomentsMax)) {
      return InvalidArgument("synthetic trace: micro_batches is ", options_.micro_batches,
                             " and chunk_elements ", layout_.chunk_elements(), ", up to ",
                             moments * micro_batches, " moments; the most is ",
                             kSyntheticMomentsMax);
    }
    if (bytes * micro_batches > kActivationBytesMax) {
      return InvalidArgument("synthetic trace: sequences is ", options_.sequences, " of ",
                             options_.sequence_length, " tokens, up to ", bytes * micro_batches,
                             " bytes of activations; the most is ", kActivationBytesMax);
    }
    const double seconds = flops * micro_batches / options_.flops_per_second;
    if (seconds > kStepSecondsMax) {
      return InvalidArgument("synthetic trace: flops_per_second is ", options_.flops_per_second,
                             ", so that a step takes ", seconds, " s; the most is ",
                             kStepSecondsMax, " s");
    }
    return absl::OkStatus();
  }

  Trace Run() {
    AddNames();
    AddBlocks();
    if (options_.order == MicroBatchOrder::kLayerMajor) {
      RunLayerMajor();
    } else {
      for (micro_batch_ = 0; micro_batch_ < options_.micro_batches; ++micro_batch_) {
        for (const Segment& segment : segments_) RunForward(segment);
        for (size_t i = segments_.size(); i-- > 0;) RunBackward(segments_[i]);
      }
    }
    GANTRY_CHECK(saved_.empty() && live_bytes_ == 0 && waiting_gradients_ == 0);
    AddUpdates();
    return std::move(trace_);
  }

 private:
  bool is_frozen() const { return options_.lora_rank > 0; }
  bool recomputes(const Segment& segment) const {
    return segment.layer >= 0 && options_.recomputation != Recomputation::kNone;
  }
  // Adapters are two products more, with fewer rows where the matrix has.
  double AdapterFlops(size_t op) const {
    return 2.0 * costs_[op].tensor_rows *
           static_cast<double>(layout_.AdapterElementsOf(static_cast<int64_t>(op)));
  }
  double ForwardFlops(size_t op) const { return costs_[op].forward_flops + AdapterFlops(op); }
  double BackwardFlops(size_t op) const {
    const double own = is_frozen() ? 0.0 : costs_[op].weight_gradient_flops;
    return costs_[op].input_gradient_flops + own + 2.0 * AdapterFlops(op);
  }

  void AddNames() {
    for (int kind = 0; kind <= static_cast<int>(OperatorKind::kHead); ++kind) {
      trace_.names.emplace_back(Name(static_cast<OperatorKind>(kind)));
    }
    trace_.names.emplace_back("optimizer update");
  }

  void AddBlocks() {
    const int64_t chunks = layout_.chunk_count();
    const auto slots_of = [&](int64_t kind, int64_t chunk) -> int8_t {
      if (kind == 0) return static_cast<int8_t>(SizeOf(options_.parameter_dtype) / 2);
      if (is_frozen() && !layout_.IsAdapter(chunk)) return 0;
      if (kind == 1) return static_cast<int8_t>(SizeOf(options_.gradient_dtype) / 2);
      return options_.state_slots[static_cast<size_t>(kind - 2)];
    };
    trace_.chunks.resize(static_cast<size_t>(chunks));
    for (int64_t kind = 0; kind < 5; ++kind) {
      for (int64_t c = 0; c < chunks; ++c) {
        trace_.block_slots.push_back(slots_of(kind, c));
        if (trace_.block_slots.back() == 0) continue;
        TraceChunk& chunk = trace_.chunks[static_cast<size_t>(c)];
        int32_t& block = kind == 0   ? chunk.parameter
                         : kind == 1 ? chunk.gradient
                                     : chunk.states[static_cast<size_t>(kind - 2)];
        block = static_cast<int32_t>(kind * chunks + c);
      }
    }
  }

  void RunLayerMajor() {
    for (const Segment& segment : segments_) {
      for (micro_batch_ = options_.micro_batches; micro_batch_-- > 0;) RunForward(segment);
    }
    for (size_t i = segments_.size(); i-- > 0;) {
      for (micro_batch_ = 0; micro_batch_ < options_.micro_batches; ++micro_batch_) {
        RunBackward(segments_[i]);
      }
    }
  }

  // One run of an operator over all its tiles.
  struct OperatorRun {
    size_t op;
    Phase phase;
    double flops;
    int64_t bytes;  // of activations
    bool writes_gradients;
  };

  void RunForward(const Segment& segment) {
    const bool keeps = !recomputes(segment);
    Nanoseconds& elapsed = forward_elapsed_[static_cast<size_t>(micro_batch_)];
    const Nanoseconds begin = elapsed;
    int64_t inside = 0;
    int64_t passing = 0;  // of what is not kept: what lives on from the operators before
    for (int64_t i = 0; i < segment.operator_count; ++i) {
      const auto op = static_cast<size_t>(segment.first_operator + i);
      const OperatorCost& cost = costs_[op];
      live_bytes_ += cost.stream_bytes + (keeps ? cost.saved_bytes : 0);
      inside += cost.saved_bytes;
      elapsed +=
          Add({.op = op,
               .phase = Phase::kForward,
               .flops = ForwardFlops(op),
               .bytes = live_bytes_ + cost.forward_bytes + (keeps ? 0 : passing + cost.saved_bytes),
               .writes_gradients = false});
      passing = cost.read_next_bytes + (IsAfterMiddle(segment, i) ? stream_bytes_ : 0);
    }
    if (segment.layer >= 0 && keeps) {
      saved_.Push({.micro_batch = micro_batch_, .bytes = inside, .recompute = elapsed - begin});
    }
    const auto last = static_cast<size_t>(segment.first_operator + segment.operator_count - 1);
    if (costs_[last].stream_bytes > 0) {
      saved_.Push(
          {.micro_batch = micro_batch_, .bytes = costs_[last].stream_bytes, .recompute = elapsed});
    }
  }

  void RunBackward(const Segment& segment) {
    const bool is_first = segment.first_operator == 0;
    const bool is_last = segment.first_operator == segments_.back().first_operator;
    // The gradient of this micro-batch's stream is part of its operators' bytes.
    if (!is_last) --waiting_gradients_;
    if (!is_first) {
      if (segment.layer >= 0) saved_.Pop(micro_batch_);  // the inside, or else the input
      if (recomputes(segment)) RunAgain(segment);
    }
    for (int64_t i = segment.operator_count; i-- > 0;) {
      const auto op = static_cast<size_t>(segment.first_operator + i);
      // A layer's input is needed by its first norm, at the latest.
      if (i == 0 && !is_first && !recomputes(segment)) saved_.Pop(micro_batch_);
      if (is_first && is_frozen()) continue;
      Add({.op = op,
           .phase = Phase::kBackward,
           .flops = BackwardFlops(op),
           .bytes = live_bytes_ + waiting_gradients_ * stream_bytes_ + costs_[op].backward_bytes,
           .writes_gradients = true});
      live_bytes_ -= costs_[op].saved_bytes;
    }
    if (!is_first) {
      live_bytes_ -= stream_bytes_;
      ++waiting_gradients_;
    }
  }

  // Whether the residual stream in the middle of a layer waits for its end.
  bool IsAfterMiddle(const Segment& segment, int64_t index) const {
    const auto first = structure_.operators.begin() + segment.first_operator;
    return std::any_of(first, first + index + 1, [](const ModelOperator& op) {
      return op.kind == OperatorKind::kAttentionOutput;
    });
  }

  // A layer's forward pass for the backward pass, with the gradient of its output waiting.
  void RunAgain(const Segment& segment) {
    for (int64_t i = 0; i < segment.operator_count; ++i) {
      const auto op = static_cast<size_t>(segment.first_operator + i);
      live_bytes_ += costs_[op].saved_bytes;
      if (options_.recomputation == Recomputation::kNeeded &&
          structure_.operators[op].kind == OperatorKind::kMlpDown) {
        continue;
      }
      Add({.op = op,
           .phase = Phase::kBackward,
           .flops = ForwardFlops(op),
           .bytes = live_bytes_ + (waiting_gradients_ + 1) * stream_bytes_ +
                    costs_[op].forward_bytes + costs_[op].stream_bytes,
           .writes_gradients = false});
    }
  }

  // Adds the moments and returns the time that they take.
  Nanoseconds Add(const OperatorRun& run) {
    const ModelOperator& op = structure_.operators[run.op];
    Nanoseconds elapsed = 0;
    for (const OperatorTile& tile : layout_.TilesOf(static_cast<int64_t>(run.op))) {
      Moment moment{.phase = run.phase,
                    .name = static_cast<int32_t>(op.kind),
                    .first_use = static_cast<int64_t>(trace_.uses.size()),
                    .use_count = 0,
                    .compute = DurationOf(run.flops * tile.share),
                    .activation_slots = CeilDiv(run.bytes, slot_bytes_),
                    .micro_batch = static_cast<int32_t>(micro_batch_),
                    .layer = op.layer};
      // Rows of a table are copied, so its backward pass does not read it.
      const bool reads = op.kind != OperatorKind::kEmbedding || !run.writes_gradients;
      for (const ChunkSpan& span : {tile.chunks, tile.adapter_chunks}) {
        for (int64_t chunk = span.first; chunk <= span.last; ++chunk) {
          if (reads) AddRead(chunk);
          if (run.writes_gradients) AddGradient(chunk);
        }
      }
      moment.use_count = static_cast<int64_t>(trace_.uses.size()) - moment.first_use;
      elapsed += moment.compute;
      trace_.moments.push_back(moment);
    }
    return elapsed;
  }

  Nanoseconds DurationOf(double flops) const {
    return std::llround(flops / options_.flops_per_second * kNanosecondsPerSecond);
  }

  void AddRead(int64_t chunk) {
    const auto c = static_cast<size_t>(chunk);
    trace_.uses.push_back({trace_.chunks[c].parameter, BlockAccess::kRead});
    if (parameter_seen_[c]) return;
    parameter_seen_[c] = true;
    by_first_use_.push_back(c);
  }

  void AddGradient(int64_t chunk) {
    const auto c = static_cast<size_t>(chunk);
    const int32_t gradient = trace_.chunks[c].gradient;
    if (gradient < 0) return;
    trace_.uses.push_back(
        {gradient, gradient_begun_[c] ? BlockAccess::kWrite : BlockAccess::kCreate});
    gradient_begun_[c] = true;
  }

  void AddUpdates() {
    const auto name = static_cast<int32_t>(trace_.names.size()) - 1;
    // A master that is not whole is made of the parameter.
    const BlockAccess parameter_access =
        options_.state_slots[0] == 2 ? BlockAccess::kCreate : BlockAccess::kWrite;
    for (const size_t c : by_first_use_) {
      const TraceChunk& chunk = trace_.chunks[c];
      if (chunk.gradient < 0) continue;
      const auto first = static_cast<int64_t>(trace_.uses.size());
      trace_.uses.push_back({chunk.gradient, BlockAccess::kConsume});
      for (const int32_t state : chunk.states) {
        if (state >= 0) trace_.uses.push_back({state, BlockAccess::kWrite});
      }
      trace_.uses.push_back({chunk.parameter, parameter_access});
      trace_.moments.push_back({.phase = Phase::kOptimizer,
                                .name = name,
                                .first_use = first,
                                .use_count = static_cast<int64_t>(trace_.uses.size()) - first,
                                .compute = 0,
                                .activation_slots = 0});
    }
  }

  const SyntheticOptions& options_;
  const ModelStructure& structure_;
  const SyntheticLayout& layout_;
  std::vector<Segment> segments_;
  std::vector<OperatorCost> costs_;  // per operator
  int64_t slot_bytes_;
  int64_t stream_bytes_ = 0;  // of one micro-batch's residual stream
  Trace trace_;
  SavedActivations saved_;
  int64_t micro_batch_ = 0;
  int64_t live_bytes_ = 0;         // kept for backward passes
  int64_t waiting_gradients_ = 0;  // micro-batches whose stream's gradient waits for a segment
  std::vector<Nanoseconds> forward_elapsed_;  // per micro-batch
  std::vector<bool> gradient_begun_;          // per chunk
  std::vector<bool> parameter_seen_;          // per chunk
  std::vector<size_t> by_first_use_;          // chunks
};

}  // namespace

absl::StatusOr<Trace> SyntheticTrace(const ModelShape& shape, const SyntheticOptions& options) {
  GANTRY_RETURN_IF_ERROR(shape.Validate());
  GANTRY_RETURN_IF_ERROR(CheckOptions(shape, options));
  const ModelStructure structure = StructureOf(shape);
  GANTRY_ASSIGN_OR_RETURN(
      const SyntheticLayout layout,
      SyntheticLayout::Create(
          structure, {.chunk_elements = options.chunk_elements, .lora_rank = options.lora_rank}));
  StepWriter writer(shape, options, structure, layout);
  GANTRY_RETURN_IF_ERROR(writer.CheckSize());
  return ShardTrace(writer.Run(), options.shard);
}

void ScaleCompute(double factor, Trace& trace) {
  GANTRY_CHECK(factor > 0.0) << factor;
  const auto scaled = [factor](Nanoseconds time) -> Nanoseconds {
    const double product = static_cast<double>(time) * factor;
    GANTRY_CHECK(product < 0x1p63) << time << " ns times " << factor;
    return std::llround(product);
  };
  for (Moment& moment : trace.moments) moment.compute = scaled(moment.compute);
  for (SavedActivation& saved : trace.activations) saved.recompute = scaled(saved.recompute);
}

}  // namespace gantry
