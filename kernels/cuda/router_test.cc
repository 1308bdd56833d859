// Choices are exactly those of a sort in double of the same float logits (ties to the lower
// expert), weights within 2e-6, gradients those of differences in double; grouping is exactly a
// stable sort.
#include "kernels/cuda/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/random.h"
#include "kernels/cuda/testing/device_run.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry::testing {
namespace {

using cuda::RouterOptions;
using cuda::RouterScore;

std::vector<double> Scores(const RouterOptions& options, const std::vector<double>& logits) {
  std::vector<double> scores;
  const double maximum = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - maximum);
  for (const double logit : logits) {
    scores.push_back(options.score == RouterScore::kSigmoid ? 1 / (1 + std::exp(-logit))
                                                            : std::exp(logit - maximum) / sum);
  }
  return scores;
}

std::vector<double> Weights(const RouterOptions& options, const std::vector<double>& logits,
                            std::span<const int32_t> experts) {
  const std::vector<double> scores = Scores(options, logits);
  double sum = 0;
  for (const int32_t expert : experts) sum += scores[static_cast<size_t>(expert)];
  std::vector<double> weights;
  for (const int32_t expert : experts) {
    const double score = scores[static_cast<size_t>(expert)];
    weights.push_back(options.scale * score / (options.normalise ? sum : 1.0));
  }
  return weights;
}

std::vector<double> RowOf(const reference::Matrix& matrix, int64_t row) {
  const auto begin = matrix.values.begin() + row * matrix.cols;
  return {begin, begin + matrix.cols};
}

struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> weights;
  reference::Matrix grad_logits;
};

Routed OnDevice(const RouterOptions& options, DeviceMatrix& logits, std::span<const float> bias,
                std::span<const float> grads) {
  const MatrixView view = logits.view();
  const auto assignments = static_cast<size_t>(view.rows * options.choices);
  Routed routed;
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    routed.experts.assign(assignments, -7);
    routed.weights.assign(assignments, std::nanf(""));
    DeviceMatrix grad_logits({.dtype = view.dtype, .rows = view.rows, .cols = view.cols, .gap = 3},
                             run.poison);
    EXPECT_EQ(cuda::Route(run.stream, {.options = options,
                                       .logits = view,
                                       .choice_bias = bias,
                                       .experts = routed.experts,
                                       .weights = routed.weights}),
              0);
    EXPECT_EQ(cuda::RouteBackward(run.stream, {.options = options,
                                               .logits = view,
                                               .experts = routed.experts,
                                               .grad_weights = grads,
                                               .grad_logits = grad_logits.view()}),
              0);
    grad_logits.ExpectIntact();
    routed.grad_logits = grad_logits.values();
    std::vector<std::byte> bytes;
    grad_logits.AppendTo(bytes);
    Append(routed.weights, bytes);
    const auto experts = std::as_bytes(std::span(routed.experts));
    bytes.insert(bytes.end(), experts.begin(), experts.end());
    return bytes;
  });
  return routed;
}

void Check(const RouterOptions& options, DType dtype, MatrixShape shape, bool biased) {
  SCOPED_TRACE(::testing::Message() << shape.rows << " tokens, " << options.choices << " of "
                                    << shape.cols << " experts, " << dtype);
  reference::Matrix values = RandomMatrix(shape, 1, 2.0);
  // Ties, of the largest too.
  for (int64_t row = 0; row < shape.rows; row += 3) {
    for (int64_t i = 0; i < shape.cols; ++i) values(row, i) = std::round(values(row, i));
  }
  DeviceMatrix logits({.dtype = dtype, .rows = shape.rows, .cols = shape.cols, .gap = 5}, values);
  const reference::Matrix stored = logits.values();
  std::vector<float> bias;
  for (int64_t i = 0; biased && i < shape.cols; ++i) bias.push_back(i % 3 == 0 ? 0.5F : 0.0F);
  const reference::Matrix drawn =
      RandomMatrix({.rows = 1, .cols = shape.rows * options.choices}, 2, 1.0);
  const std::vector<float> grads(drawn.values.begin(), drawn.values.end());
  const Routed routed = OnDevice(options, logits, bias, grads);
  for (int64_t token = 0; token < shape.rows; ++token) {
    const std::vector<double> row = RowOf(stored, token);
    std::vector<double> keys = Scores(options, row);
    for (size_t i = 0; i < bias.size(); ++i) keys[i] += static_cast<double>(bias[i]);
    std::vector<int32_t> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
      return keys[static_cast<size_t>(a)] > keys[static_cast<size_t>(b)];
    });
    order.resize(static_cast<size_t>(options.choices));
    const auto first = static_cast<std::ptrdiff_t>(token * options.choices);
    const std::vector<int32_t> chosen(routed.experts.begin() + first,
                                      routed.experts.begin() + first + options.choices);
    ASSERT_EQ(chosen, order) << "token " << token;
    const std::vector<double> weights = Weights(options, row, chosen);
    for (size_t i = 0; i < weights.size(); ++i) {
      ASSERT_NEAR(routed.weights[static_cast<size_t>(first) + i], weights[i], 2e-6 * options.scale);
    }
    for (size_t i = 0; i < row.size(); ++i) {
      constexpr double kStep = 1e-6;
      std::vector<double> above = row;
      std::vector<double> below = row;
      above[i] += kStep;
      below[i] -= kStep;
      const std::vector<double> high = Weights(options, above, chosen);
      const std::vector<double> low = Weights(options, below, chosen);
      double slope = 0;
      for (size_t j = 0; j < high.size(); ++j) {
        slope += (high[j] - low[j]) / (2 * kStep) *
                 static_cast<double>(grads[static_cast<size_t>(first) + j]);
      }
      ASSERT_NEAR(routed.grad_logits(token, static_cast<int64_t>(i)), slope,
                  (RoundingError(dtype, 1) + 1e-5) * options.scale * (1 + std::abs(slope)));
    }
  }
}

TEST(CudaRouter, ChoosesAndWeighs) {
  const RouterOptions mixtral{
      .score = RouterScore::kSoftmax, .choices = 2, .normalise = true, .scale = 1.0F};
  const RouterOptions deepseek{
      .score = RouterScore::kSigmoid, .choices = 8, .normalise = true, .scale = 2.5F};
  const RouterOptions plain{
      .score = RouterScore::kSoftmax, .choices = 3, .normalise = false, .scale = 1.0F};
  Check(mixtral, DType::kF32, {.rows = 37, .cols = 8}, false);
  Check(mixtral, DType::kBF16, {.rows = 5, .cols = 33}, false);
  Check(deepseek, DType::kF32, {.rows = 9, .cols = 256}, true);
  Check(plain, DType::kF16, {.rows = 6, .cols = 512}, false);
  Check({.score = RouterScore::kSigmoid, .choices = 32, .normalise = false, .scale = 1.0F},
        DType::kF32, {.rows = 3, .cols = 32}, false);
  Check({.score = RouterScore::kSoftmax, .choices = 1, .normalise = false, .scale = 1.0F},
        DType::kF32, {.rows = 1, .cols = 1}, false);
}

TEST(CudaRouter, GroupsInOrder) {
  for (const int64_t count : {0, 1, 255, 256, 257, 1000}) {
    for (const int64_t number : {1, 7, 40}) {
      SCOPED_TRACE(::testing::Message() << count << " to " << number);
      const Random random({.seed = kSeed, .stream = static_cast<uint64_t>(count)});
      std::vector<int32_t> experts;
      for (int64_t i = 0; i < count; ++i) {
        // Some experts get none, some assignments have no expert.
        const auto drawn = static_cast<int32_t>(random.Below(number, static_cast<uint64_t>(i)));
        experts.push_back(i % 13 == 5 ? -1 : drawn % 5 == 3 ? 0 : drawn);
      }
      ExpectSameOnEveryRun([&](const DeviceRun& run) {
        const auto old = static_cast<int32_t>(run.poison);
        std::vector<int32_t> offsets(static_cast<size_t>(number + 1), old);
        std::vector<int32_t> slots(experts.size(), old);
        std::vector<int32_t> sources(experts.size(), old);
        EXPECT_EQ(cuda::GroupByExpert(
                      run.stream,
                      {.experts = experts, .offsets = offsets, .slots = slots, .sources = sources}),
                  0);
        std::vector<int32_t> expected_slots(experts.size(), -1);
        std::vector<int32_t> expected_sources(experts.size(), -1);
        std::vector<int32_t> expected_offsets;
        int32_t next = 0;
        for (int32_t expert = 0; expert < number; ++expert) {
          expected_offsets.push_back(next);
          for (size_t i = 0; i < experts.size(); ++i) {
            if (experts[i] != expert) continue;
            expected_sources[static_cast<size_t>(next)] = static_cast<int32_t>(i);
            expected_slots[i] = next++;
          }
        }
        expected_offsets.push_back(next);
        EXPECT_EQ(offsets, expected_offsets);
        EXPECT_EQ(slots, expected_slots);
        EXPECT_EQ(sources, expected_sources);
        const auto bytes = std::as_bytes(std::span(slots));
        return std::vector<std::byte>(bytes.begin(), bytes.end());
      });
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace gantry::testing
