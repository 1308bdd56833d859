#include "trainer/data/byte_token_source.h"

#include <cstdint>

#include "absl/status/statusor.h"
#include "trainer/data/token_source.h"

namespace gantry {

absl::StatusOr<SampledTokens> ByteTokenSource::Read(int64_t first, int64_t count) const {
  return sampler_.Random(first, count);
}

absl::StatusOr<SampledTokens> ByteTokenSource::ReadEvenly(EvenSequences range) const {
  return sampler_.Evenly(range);
}

}  // namespace gantry
