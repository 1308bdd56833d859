#include "trainer/booster/token_sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/random.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr uint64_t kSamplingStream = 0x746f6b656e;  // "token"

struct Candidate {
  int32_t token;
  double weight;  // its logit, then its unnormalised probability
};

// The `count` most likely, the most likely first.
std::vector<Candidate> MostLikely(std::span<const float> logits, size_t count) {
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    candidates.push_back({.token = static_cast<int32_t>(i), .weight = logits[i]});
  }
  const auto end = candidates.begin() + static_cast<ptrdiff_t>(count);
  std::partial_sort(candidates.begin(), end, candidates.end(),
                    [](const Candidate& a, const Candidate& b) {
                      return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
                    });
  candidates.erase(end, candidates.end());
  return candidates;
}

double SumOf(std::span<const Candidate> candidates) {
  double sum = 0.0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

// How many of the first candidates reach the share `top_p` of all weights.
size_t NucleusSize(std::span<const Candidate> candidates, double top_p) {
  const double wanted = top_p * SumOf(candidates);
  double sum = 0.0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    sum += candidates[i].weight;
    if (sum >= wanted) return i + 1;
  }
  return candidates.size();
}

}  // namespace

SeenTokens::SeenTokens(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) Add(token);
}

void SeenTokens::Add(int32_t token) {
  GANTRY_CHECK_GE(token, 0);
  const auto index = static_cast<size_t>(token);
  if (seen_.size() <= index) seen_.resize(index + 1, false);
  if (seen_[index]) return;
  seen_[index] = true;
  tokens_.push_back(token);
}

void SeenTokens::Penalize(std::span<float> logits, double penalty) const {
  if (penalty == 1.0) return;
  const auto factor = static_cast<float>(penalty);
  for (const int32_t token : tokens_) {
    GANTRY_CHECK_LT(token, std::ssize(logits));
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit < 0.0F ? logit * factor : logit / factor;
  }
}

absl::Status ValidateSampling(const SamplingOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0.0) {
    return InvalidArgument("temperature must be finite and not negative, not ",
                           options.temperature);
  }
  if (options.top_k < 0) return InvalidArgument("top_k must not be negative, as ", options.top_k);
  if (!(options.top_p > 0.0 && options.top_p <= 1.0)) {
    return InvalidArgument("top_p must be above 0 and at most 1, not ", options.top_p);
  }
  if (!std::isfinite(options.repetition_penalty) || options.repetition_penalty <= 0.0) {
    return InvalidArgument("repetition_penalty must be finite and positive, not ",
                           options.repetition_penalty);
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> SampleToken(std::span<const float> logits, const SamplingOptions& options,
                                    int64_t position) {
  GANTRY_CHECK(!logits.empty());
  GANTRY_CHECK_GE(position, 0);
  if (std::any_of(logits.begin(), logits.end(), [](float value) { return std::isnan(value); })) {
    return InvalidArgument("the model's logits are not numbers; its training has diverged");
  }
  size_t count = logits.size();
  if (options.top_k > 0) count = std::min(count, static_cast<size_t>(options.top_k));
  if (options.temperature == 0.0) count = 1;
  std::vector<Candidate> candidates = MostLikely(logits, count);
  if (!std::isfinite(candidates.front().weight)) {
    return InvalidArgument("the model's largest logit is ", candidates.front().weight);
  }
  if (options.temperature == 0.0) return candidates.front().token;

  const double largest = candidates.front().weight;
  for (Candidate& candidate : candidates) {
    candidate.weight = std::exp((candidate.weight - largest) / options.temperature);
  }
  const auto kept = std::span(candidates).first(NucleusSize(candidates, options.top_p));
  const Random random({.seed = options.seed, .stream = kSamplingStream});
  double left = random.Uniform(static_cast<uint64_t>(position)) * SumOf(kept);
  for (const Candidate& candidate : kept) {
    left -= candidate.weight;
    if (left < 0.0) return candidate.token;
  }
  return kept.front().token;  // rounding left a remainder
}

}  // namespace gantry
