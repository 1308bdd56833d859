// What `gantry inspect` says of models and adapters in Hugging Face folders, and of safetensors
// files. Stateless functions; they block while they read headers.
#ifndef GANTRY_TRAINER_CLI_INSPECT_MODEL_H_
#define GANTRY_TRAINER_CLI_INSPECT_MODEL_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/file_calls.h"
#include "trainer/cli/command.h"

namespace gantry {

// Whether `path` is a safetensors file, or a folder with a model or an adapter.
bool IsModelOrAdapter(const std::string& path);

// Names, shapes, types and totals, and for a model's folder whether Gantry can run it. Errors: as
// SafetensorsReader::Open.
absl::StatusOr<std::string> InspectModel(FileCalls& files, const std::string& path,
                                         OutputFormat format);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_INSPECT_MODEL_H_
