#include "trainer/data/token_text_source.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/random.h"
#include "base/strings.h"
#include "trainer/data/token_source.h"

namespace gantry {
namespace {

constexpr uint64_t kDataStream = 0x64617461;  // "data"

SampledTokens Empty(int64_t sequences, int64_t length) {
  return {.sequences = sequences,
          .length = length,
          .tokens = {},
          .targets = {},
          .documents = {},
          .scored_tokens = sequences * length};
}

}  // namespace

absl::StatusOr<TokenTextSource> TokenTextSource::Create(std::vector<int32_t> tokens,
                                                        Options options) {
  TokenTextSource source(std::move(tokens), std::move(options));
  if (source.options_.sequence_length >= 1 && source.starts() >= 1) return source;
  return InvalidArgument("no sequence of ", source.options_.sequence_length,
                         " tokens and its next in a text of ", source.tokens_.size(), " tokens");
}

void TokenTextSource::Append(int64_t start, SampledTokens& batch) const {
  const auto length = static_cast<size_t>(options_.sequence_length);
  const auto window = std::span(tokens_).subspan(static_cast<size_t>(start), length + 1);
  batch.tokens.insert(batch.tokens.end(), window.begin(), window.end() - 1);
  batch.targets.insert(batch.targets.end(), window.begin() + 1, window.end());
}

absl::StatusOr<SampledTokens> TokenTextSource::Read(int64_t first, int64_t count) const {
  GANTRY_CHECK(first >= 0 && count >= 1) << first << ", " << count;
  const Random random({.seed = options_.seed, .stream = kDataStream});
  SampledTokens batch = Empty(count, options_.sequence_length);
  for (int64_t i = 0; i < count; ++i) {
    Append(random.Below(starts(), static_cast<uint64_t>(first + i)), batch);
  }
  return batch;
}

absl::StatusOr<SampledTokens> TokenTextSource::ReadEvenly(EvenSequences range) const {
  GANTRY_CHECK(range.first >= 0 && range.count >= 1 && range.first + range.count <= range.total)
      << range.first << " + " << range.count << " of " << range.total;
  SampledTokens batch = Empty(range.count, options_.sequence_length);
  const double stride = static_cast<double>(starts() - 1) /
                        static_cast<double>(std::max<int64_t>(range.total - 1, 1));
  for (int64_t i = range.first; i < range.first + range.count; ++i) {
    Append(static_cast<int64_t>(static_cast<double>(i) * stride), batch);
  }
  return batch;
}

}  // namespace gantry
