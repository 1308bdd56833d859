#include "placement_policy/report/chunk_names.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/model_structure.h"
#include "placement_policy/report/step_report.h"
#include "placement_policy/synthetic_layout.h"

namespace gantry {

std::vector<std::string> SyntheticChunkNames(const ModelShape& shape, int64_t chunk_elements,
                                             int64_t chunk_count) {
  std::vector<std::vector<std::string>> tensors(static_cast<size_t>(chunk_count));
  int64_t end = 0;
  for (const TensorShape& tensor : TensorsOf(shape)) {
    const int64_t begin = RoundUp(end, kSyntheticTensorAlignment);
    end = begin + tensor.elements();
    const int64_t last = std::min((end - 1) / chunk_elements, chunk_count - 1);
    for (int64_t chunk = begin / chunk_elements; chunk <= last; ++chunk) {
      tensors[static_cast<size_t>(chunk)].push_back(tensor.name);
    }
  }
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(chunk_count));
  const int64_t model_chunks = CeilDiv(end, chunk_elements);
  for (int64_t chunk = 0; chunk < chunk_count; ++chunk) {
    names.push_back(chunk < model_chunks ? JoinTensorNames(tensors[static_cast<size_t>(chunk)])
                                         : std::string("adapters"));
  }
  return names;
}

}  // namespace gantry
