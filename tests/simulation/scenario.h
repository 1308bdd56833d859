// What a simulated run is: a model, a machine and how much happens, all drawn from one seed.
#ifndef GANTRY_TESTS_SIMULATION_SCENARIO_H_
#define GANTRY_TESTS_SIMULATION_SCENARIO_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "device/device.h"
#include "gemini/parameter_store.h"
#include "gemini/testing/toy_model.h"
#include "placement_policy/policy.h"

namespace gantry {

struct Scenario {
  uint64_t seed = 0;  // all below follows from it

  // The model and what is done with it: what the results depend on.
  ToyModel::Options model;
  DType gradient_dtype = DType::kBF16;
  OptimizerStep hyper{.learning_rate = 1e-2};  // its kind is the store's
  StateFormat state_format = StateFormat::kF32;
  int64_t steps = 3;
  bool evaluates = false;   // between the steps
  int64_t varies_from = 0;  // the first step with the variation; 0: none
  ToyModel::Variation variation = {};

  // The machine: what they must not depend on.
  DeviceTopology topology = DeviceTopology::kDiscrete;
  int64_t device_slots = 0;
  int64_t host_slots = 0;
  bool files = true;
  int spill_directories = 1;
  std::string policy;
  StaticFractions fractions;
  UpdateOrder update_order = UpdateOrder::kExact;
  int64_t look_ahead = 0;
  int64_t chunk_elements = 0;
  int64_t lane_bandwidth = 0;  // bytes/s
  Nanoseconds lane_latency = 0;
  int64_t drive_bandwidth = 0;  // bytes/s
  Nanoseconds drive_latency = 0;
  int queue_depth = 1;

  int64_t checkpoint_after = 1;  // steps
  bool checkpoint_on_disk = false;
};

// A seed with this bit is that without it under the policy `planned`, and with enough steps to get
// a plan and to leave it.
inline constexpr uint64_t kPlannedSeeds = uint64_t{1} << 62;

// The scenario of a seed, with budgets between the least that it can run with and ample ones.
// Errors: those of an engine that cannot be made for another reason than a budget.
absl::StatusOr<Scenario> DrawScenario(uint64_t seed);

// The same model on the machine with the least room: a static placement on a discrete device, no
// files, and the least budgets. Every block has one place, and device and host must exchange them.
// Errors: as of DrawScenario.
absl::StatusOr<Scenario> WithLeastRoom(Scenario scenario);

// One line.
std::string Describe(const Scenario& scenario);

}  // namespace gantry

#endif  // GANTRY_TESTS_SIMULATION_SCENARIO_H_
