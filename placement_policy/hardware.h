// A machine as its owner would describe it: bytes per tier and the speed of each lane, with where
// each figure comes from. What a plan may use of it is a Machine, which counts in slots.
// Plain data; read from a machine file, taken from the catalog, or measured.
#ifndef GANTRY_PLACEMENT_POLICY_HARDWARE_H_
#define GANTRY_PLACEMENT_POLICY_HARDWARE_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "placement_policy/machine.h"

namespace gantry {

struct Hardware {
  std::string name;      // of the whole, "rtx4090+pcie4+2xgen4"
  std::string device;    // of what computes, "NVIDIA GeForce RTX 4090"
  bool unified = false;  // device and host are one memory: device_memory
  Bytes device_memory = Bytes(0);
  Bytes host_memory = Bytes(0);  // 0 when unified
  Bytes file_bytes = Bytes(0);   // of the file tier; 0: there is none
  MachineRates rates = {};
  // Where figures come from: by the field as the machine file calls it (MachineFileFields), a text.
  std::map<std::string, std::string> sources = {};

  // Unlike those of a Machine, the rates of all lanes that exist must be known, and those of lanes
  // that do not exist are as MachineRates begins. Errors: kInvalidArgument naming the field.
  absl::Status Validate() const;
  bool operator==(const Hardware&) const = default;
};

struct MachineOptions {
  Bytes slot_bytes;
  // Budgets; nothing: all that the hardware has.
  std::optional<Bytes> device_memory = std::nullopt;
  std::optional<Bytes> host_memory = std::nullopt;  // not used when unified
};

// The machine that a plan for this hardware may use.
// Errors: kInvalidArgument for budgets beyond the hardware or below one slot, and as Validate.
absl::StatusOr<Machine> MachineFor(const Hardware& hardware, const MachineOptions& options);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_HARDWARE_H_
