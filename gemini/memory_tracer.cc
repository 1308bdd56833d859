#include "gemini/memory_tracer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "gemini/layer_rows.h"

namespace gantry {

uint64_t LeaseSignature(std::span<const ParameterUse> uses, Phase phase) {
  // FNV-1a over 64-bit words.
  uint64_t hash = 0xcbf29ce484222325ull;
  const auto add = [&hash](uint64_t word) { hash = (hash ^ word) * 0x100000001b3ull; };
  add(static_cast<uint64_t>(phase));
  for (const ParameterUse& use : uses) {
    add(static_cast<uint64_t>(use.tensor.value()) * 4 + static_cast<uint64_t>(use.access));
  }
  return hash;
}

void MemoryTracer::Begin(const StepOptions& options) {
  recording_ = true;
  record_ = StepRecord{};
  record_.optimizer = options.optimizer.has_value();
}

StepRecord MemoryTracer::End() {
  GANTRY_CHECK(recording_);
  recording_ = false;
  return std::exchange(record_, StepRecord{});
}

void MemoryTracer::Add(const StepRecord::Event& event) {
  if (recording_) record_.events.push_back(event);
}

void MemoryTracer::OnMicroBatch() {
  if (!recording_) return;
  ++record_.micro_batches;
  Add({.kind = StepRecord::Event::Kind::kMicroBatch});
}

void MemoryTracer::OnAcquire(std::span<const ParameterUse> uses, std::string_view name,
                             Phase phase) {
  if (!recording_) return;
  const auto known = std::find(record_.names.begin(), record_.names.end(), name);
  const auto number = static_cast<int32_t>(known - record_.names.begin());
  if (known == record_.names.end()) record_.names.emplace_back(name);
  Add({.kind = StepRecord::Event::Kind::kAcquire,
       .phase = phase,
       .name = number,
       .first_use = static_cast<int32_t>(record_.uses.size()),
       .use_count = static_cast<int32_t>(uses.size())});
  record_.uses.insert(record_.uses.end(), uses.begin(), uses.end());
}

void MemoryTracer::OnRelease() { Add({.kind = StepRecord::Event::Kind::kRelease}); }

void MemoryTracer::OnGradientReady(TensorId tensor) {
  Add({.kind = StepRecord::Event::Kind::kGradientReady, .offset = tensor.value()});
}

void MemoryTracer::OnBeginLayer(const StepRecord::Layer& layer) {
  if (!recording_) return;
  Add({.kind = StepRecord::Event::Kind::kBeginLayer, .offset = std::ssize(record_.layers)});
  record_.layers.push_back(layer);
}

void MemoryTracer::OnEndLayer(int64_t pass, int64_t output) {
  if (!recording_) return;
  record_.layers[static_cast<size_t>(pass)].output = output;
  Add({.kind = StepRecord::Event::Kind::kEndLayer, .offset = pass});
}

void MemoryTracer::OnBeginLayerBackward(int64_t pass) {
  Add({.kind = StepRecord::Event::Kind::kBeginLayerBackward, .offset = pass});
}

void MemoryTracer::OnEndLayerBackward(int64_t pass) {
  Add({.kind = StepRecord::Event::Kind::kEndLayerBackward, .offset = pass});
}

void MemoryTracer::OnAllocate(int64_t offset, int64_t bytes) {
  Add({.kind = StepRecord::Event::Kind::kAllocate, .offset = offset, .bytes = bytes});
}

void MemoryTracer::OnFree(int64_t offset, int64_t bytes) {
  Add({.kind = StepRecord::Event::Kind::kFree, .offset = offset, .bytes = bytes});
}

namespace {

// Counts the arena pages under live allocations, as ActivationArena does.
class LivePages {
 public:
  explicit LivePages(int64_t page_bytes) : page_bytes_(page_bytes) {}

  void Allocate(int64_t offset, int64_t bytes) {
    if (bytes > 0 && alive_.insert(offset).second) Change(offset, bytes, 1);
  }
  // What was allocated before the record began was never counted.
  void Free(int64_t offset, int64_t bytes) {
    if (alive_.erase(offset) > 0) Change(offset, bytes, -1);
  }
  int64_t live() const { return live_; }

 private:
  void Change(int64_t offset, int64_t bytes, int64_t by) {
    const int64_t last = (offset + bytes - 1) / page_bytes_;
    if (static_cast<int64_t>(allocations_.size()) <= last) {
      allocations_.resize(static_cast<size_t>(last + 1), 0);
    }
    for (int64_t page = offset / page_bytes_; page <= last; ++page) {
      int64_t& count = allocations_[static_cast<size_t>(page)];
      if (count == 0) ++live_;
      count += by;
      if (count == 0) --live_;
    }
  }

  int64_t page_bytes_;
  int64_t live_ = 0;
  std::vector<int64_t> allocations_;    // per page
  absl::flat_hash_set<int64_t> alive_;  // offsets
};

class StepCompiler {
 public:
  StepCompiler(const StepRecord& record, const ChunkLayout& layout, const SavedMemory* saved)
      : record_(record),
        layout_(layout),
        saved_(saved),
        rows_(record, layout.slot_bytes().count()),
        pages_(layout.slot_bytes().count()),
        gradient_begun_(static_cast<size_t>(layout.chunk_count()), false),
        first_forward_(static_cast<size_t>(layout.chunk_count()),
                       std::numeric_limits<int64_t>::max()) {}

  CompiledStep Run() {
    Trace& trace = step_.trace;
    trace.names = record_.names;
    const int64_t chunks = layout_.chunk_count();
    for (int64_t block = 0; block < chunks * kStateKindCount; ++block) {
      const BlockId id{static_cast<StateKind>(block / chunks), ChunkId(block % chunks)};
      trace.block_slots.push_back(layout_.HasBlock(id) ? static_cast<int8_t>(layout_.slots_of(id))
                                                       : int8_t{0});
    }
    AddChunks();
    for (int64_t i = 0; saved_ != nullptr && i < saved_->blocks; ++i) {
      trace.block_slots.push_back(1);
    }
    trace.slot_bytes = layout_.slot_bytes();
    step_.layers.resize(record_.layers.size());
    for (size_t p = 0; p < record_.layers.size(); ++p) {
      step_.layers[p].saving = record_.layers[p].saving;
    }
    for (const StepRecord::Event& event : record_.events) OnEvent(event);
    AddActivations();
    AddMovedBlocks();
    step_.update_moment.assign(static_cast<size_t>(chunks), -1);
    AddChunkOrder();
    if (record_.optimizer) AddOptimizerMoments();
    AddActivationWindows();
    return std::move(step_);
  }

 private:
  void OnEvent(const StepRecord::Event& event) {
    using Kind = StepRecord::Event::Kind;
    switch (event.kind) {
      case Kind::kAcquire:
        AddLeaseMoment(event);
        break;
      case Kind::kAllocate:
        pages_.Allocate(event.offset, event.bytes);
        rows_.OnAllocate(event.offset, event.bytes);
        NotePages();
        break;
      case Kind::kFree:
        pages_.Free(event.offset, event.bytes);
        rows_.OnFree(event.offset, event.bytes, LastMoment());
        break;
      case Kind::kMicroBatch:
        ++micro_batch_;
        break;
      case Kind::kBeginLayer:
      case Kind::kEndLayer:
      case Kind::kBeginLayerBackward:
      case Kind::kEndLayerBackward:
        OnLayerEvent(event);
        break;
      case Kind::kRelease:
      case Kind::kGradientReady:
        break;
    }
  }

  void OnLayerEvent(const StepRecord::Event& event) {
    using Kind = StepRecord::Event::Kind;
    const auto p = static_cast<size_t>(event.offset);
    CompiledStep::Layer& layer = step_.layers[p];
    const bool moves = layer.saving == LayerSaving::kMove && saved_ != nullptr;
    const int64_t blocks = moves ? saved_->passes[p].blocks : 0;
    switch (event.kind) {
      case Kind::kBeginLayer:
        layer_ = record_.layers[p].layer;
        layer.first = LastMoment() + 1;
        pinned_ += blocks;
        rows_.OnBeginLayer(event.offset, MicroBatch(), LastMoment());
        break;
      case Kind::kEndLayer:
        layer_ = -1;
        layer.created = LastMoment();
        pinned_ -= blocks;
        rows_.OnEndLayer(event.offset, MicroBatch(), LastMoment());
        break;
      case Kind::kBeginLayerBackward:
        layer_ = record_.layers[p].layer;
        layer.used = LastMoment() + 1;
        pinned_ += blocks;
        rows_.OnBeginLayerBackward(event.offset, LastMoment());
        break;
      default:
        layer_ = -1;
        pinned_ -= blocks;
        break;
    }
  }

  void AddActivations() {
    const auto leases = static_cast<int32_t>(step_.signatures.size());
    for (const LayerRows::Row& row : rows_.rows()) {
      if (row.used <= row.created || row.created < 0 || row.used >= leases) continue;
      step_.trace.activations.push_back(
          {.created = row.created, .used = row.used, .slots = row.slots});
      step_.remakings.push_back({.first = row.first, .last = row.created, .pass = row.pass});
    }
  }

  int32_t LastMoment() const { return static_cast<int32_t>(step_.trace.moments.size()) - 1; }
  int32_t MicroBatch() const { return std::max(micro_batch_ - 1, 0); }

  // The moments that create and consume moved layers' blocks use them; elsewhere within the two
  // passes they are activations.
  void AddMovedBlocks() {
    std::vector<std::vector<BlockUse>> more(step_.trace.moments.size());
    std::vector<bool> moved(saved_ == nullptr ? 0 : static_cast<size_t>(saved_->blocks), false);
    for (size_t p = 0; p < step_.layers.size(); ++p) {
      CompiledStep::Layer& layer = step_.layers[p];
      const bool between = layer.created >= layer.first && layer.created >= 0 &&
                           layer.used > layer.created && layer.used <= LastMoment();
      if (!between) layer.used = -1;
      if (layer.saving != LayerSaving::kMove || saved_ == nullptr || !between) continue;
      const SavedMemory::Pass& pass = saved_->passes[p];
      std::fill_n(moved.begin() + pass.first_block, pass.blocks, true);
      for (const auto& [moment, access] : {std::pair(layer.created, BlockAccess::kCreate),
                                           std::pair(layer.used, BlockAccess::kConsume)}) {
        const auto m = static_cast<size_t>(moment);
        step_.trace.moments[m].activation_slots -= pass.blocks;
        for (int64_t i = 0; i < pass.blocks; ++i) {
          more[m].push_back(
              {FirstSavedBlock() + static_cast<int32_t>(pass.first_block + i), access});
        }
      }
    }
    step_.moved_blocks = std::ranges::count(moved, true);
    std::vector<BlockUse> uses;
    for (size_t m = 0; m < more.size(); ++m) {
      Moment& moment = step_.trace.moments[m];
      const std::span<const BlockUse> own = step_.trace.uses_of(moment);
      moment.first_use = std::ssize(uses);
      uses.insert(uses.end(), own.begin(), own.end());
      uses.insert(uses.end(), more[m].begin(), more[m].end());
      moment.use_count = std::ssize(uses) - moment.first_use;
    }
    step_.trace.uses = std::move(uses);
  }
  int32_t FirstSavedBlock() const {
    return static_cast<int32_t>(layout_.chunk_count() * kStateKindCount);
  }

  void AddChunks() {
    const auto block = [this](StateKind kind, ChunkId chunk) {
      if (!layout_.HasBlock({kind, chunk})) return int32_t{-1};
      return static_cast<int32_t>(static_cast<int64_t>(kind) * layout_.chunk_count() +
                                  chunk.value());
    };
    for (int64_t c = 0; c < layout_.chunk_count(); ++c) {
      const ChunkId chunk(c);
      step_.trace.chunks.push_back(
          {.parameter = block(StateKind::kParameter, chunk),
           .gradient = block(StateKind::kGradient, chunk),
           .states = {block(StateKind::kMaster, chunk), block(StateKind::kMomentum, chunk),
                      block(StateKind::kVariance, chunk)}});
    }
  }

  void NotePages() {
    // What comes before the first lease counts for that one.
    if (step_.trace.moments.empty()) {
      most_before_first_ = std::max(most_before_first_, pages_.live());
      return;
    }
    // Blocks that are pinned between two leases count for the later one.
    step_.arena_slots.back() = std::max(step_.arena_slots.back(), pages_.live());
    Moment& moment = step_.trace.moments.back();
    moment.activation_slots = std::max(moment.activation_slots, pages_.live() + pinned_then_);
  }

  void AddLeaseMoment(const StepRecord::Event& event) {
    Trace& trace = step_.trace;
    const std::span<const ParameterUse> uses =
        std::span(record_.uses)
            .subspan(static_cast<size_t>(event.first_use), static_cast<size_t>(event.use_count));
    Moment moment{.phase = event.phase,
                  .name = event.name,
                  .first_use = static_cast<int64_t>(trace.uses.size()),
                  .use_count = 0,
                  .compute = 0,
                  .activation_slots = std::max(pages_.live(), most_before_first_) + pinned_,
                  .micro_batch = MicroBatch(),
                  .layer = layer_};
    pinned_then_ = pinned_;
    step_.arena_slots.push_back(std::max(pages_.live(), most_before_first_));
    most_before_first_ = 0;
    for (const ParameterUse& use : uses) {
      const auto [first, last] = layout_.ChunksOf(use.tensor);
      for (int64_t chunk = first.value(); chunk <= last.value(); ++chunk) {
        AddUse(use.access, ChunkId(chunk), moment.first_use);
      }
    }
    moment.use_count = static_cast<int64_t>(trace.uses.size()) - moment.first_use;
    trace.moments.push_back(moment);
    step_.signatures.push_back(LeaseSignature(uses, event.phase));
    step_.origins.push_back(event.origin);
  }

  void AddUse(ParameterAccess access, ChunkId chunk, int64_t first_use_of_moment) {
    const auto c = static_cast<size_t>(chunk.value());
    if (access != ParameterAccess::kGradient) {
      AddBlock(StateKind::kParameter, chunk, BlockAccess::kRead, first_use_of_moment);
      first_forward_[c] =
          std::min(first_forward_[c], static_cast<int64_t>(step_.trace.moments.size()));
    }
    if (access != ParameterAccess::kRead) {
      AddBlock(StateKind::kGradient, chunk,
               gradient_begun_[c] ? BlockAccess::kWrite : BlockAccess::kCreate,
               first_use_of_moment);
      gradient_begun_[c] = true;
    }
  }

  // Tensors of one lease may share a chunk: each block counts once per moment.
  void AddBlock(StateKind kind, ChunkId chunk, BlockAccess access, int64_t first_use_of_moment) {
    const auto block =
        static_cast<int32_t>(static_cast<int64_t>(kind) * layout_.chunk_count() + chunk.value());
    for (size_t i = static_cast<size_t>(first_use_of_moment); i < step_.trace.uses.size(); ++i) {
      if (step_.trace.uses[i].block == block) return;
    }
    step_.trace.uses.push_back({block, access});
  }

  void AddChunkOrder() {
    by_first_use_.resize(static_cast<size_t>(layout_.chunk_count()));
    std::iota(by_first_use_.begin(), by_first_use_.end(), 0);
    std::sort(by_first_use_.begin(), by_first_use_.end(), [&](int64_t a, int64_t b) {
      return std::pair(first_forward_[static_cast<size_t>(a)], a) <
             std::pair(first_forward_[static_cast<size_t>(b)], b);
    });
    step_.chunk_order.resize(by_first_use_.size());
    for (size_t rank = 0; rank < by_first_use_.size(); ++rank) {
      step_.chunk_order[static_cast<size_t>(by_first_use_[rank])] = static_cast<int64_t>(rank);
    }
  }

  void AddOptimizerMoments() {
    Trace& trace = step_.trace;
    const auto name = static_cast<int32_t>(trace.names.size());
    trace.names.emplace_back("optimizer update");
    for (const int64_t c : by_first_use_) {
      const ChunkId chunk(c);
      if (!layout_.HasBlock({StateKind::kGradient, chunk})) continue;
      step_.update_moment[static_cast<size_t>(c)] = static_cast<int64_t>(trace.moments.size());
      const auto first = static_cast<int64_t>(trace.uses.size());
      AddBlock(StateKind::kGradient, chunk, BlockAccess::kConsume, first);
      for (const StateKind kind :
           {StateKind::kMaster, StateKind::kMomentum, StateKind::kVariance}) {
        if (layout_.HasBlock({kind, chunk})) AddBlock(kind, chunk, BlockAccess::kWrite, first);
      }
      const bool reads = layout_.UpdateReadsParameter(chunk);
      AddBlock(StateKind::kParameter, chunk, reads ? BlockAccess::kWrite : BlockAccess::kCreate,
               first);
      trace.moments.push_back({.phase = Phase::kOptimizer,
                               .name = name,
                               .first_use = first,
                               .use_count = static_cast<int64_t>(trace.uses.size()) - first,
                               .compute = 0,
                               .activation_slots = 0});
    }
  }

  void AddActivationWindows() {
    step_.arena_slots.resize(step_.trace.moments.size(), 0);
    step_.activation_after.resize(step_.arena_slots.size(), 0);
    for (size_t i = 0; i < step_.arena_slots.size(); ++i) {
      const size_t end =
          std::min(step_.arena_slots.size(), i + static_cast<size_t>(CompiledStep::kTrimWindow));
      for (size_t j = i; j < end; ++j) {
        step_.activation_after[i] = std::max(step_.activation_after[i], step_.arena_slots[j]);
      }
    }
  }

  const StepRecord& record_;
  const ChunkLayout& layout_;
  const SavedMemory* saved_;
  LayerRows rows_;
  LivePages pages_;
  std::vector<bool> gradient_begun_;
  std::vector<int64_t> first_forward_;  // first moment that reads the chunk's parameter
  std::vector<int64_t> by_first_use_;   // chunks in that order
  int32_t micro_batch_ = 0;             // of those begun
  int64_t most_before_first_ = 0;       // slots that activations held before the first lease
  int32_t layer_ = -1;                  // whose pass it is
  int64_t pinned_ = 0;                  // blocks of moved layers whose pass it is
  int64_t pinned_then_ = 0;             // the same at the last lease
  CompiledStep step_;
};

}  // namespace

void CompiledStep::FillRecompute() {
  for (size_t a = 0; a < trace.activations.size(); ++a) {
    const Remaking& remaking = remakings[a];
    const int32_t micro_batch =
        trace.moments[static_cast<size_t>(trace.activations[a].created)].micro_batch;
    Nanoseconds time = 0;
    for (int32_t m = remaking.first; m <= remaking.last; ++m) {
      const Moment& moment = trace.moments[static_cast<size_t>(m)];
      if (moment.phase != Phase::kForward || moment.micro_batch != micro_batch) continue;
      time += moment.compute;
    }
    trace.activations[a].recompute = time;
  }
}

CompiledStep CompileStep(const StepRecord& record, const ChunkLayout& layout,
                         const SavedMemory* saved) {
  return StepCompiler(record, layout, saved).Run();
}

Trace TraceWithKeptSlots(const CompiledStep& step) {
  Trace trace = step.trace;
  for (size_t m = 0; m < trace.moments.size(); ++m) {
    trace.moments[m].activation_slots += step.activation_after[m] - step.arena_slots[m];
  }
  return trace;
}

}  // namespace gantry
