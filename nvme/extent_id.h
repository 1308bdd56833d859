// The number of an extent inside its file or store.
#ifndef GANTRY_NVME_EXTENT_ID_H_
#define GANTRY_NVME_EXTENT_ID_H_

#include "base/ids.h"

namespace gantry {

GANTRY_DEFINE_ID(ExtentId, "extent#");

}  // namespace gantry

#endif  // GANTRY_NVME_EXTENT_ID_H_
