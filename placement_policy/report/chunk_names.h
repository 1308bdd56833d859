// Which tensors lie in which chunk of a model that nobody has loaded.
#ifndef GANTRY_PLACEMENT_POLICY_REPORT_CHUNK_NAMES_H_
#define GANTRY_PLACEMENT_POLICY_REPORT_CHUNK_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "placement_policy/model_shape.h"

namespace gantry {

// By chunk, as synthetic_layout.h cuts them: the names of its tensors, joined. Chunks behind the
// model's hold adapters. REQUIRES: shape.Validate() is OK; chunk_elements > 0.
std::vector<std::string> SyntheticChunkNames(const ModelShape& shape, int64_t chunk_elements,
                                             int64_t chunk_count);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_REPORT_CHUNK_NAMES_H_
