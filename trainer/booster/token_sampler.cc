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

// The most likely first.
std::vector<Candidate> SortedCandidates(std::span<const float> logits) {
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    candidates.push_back({.token = static_cast<int32_t>(i), .weight = logits[i]});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  });
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

absl::Status ValidateSampling(const SamplingOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0.0) {
    return InvalidArgument("temperature must be finite and not negative, not ",
                           options.temperature);
  }
  if (options.top_k < 0) return InvalidArgument("top_k must not be negative, as ", options.top_k);
  if (!(options.top_p > 0.0 && options.top_p <= 1.0)) {
    return InvalidArgument("top_p must be above 0 and at most 1, not ", options.top_p);
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
  std::vector<Candidate> candidates = SortedCandidates(logits);
  if (!std::isfinite(candidates.front().weight)) {
    return InvalidArgument("the model's largest logit is ", candidates.front().weight);
  }
  if (options.temperature == 0.0) return candidates.front().token;

  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(candidates.size())) {
    candidates.resize(static_cast<size_t>(options.top_k), {.token = 0, .weight = 0.0});
  }
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
