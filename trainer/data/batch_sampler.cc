#include "trainer/data/batch_sampler.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/random.h"
#include "base/strings.h"
#include "trainer/data/token_source.h"

namespace gantry {
namespace {

constexpr uint64_t kDataStream = 0x64617461;  // "data"

}  // namespace

absl::StatusOr<BatchSampler> BatchSampler::Create(std::span<const uint8_t> text, Options options) {
  const BatchSampler sampler(text, options);
  if (options.sequence_length < 1 || sampler.starts() < 1) {
    return InvalidArgument("no sequence of ", options.sequence_length,
                           " tokens and its next in a text of ", text.size(), " bytes");
  }
  return sampler;
}

SampledTokens BatchSampler::Empty(int64_t count) const {
  SampledTokens batch{.sequences = count,
                      .length = options_.sequence_length,
                      .tokens = {},
                      .targets = {},
                      .documents = {},
                      .scored_tokens = count * options_.sequence_length};
  batch.tokens.reserve(static_cast<size_t>(count * options_.sequence_length));
  batch.targets.reserve(static_cast<size_t>(count * options_.sequence_length));
  return batch;
}

void BatchSampler::Append(int64_t start, SampledTokens& batch) const {
  const auto length = static_cast<size_t>(options_.sequence_length);
  const std::span<const uint8_t> window = text_.subspan(static_cast<size_t>(start), length + 1);
  batch.tokens.insert(batch.tokens.end(), window.begin(), window.end() - 1);
  batch.targets.insert(batch.targets.end(), window.begin() + 1, window.end());
}

SampledTokens BatchSampler::Random(int64_t first, int64_t count) const {
  GANTRY_CHECK(first >= 0 && count >= 1) << first << ", " << count;
  const gantry::Random random({.seed = options_.seed, .stream = kDataStream});
  SampledTokens batch = Empty(count);
  for (int64_t i = 0; i < count; ++i) {
    Append(random.Below(starts(), static_cast<uint64_t>(first + i)), batch);
  }
  return batch;
}

SampledTokens BatchSampler::Evenly(EvenSequences range) const {
  GANTRY_CHECK(range.first >= 0 && range.count >= 1 && range.first + range.count <= range.total)
      << range.first << " + " << range.count << " of " << range.total;
  SampledTokens batch = Empty(range.count);
  const double stride = static_cast<double>(starts() - 1) /
                        static_cast<double>(std::max<int64_t>(range.total - 1, 1));
  for (int64_t i = range.first; i < range.first + range.count; ++i) {
    Append(static_cast<int64_t>(static_cast<double>(i) * stride), batch);
  }
  return batch;
}

}  // namespace gantry
