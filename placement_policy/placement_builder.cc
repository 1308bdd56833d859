#include "placement_policy/placement_builder.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "placement_policy/training_problem.h"

namespace gantry {
namespace {

// Whether item i of n is one of `chosen`, evenly spread.
bool Spread(int64_t i, int64_t n, int64_t chosen) { return (i + 1) * chosen / n != i * chosen / n; }

}  // namespace

PlacementBuilder::PlacementBuilder(const Trace& trace, const Machine& machine, bool wait_for_norm)
    : trace_(trace),
      machine_(machine),
      wait_for_norm_(wait_for_norm),
      activations_(OrderActivations(trace)) {
  std::vector<int64_t> first(trace_.chunks.size(), static_cast<int64_t>(trace_.moments.size()));
  std::vector<int32_t> chunk_of(trace_.block_slots.size(), -1);
  std::vector<bool> updated(trace_.chunks.size(), false);
  room_least_ = machine_.device_slots;
  for (size_t c = 0; c < trace_.chunks.size(); ++c) {
    chunk_of[static_cast<size_t>(trace_.chunks[c].parameter)] = static_cast<int32_t>(c);
    const int32_t gradient = trace_.chunks[c].gradient;
    if (gradient >= 0) chunk_of[static_cast<size_t>(gradient)] = static_cast<int32_t>(c);
  }
  for (size_t m = 0; m < trace_.moments.size(); ++m) {
    const Moment& moment = trace_.moments[m];
    if (moment.phase == Phase::kOptimizer) continue;
    compute_seconds_ += static_cast<double>(moment.compute) * machine_.rates.compute_scale / 1e9;
    // Saved activations can leave.
    int64_t own = activations() > 0 ? 0 : moment.activation_slots;
    for (const BlockUse& use : trace_.uses_of(moment)) {
      own += trace_.block_slots[static_cast<size_t>(use.block)];
      const int32_t c = chunk_of[static_cast<size_t>(use.block)];
      if (c < 0) continue;
      const auto index = static_cast<size_t>(c);
      // A gradient that leaves before the updates is another rank's.
      if (use.block == trace_.chunks[index].gradient) {
        updated[index] = use.access != BlockAccess::kConsume;
      }
      first[index] = std::min(first[index], static_cast<int64_t>(m));
    }
    room_least_ = std::min(room_least_, machine_.device_slots - own);
  }
  for (size_t c = 0; c < trace_.chunks.size(); ++c) {
    if (updated[c]) order_.push_back(static_cast<int32_t>(c));
    const UpdateFacts facts = UpdateFactsOf(trace_, trace_.chunks[c]);
    parameters_max_ = std::max(parameters_max_, facts.parameter);
    if (updated[c]) states_max_ = std::max(states_max_, facts.states);
  }
  std::ranges::stable_sort(order_, {},
                           [&first](int32_t c) { return first[static_cast<size_t>(c)]; });
}

absl::StatusOr<PlacementShape> PlacementBuilder::Complete(PlacementShape shape) const {
  shape.resident = std::clamp<int64_t>(shape.resident, 0, updated());
  shape.streamed = std::clamp<int64_t>(shape.streamed, 0, updated() - shape.resident);
  shape.parameters_resident = std::clamp<int64_t>(shape.parameters_resident, 0, shape.resident);
  shape.streamed_within = std::clamp<int64_t>(shape.streamed_within, 1, 100);
  if (shape.streamed == 0) shape.streamed_within = 100;
  shape.next_forward = std::clamp<int64_t>(shape.next_forward, 0, shape.streamed);
  shape.offloaded = std::clamp<int64_t>(shape.offloaded, 0, activations());
  shape.recomputed = std::clamp<int64_t>(shape.recomputed, 0, activations() - shape.offloaded);
  shape.in_files = 0;
  shape.parameters_in_files = 0;
  const int64_t wanted_buffers = shape.host_buffers;
  if (machine_.unified) {
    shape.host_buffers = 0;
    return shape;
  }
  const int64_t others = updated() - shape.resident;
  PlacementShape in_memory = shape;
  in_memory.host_buffers = 0;
  in_memory.parameters_resident = 0;
  const HostRoom room = HostRoomOf(trace_, machine_, in_memory);
  if (room.states >= others * states_max_) return in_memory;
  if (!machine_.has_file_tier) {
    return ResourceExhausted("host memory: ", room.slots_needed + others * states_max_,
                             " slots are needed for parameters, optimizer states and activations; ",
                             "there are ", machine_.host_slots, ", and no file tier");
  }
  shape.host_buffers = std::max<int64_t>(shape.host_buffers, 2);
  HostRoom beside = HostRoomOf(trace_, machine_, shape);
  const auto give_up_buffers = [&](int64_t least) {
    while (beside.states < 0 && shape.host_buffers > least) {
      --shape.host_buffers;
      beside = HostRoomOf(trace_, machine_, shape);
    }
  };
  give_up_buffers(2);
  if (beside.states < 0 && parameters_max_ > 0) {
    shape.host_buffers = std::max<int64_t>(wanted_buffers, 4);
    // Buffers are larger when parameters go with the states.
    shape.parameters_in_files = 1;
    beside = HostRoomOf(trace_, machine_, shape);
    const auto chunks = static_cast<int64_t>(trace_.chunks.size());
    const int64_t more = CeilDiv(std::max<int64_t>(-beside.states, 0), parameters_max_);
    shape.parameters_in_files = std::min(1 + more, chunks - shape.parameters_resident);
    beside = HostRoomOf(trace_, machine_, shape);
    give_up_buffers(4);
  }
  if (beside.states < 0) {
    return ResourceExhausted("host memory: ", beside.slots_needed, " slots are needed for ",
                             shape.host_buffers, " buffers and what cannot be in files; there are ",
                             machine_.host_slots);
  }
  const int64_t held = states_max_ > 0 ? beside.states / states_max_ : others;
  shape.in_files = std::max<int64_t>(others - held, 0);
  if (shape.parameters_in_files > 0) shape.in_files = others;
  return shape;
}

absl::StatusOr<MovementDecision> PlacementBuilder::Place(const PlacementShape& wanted) const {
  MovementDecision decision;
  GANTRY_ASSIGN_OR_RETURN(decision.shape, Complete(wanted));
  const PlacementShape& shape = decision.shape;
  decision.choices = {.chunks = std::vector<ChunkChoice>(trace_.chunks.size()),
                      .wait_for_norm = wait_for_norm_,
                      .host_buffers = shape.host_buffers};
  if (shape.offloaded + shape.recomputed > 0) {
    decision.choices.activations =
        PlaceActivations(trace_, activations_, shape.offloaded, shape.recomputed);
  }
  decision.resident.assign(trace_.chunks.size(), false);
  const int64_t others = updated() - shape.resident;
  const int64_t first =
      std::max(shape.streamed, CeilDiv(others * shape.streamed_within, int64_t{100}));
  int64_t streamed = 0;
  for (int64_t i = 0; i < updated(); ++i) {
    const auto c = static_cast<size_t>(order_[static_cast<size_t>(i)]);
    ChunkChoice& choice = decision.choices.chunks[c];
    if (i < shape.resident) {
      choice.place = UpdatePlace::kDevice;
      // Host memory has no room for more states than it holds.
      choice.states_stay = shape.in_files > 0 || shape.parameters_resident > 0;
      choice.parameter_stays = i < shape.parameters_resident;
      decision.resident[c] = true;
      continue;
    }
    const int64_t j = i - shape.resident;
    if (j < first && Spread(j, first, shape.streamed)) {
      const bool next = Spread(streamed++, shape.streamed, shape.next_forward);
      choice.place = next ? UpdatePlace::kNextForward : UpdatePlace::kDevice;
    }
    choice.states_in_file = Spread(j, others, shape.in_files);
  }
  const int64_t beside = std::ssize(trace_.chunks) - shape.parameters_resident;
  int64_t in_files = 0;
  for (ChunkChoice& choice : decision.choices.chunks) {
    if (choice.parameter_stays) continue;
    choice.parameter_in_file = Spread(in_files++, beside, shape.parameters_in_files);
  }
  GANTRY_ASSIGN_OR_RETURN(decision.training, BuildProblem(trace_, machine_, decision.choices));
  return decision;
}

std::vector<bool> PlacementBuilder::PinnedBlocks(const MovementDecision& decision) {
  std::vector<bool> pinned(decision.training.problem.block_slots.size(), false);
  for (size_t c = 0; c < decision.resident.size(); ++c) {
    const int32_t states = decision.training.states[c];
    if (decision.resident[c] && states >= 0) pinned[static_cast<size_t>(states)] = true;
  }
  return pinned;
}

absl::Status PlacementBuilder::CheckHost(const MovementDecision& decision,
                                         const MovementPlan& movement) const {
  if (machine_.unified || states_max_ == 0) return absl::OkStatus();
  int64_t leave = 0;
  const MovementProblem& problem = decision.training.problem;
  for (size_t c = 0; c < decision.resident.size(); ++c) {
    const int32_t states = decision.training.states[c];
    if (!decision.resident[c] || states < 0 || problem.block_stays(states)) continue;
    if (movement.mode == MovementPlan::Mode::kOnDemand) {
      ++leave;  // it may at any time
      continue;
    }
    const auto& moment = problem.moments[static_cast<size_t>(decision.training.update_moment[c])];
    for (int64_t use = moment.first_use; use < moment.first_use + moment.use_count; ++use) {
      const auto u = static_cast<size_t>(use);
      if (problem.uses[u].block == decision.training.states[c] && !movement.keep[u]) ++leave;
    }
  }
  if (leave == 0) return absl::OkStatus();
  const PlacementShape& shape = decision.shape;
  const int64_t slots = (updated() - shape.resident - shape.in_files + leave) * states_max_;
  const HostRoom room = HostRoomOf(trace_, machine_, shape);
  if (slots <= room.states) return absl::OkStatus();
  return ResourceExhausted("host memory: states of ", leave, " chunks cannot stay on the device; ",
                           room.slots_needed + slots, " slots are needed, there are ",
                           machine_.host_slots);
}

double PlacementBuilder::LaneSeconds(const PlacementShape& shape) const {
  const double slot = static_cast<double>(machine_.slot_bytes.count());
  const auto rate = [](int64_t value) { return value > 0 ? static_cast<double>(value) : 1e30; };
  const MachineRates& rates = machine_.rates;
  const auto host = static_cast<double>(updated() - shape.resident - shape.streamed);
  const auto streamed = static_cast<double>(shape.streamed);
  const auto states = static_cast<double>(states_max_);
  double moved = host + streamed * states;  // up, and as much down
  double again = 0;
  if (shape.offloaded + shape.recomputed > 0) {
    const std::vector<ActivationPlace> places =
        PlaceActivations(trace_, activations_, shape.offloaded, shape.recomputed);
    for (size_t a = 0; a < places.size(); ++a) {
      const SavedActivation& saved = trace_.activations[a];
      if (places[a] == ActivationPlace::kHost) moved += static_cast<double>(saved.slots);
      if (places[a] == ActivationPlace::kRecompute) {
        again += static_cast<double>(saved.recompute) * rates.compute_scale / 1e9;
      }
    }
  }
  const double traffic = (2.0 * states + 2.0) * slot;
  const double device = (streamed + static_cast<double>(shape.resident)) * traffic;
  const double files = static_cast<double>(shape.in_files) * states * slot;
  const double file_time = files / rate(rates.file_read.bytes_per_second) +
                           files / rate(rates.file_write.bytes_per_second);
  return std::max({moved * slot / rate(rates.host_to_device.bytes_per_second),
                   moved * slot / rate(rates.device_to_host.bytes_per_second),
                   host * traffic / rate(rates.host_update_bytes_per_second), file_time,
                   compute_seconds_ + again + device / rate(rates.device_memory_bytes_per_second)});
}

int64_t PlacementBuilder::ResidentMaxOf(int64_t slots) const {
  return slots == 0 ? 0 : std::clamp<int64_t>(room_least_ / slots, 0, updated());
}

}  // namespace gantry
