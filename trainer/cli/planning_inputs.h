// What planning commands are given by name or as a file: machines and models.
#ifndef GANTRY_TRAINER_CLI_PLANNING_INPUTS_H_
#define GANTRY_TRAINER_CLI_PLANNING_INPUTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "placement_policy/hardware.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/trace.h"

namespace gantry {

// `name` is a machine file (docs/formats/machine.md) or a name of the catalog, as
// "rtx4090+pcie4+2xgen4". Errors: kInvalidArgument naming the file or the part that is wrong.
absl::StatusOr<Hardware> LoadHardware(FileCalls& files, const std::string& name);

// `name` is a built-in model, a folder with a config.json, or such a file. Errors: kInvalidArgument
// naming the file and its key, or the nearest built-in model.
absl::StatusOr<ModelShape> LoadModelShape(FileCalls& files, const std::string& name);

// A trace file (docs/formats/trace.md). Errors: kInvalidArgument naming file and field.
absl::StatusOr<Trace> LoadTrace(FileCalls& files, const std::string& path);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_PLANNING_INPUTS_H_
