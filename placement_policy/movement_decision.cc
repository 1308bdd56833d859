#include "placement_policy/movement_decision.h"

#include <algorithm>
#include <limits>
#include <span>

#include "base/hash.h"
#include "placement_policy/activation_order.h"

namespace gantry {
namespace {

// Gradients on their way through the host, in slots.
constexpr int64_t kGradientSlots = 4;

int64_t OffloadedSlots(const Trace& trace, int64_t offloaded) {
  const ActivationOrder order = OrderActivations(trace);
  int64_t slots = 0;
  for (int64_t i = 0; i < offloaded; ++i) {
    slots += trace.activations[static_cast<size_t>(order.offload[static_cast<size_t>(i)])].slots;
  }
  return slots;
}

}  // namespace

uint64_t HashOf(const MovementDecision& decision) {
  Hasher hasher;
  const auto add = [&hasher](int64_t value) { hasher.Update(std::as_bytes(std::span(&value, 1))); };
  for (const ChunkChoice& choice : decision.choices.chunks) {
    add(static_cast<int64_t>(choice.place));
    add(choice.states_in_file ? 1 : 0);
    add(choice.parameter_in_file ? 1 : 0);
    add(choice.states_stay ? 1 : 0);
    add(choice.parameter_stays ? 1 : 0);
  }
  for (const ActivationPlace place : decision.choices.activations) {
    add(static_cast<int64_t>(place));
  }
  for (const bool resident : decision.resident) add(resident ? 1 : 0);
  add(decision.choices.host_buffers);
  add(decision.choices.wait_for_norm ? 1 : 0);
  const MovementPlan& movement = decision.movement;
  add(static_cast<int64_t>(movement.mode));
  add(movement.write_reserve);
  add(static_cast<int64_t>(movement.eviction));
  add(movement.look_ahead);
  add(static_cast<int64_t>(movement.update_order));
  add(movement.free_buffers_first ? 1 : 0);
  for (const bool keep : movement.keep) add(keep ? 1 : 0);
  for (const int32_t ahead : movement.fetch_ahead_max) add(ahead);
  for (const bool late : movement.write_late) add(late ? 1 : 0);
  for (const Residency residency : movement.residency) add(static_cast<int64_t>(residency));
  return hasher.Digest64();
}

HostRoom HostRoomOf(const Trace& trace, const Machine& machine, const PlacementShape& shape) {
  HostRoom room;
  int64_t states = 0;
  int64_t parameters_max = 0;
  int64_t parameters_least = std::numeric_limits<int64_t>::max();
  for (const TraceChunk& chunk : trace.chunks) {
    const UpdateFacts facts = UpdateFactsOf(trace, chunk);
    room.slots_needed += facts.parameter;
    parameters_max = std::max(parameters_max, facts.parameter);
    parameters_least = std::min(parameters_least, facts.parameter);
    states = std::max(states, facts.states);
  }
  if (shape.parameters_resident > 0) {
    room.slots_needed -= shape.parameters_resident * parameters_least;
  }
  int64_t buffer = std::max(states, kActivationBlockSlots);
  if (shape.parameters_in_files > 0) {
    room.slots_needed -= shape.parameters_in_files * parameters_max;
    buffer = std::max(buffer, states + parameters_max);
  }
  room.slots_needed += kGradientSlots + shape.host_buffers * buffer;
  if (shape.offloaded > 0) room.slots_needed += OffloadedSlots(trace, shape.offloaded);
  room.states = machine.host_slots - room.slots_needed;
  return room;
}

}  // namespace gantry
