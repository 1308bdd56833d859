// One number for all parameters of a store, to compare runs by.
#ifndef GANTRY_TRAINER_BOOSTER_PARAMETER_HASH_H_
#define GANTRY_TRAINER_BOOSTER_PARAMETER_HASH_H_

#include <string>

#include "absl/status/statusor.h"
#include "gemini/parameter_store.h"

namespace gantry {

// XXH3 (as Hasher::HexDigest) over the parameter bytes of all tensors in order of registration.
// Reads them in pieces of 1 MiB. REQUIRES: a sealed store, between steps. Errors: those of
// ReadState.
absl::StatusOr<std::string> HashParameters(ParameterStore& store);

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_PARAMETER_HASH_H_
