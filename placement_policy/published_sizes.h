// The sizes in which families of models were published, to answer which of them a machine can
// train. Shapes are those of the published config.json files.
#ifndef GANTRY_PLACEMENT_POLICY_PUBLISHED_SIZES_H_
#define GANTRY_PLACEMENT_POLICY_PUBLISHED_SIZES_H_

#include <string>
#include <vector>

#include "placement_policy/model_shape.h"

namespace gantry {

struct PublishedSize {
  std::string name;
  ModelShape shape;
};

// Ascending by parameters; never empty.
std::vector<PublishedSize> PublishedSizes(ModelFamily family);

}  // namespace gantry

#endif  // GANTRY_PLACEMENT_POLICY_PUBLISHED_SIZES_H_
