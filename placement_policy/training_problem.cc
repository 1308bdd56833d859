#include "placement_policy/training_problem.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

class Builder {
 public:
  Builder(const Trace& trace, const Machine& machine, const TrainingChoices& choices)
      : trace_(trace), machine_(machine), choices_(choices) {}

  absl::StatusOr<TrainingProblem> Run() {
    GANTRY_RETURN_IF_ERROR(machine_.Validate());
    if (choices_.chunks.size() != trace_.chunks.size()) {
      return InvalidArgument("choices for ", choices_.chunks.size(), " chunks; the trace has ",
                             trace_.chunks.size());
    }
    if (!choices_.activations.empty() && choices_.activations.size() != trace_.activations.size()) {
      return InvalidArgument("choices for ", choices_.activations.size(),
                             " activations; the trace has ", trace_.activations.size());
    }
    SetMachine();
    FreeActivations();
    if (trace_.chunks.empty()) {
      AddTraceAsItIs();
    } else {
      FindChunks();
      AddBlocks();
      AddMoments();
      AddHostUpdates();
    }
    GANTRY_RETURN_IF_ERROR(CheckCapacity());
    GANTRY_RETURN_IF_ERROR(result_.problem.Validate());
    return std::move(result_);
  }

 private:
  struct Chunk {
    bool has_gradient = false;
    bool updated = false;    // here, rather than on the rank that the gradient leaves for
    int32_t complete = -1;   // trace moment
    int32_t first_use = -1;  // of the parameter, trace moment
    Nanoseconds measured_update = 0;
    BlockAccess parameter_access = BlockAccess::kCreate;  // of the update
  };

  void SetMachine() {
    MovementProblem& problem = result_.problem;
    const MachineRates& rates = machine_.rates;
    problem.slot_bytes = machine_.slot_bytes.count();
    // On a unified device the file is what lies below it.
    problem.host_to_device = machine_.unified ? rates.file_read : rates.host_to_device;
    problem.device_to_host = machine_.unified ? rates.file_write : rates.device_to_host;
    const Duplex link = machine_.unified ? rates.file_duplex : rates.copy_duplex;
    problem.link_half_duplex = link == Duplex::kExclusive;
    problem.file_read = rates.file_read;
    problem.file_write = rates.file_write;
    problem.file_half_duplex = rates.file_duplex == Duplex::kExclusive;
    Share(link,
          machine_.unified ? rates.file_mixed_bytes_per_second : rates.copy_mixed_bytes_per_second,
          problem.host_to_device, problem.device_to_host);
    Share(rates.file_duplex, rates.file_mixed_bytes_per_second, problem.file_read,
          problem.file_write);
    problem.wait_for_norm = choices_.wait_for_norm;
    problem.host_buffers = choices_.host_buffers;
  }

  // Lanes that slow each other are taken at the rate that each has when both are busy.
  static void Share(Duplex duplex, int64_t mixed, Lane& a, Lane& b) {
    if (duplex != Duplex::kMixed || mixed <= 0) return;
    a.bytes_per_second = std::min(a.bytes_per_second, std::max<int64_t>(mixed / 2, 1));
    b.bytes_per_second = std::min(b.bytes_per_second, std::max<int64_t>(mixed / 2, 1));
  }

  // By trace moment: slots that activations do not hold there, and time to compute some again.
  void FreeActivations() {
    freed_.assign(trace_.moments.size() + 1, 0);  // changes first, then sums
    again_.assign(trace_.moments.size(), 0);
    for (size_t a = 0; a < choices_.activations.size(); ++a) {
      const SavedActivation& saved = trace_.activations[a];
      const ActivationPlace place = choices_.activations[a];
      const auto created = static_cast<size_t>(saved.created);
      const auto used = static_cast<size_t>(saved.used);
      if (place == ActivationPlace::kKeep) continue;
      const bool recompute = place == ActivationPlace::kRecompute;
      freed_[recompute ? created + 1 : created] += saved.slots;
      freed_[recompute ? used : used + 1] -= saved.slots;
      if (recompute) again_[used] += saved.recompute;
    }
    for (size_t m = 1; m < freed_.size(); ++m) freed_[m] += freed_[m - 1];
  }

  // Blocks of the activations that may leave, and their uses.
  void AddActivations() {
    result_.activations.resize(trace_.activations.size());
    activation_uses_.resize(trace_.moments.size());
    for (size_t a = 0; a < choices_.activations.size(); ++a) {
      const SavedActivation& saved = trace_.activations[a];
      const ActivationPlace place = choices_.activations[a];
      if (place != ActivationPlace::kHost && place != ActivationPlace::kFile) continue;
      for (int64_t left = saved.slots; left > 0; left -= kActivationBlockSlots) {
        const auto block = static_cast<int32_t>(result_.problem.block_slots.size());
        result_.problem.block_slots.push_back(
            static_cast<int32_t>(std::min(left, kActivationBlockSlots)));
        result_.problem.in_file.push_back(place == ActivationPlace::kFile && !machine_.unified);
        result_.problem.stays.push_back(false);
        result_.activations[a].push_back(block);
        activation_uses_[static_cast<size_t>(saved.created)].push_back(
            {block, BlockAccess::kCreate});
        activation_uses_[static_cast<size_t>(saved.used)].push_back({block, BlockAccess::kConsume});
      }
    }
  }

  int64_t CapacityAt(size_t m) const {
    return machine_.device_slots - trace_.moments[m].activation_slots + freed_[m];
  }
  int64_t SlotsOf(int32_t block) const {
    return block < 0 ? 0 : trace_.block_slots[static_cast<size_t>(block)];
  }

  void AddTraceAsItIs() {
    MovementProblem& problem = result_.problem;
    // Blocks that do not exist have no uses.
    for (const int8_t slots : trace_.block_slots) {
      problem.block_slots.push_back(std::max<int32_t>(slots, 1));
    }
    problem.in_file.assign(problem.block_slots.size(), false);
    problem.stays.assign(problem.block_slots.size(), false);
    AddActivations();
    for (size_t m = 0; m < trace_.moments.size(); ++m) {
      result_.moment.push_back(static_cast<int32_t>(m));
      BeginTraceMoment(m);
      for (const BlockUse& use : trace_.uses_of(trace_.moments[m])) Use(use.block, use.access);
    }
  }

  void FindChunks() {
    facts_.resize(trace_.chunks.size());
    kind_of_.assign(trace_.block_slots.size(), {-1, Kind::kOther});
    for (size_t c = 0; c < trace_.chunks.size(); ++c) {
      const TraceChunk& chunk = trace_.chunks[c];
      const auto index = static_cast<int32_t>(c);
      kind_of_[static_cast<size_t>(chunk.parameter)] = {index, Kind::kParameter};
      if (chunk.gradient >= 0)
        kind_of_[static_cast<size_t>(chunk.gradient)] = {index, Kind::kGradient};
      for (const int32_t state : chunk.states) {
        if (state >= 0) kind_of_[static_cast<size_t>(state)] = {index, Kind::kState};
      }
    }
    for (size_t m = 0; m < trace_.moments.size(); ++m) {
      const Moment& moment = trace_.moments[m];
      for (const BlockUse& use : trace_.uses_of(moment)) {
        const auto [c, kind] = kind_of_[static_cast<size_t>(use.block)];
        if (c < 0) continue;
        NoteUse(facts_[static_cast<size_t>(c)], kind, use, moment, static_cast<int32_t>(m));
      }
    }
    for (const Chunk& chunk : facts_) {
      if (chunk.updated) last_complete_ = std::max(last_complete_, chunk.complete);
    }
  }

  enum class Kind : uint8_t { kOther, kParameter, kGradient, kState };

  static void NoteUse(Chunk& chunk, Kind kind, const BlockUse& use, const Moment& moment,
                      int32_t m) {
    if (moment.phase == Phase::kOptimizer) {
      chunk.measured_update = std::max(chunk.measured_update, moment.compute);
      if (kind == Kind::kParameter) chunk.parameter_access = use.access;
      return;
    }
    if (kind == Kind::kGradient) {
      chunk.has_gradient = true;
      chunk.updated = use.access != BlockAccess::kConsume;
      chunk.complete = std::max(chunk.complete, m);
    }
    if (kind == Kind::kParameter) {
      if (chunk.first_use < 0) chunk.first_use = m;
      chunk.complete = std::max(chunk.complete, m);
    }
  }

  const ChunkChoice& choice(size_t c) const { return choices_.chunks[c]; }
  bool OnDevice(size_t c) const {
    return facts_[c].updated && (machine_.unified || choice(c).place != UpdatePlace::kHost);
  }
  bool InNextForward(size_t c) const {
    return OnDevice(c) && choice(c).place == UpdatePlace::kNextForward && facts_[c].first_use >= 0;
  }

  void AddBlocks() {
    const auto add = [this](int64_t slots, bool in_file, bool stays) {
      result_.problem.block_slots.push_back(static_cast<int32_t>(slots));
      result_.problem.in_file.push_back(in_file);
      result_.problem.stays.push_back(stays);
      return static_cast<int32_t>(result_.problem.block_slots.size()) - 1;
    };
    for (size_t c = 0; c < trace_.chunks.size(); ++c) {
      const UpdateFacts facts = UpdateFactsOf(trace_, trace_.chunks[c]);
      const bool states = OnDevice(c) && facts.states > 0;
      const bool in_file = choice(c).parameter_in_file && !machine_.unified;
      const bool stays = choice(c).parameter_stays && OnDevice(c);
      result_.parameter.push_back(add(facts.parameter, in_file, stays));
      result_.gradient.push_back(facts_[c].has_gradient ? add(facts.gradient, false, false) : -1);
      const bool states_in_file = choice(c).states_in_file && !machine_.unified;
      result_.states.push_back(states ? add(facts.states, states_in_file, choice(c).states_stay)
                                      : -1);
    }
    AddActivations();
  }

  void AddMoments() {
    result_.moment.assign(trace_.moments.size(), -1);
    result_.update_moment.assign(trace_.chunks.size(), -1);
    std::vector<std::vector<int32_t>> before(trace_.moments.size());
    std::vector<std::vector<int32_t>> after(trace_.moments.size());
    for (const int32_t c : DeviceUpdatesInOrder()) {
      const Chunk& chunk = facts_[static_cast<size_t>(c)];
      if (InNextForward(static_cast<size_t>(c))) {
        before[static_cast<size_t>(chunk.first_use)].push_back(c);
      } else {
        const int32_t at = choices_.wait_for_norm ? last_complete_ : chunk.complete;
        after[static_cast<size_t>(at)].push_back(c);
      }
    }
    for (size_t m = 0; m < trace_.moments.size(); ++m) {
      const Moment& moment = trace_.moments[m];
      if (moment.phase == Phase::kOptimizer) continue;
      for (const int32_t c : before[m]) AddDeviceUpdate(c, m);
      result_.moment[m] = static_cast<int32_t>(result_.problem.moments.size());
      BeginTraceMoment(m);
      for (const BlockUse& use : trace_.uses_of(moment)) {
        const auto [c, kind] = kind_of_[static_cast<size_t>(use.block)];
        if (c < 0) continue;
        if (kind == Kind::kParameter) Use(result_.parameter[static_cast<size_t>(c)], use.access);
        if (kind == Kind::kGradient) Use(result_.gradient[static_cast<size_t>(c)], use.access);
      }
      if (static_cast<int32_t>(m) == last_complete_) {
        result_.problem.norm_moment = static_cast<int32_t>(result_.problem.moments.size()) - 1;
      }
      for (const int32_t c : after[m]) AddDeviceUpdate(c, m);
    }
  }

  // Chunks updated on the device, in the order of their parameters' first use.
  std::vector<int32_t> DeviceUpdatesInOrder() const {
    std::vector<int32_t> order;
    for (size_t c = 0; c < trace_.chunks.size(); ++c) {
      if (OnDevice(c)) order.push_back(static_cast<int32_t>(c));
    }
    std::ranges::stable_sort(
        order, {}, [this](int32_t c) { return facts_[static_cast<size_t>(c)].first_use; });
    return order;
  }

  // Beside trace moment m, with the activations of that.
  void AddDeviceUpdate(int32_t index, size_t m) {
    const auto c = static_cast<size_t>(index);
    const UpdateFacts facts = UpdateFactsOf(trace_, trace_.chunks[c]);
    const int64_t bytes = facts.traffic() * machine_.slot_bytes.count();
    // On a unified device updates run where they were measured.
    const int64_t rate = machine_.unified ? machine_.rates.host_update_bytes_per_second
                                          : machine_.rates.device_memory_bytes_per_second;
    Nanoseconds time = 0;
    if (machine_.unified && facts_[c].measured_update > 0) {
      time = ComputeTime(facts_[c].measured_update, machine_.rates);
    } else if (rate > 0) {
      time = LaneTime({.bytes_per_second = rate}, bytes);
    }
    MovementProblem& problem = result_.problem;
    result_.update_moment[c] = static_cast<int32_t>(problem.moments.size());
    Begin(time, CapacityAt(m), -1);
    if (choices_.wait_for_norm) {
      problem.moments.back().norm = InNextForward(c) ? MovementProblem::Norm::kOfLastStep
                                                     : MovementProblem::Norm::kOfThisStep;
    }
    Use(result_.gradient[c], BlockAccess::kConsume);
    if (result_.states[c] >= 0) Use(result_.states[c], BlockAccess::kWrite);
    Use(result_.parameter[c], facts_[c].parameter_access);
  }

  void AddHostUpdates() {
    for (size_t c = 0; c < trace_.chunks.size(); ++c) {
      if (!facts_[c].updated || OnDevice(c)) continue;
      const UpdateFacts facts = UpdateFactsOf(trace_, trace_.chunks[c]);
      const int64_t slot = machine_.slot_bytes.count();
      MovementProblem::HostUpdate update = {
          .parameter = result_.parameter[c],
          .gradient = result_.gradient[c],
          .complete = result_.moment[static_cast<size_t>(facts_[c].complete)],
          .file_bytes = choice(c).states_in_file ? facts.states * slot : 0};
      if (facts_[c].measured_update > 0) {
        update.update = ComputeTime(facts_[c].measured_update, machine_.rates);
      } else if (machine_.rates.host_update_bytes_per_second > 0) {
        update.update = LaneTime({.bytes_per_second = machine_.rates.host_update_bytes_per_second},
                                 facts.traffic() * slot);
      }
      result_.problem.updates.push_back(update);
    }
  }

  void BeginTraceMoment(size_t m) {
    const Nanoseconds compute = trace_.moments[m].compute + again_[m];
    Begin(ComputeTime(compute, machine_.rates), CapacityAt(m), static_cast<int64_t>(m));
    for (const BlockUse& use : activation_uses_[m]) Use(use.block, use.access);
  }
  void Begin(Nanoseconds compute, int64_t capacity, int64_t source) {
    result_.problem.moments.push_back(
        {.first_use = static_cast<int64_t>(result_.problem.uses.size()),
         .use_count = 0,
         .compute = compute,
         .capacity = capacity,
         .source = source});
  }
  void Use(int32_t block, BlockAccess access) {
    result_.problem.uses.push_back({block, access});
    ++result_.problem.moments.back().use_count;
  }

  absl::Status CheckCapacity() const {
    const MovementProblem& problem = result_.problem;
    for (const MovementProblem::Moment& moment : problem.moments) {
      int64_t slots = 0;
      for (const BlockUse& use : problem.uses_of(moment)) {
        slots += problem.block_slots[static_cast<size_t>(use.block)];
      }
      if (slots <= moment.capacity) continue;
      const int64_t activations = machine_.device_slots - moment.capacity;
      if (moment.source < 0) {
        return ResourceExhausted("the update of a chunk on the device needs ", slots,
                                 " slots beside ", activations, " of activations; there are ",
                                 machine_.device_slots);
      }
      return ResourceExhausted("moment ", moment.source, " needs ", slots, " slots for its blocks ",
                               "and ", activations, " for activations; the device has ",
                               machine_.device_slots);
    }
    return absl::OkStatus();
  }

  const Trace& trace_;
  const Machine& machine_;
  const TrainingChoices& choices_;
  std::vector<int64_t> freed_;                          // by trace moment
  std::vector<Nanoseconds> again_;                      // by trace moment
  std::vector<std::vector<BlockUse>> activation_uses_;  // by trace moment
  std::vector<Chunk> facts_;
  std::vector<std::pair<int32_t, Kind>> kind_of_;  // by trace block: chunk and kind
  int32_t last_complete_ = -1;
  TrainingProblem result_;
};

}  // namespace

UpdateFacts UpdateFactsOf(const Trace& trace, const TraceChunk& chunk) {
  const auto slots = [&trace](int32_t block) {
    return block < 0 ? 0 : int64_t{trace.block_slots[static_cast<size_t>(block)]};
  };
  UpdateFacts facts{.parameter = slots(chunk.parameter), .gradient = slots(chunk.gradient)};
  for (const int32_t state : chunk.states) facts.states += slots(state);
  return facts;
}

absl::StatusOr<TrainingProblem> BuildProblem(const Trace& trace, const Machine& machine,
                                             const TrainingChoices& choices) {
  return Builder(trace, machine, choices).Run();
}

}  // namespace gantry
