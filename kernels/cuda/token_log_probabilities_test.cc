// A vocabulary in blocks of odd sizes against log-softmax in double: log-probabilities within 3e-6,
// gradients within a rounding of the largest, ignored tokens exactly zero.
#include "kernels/cuda/token_log_probabilities.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/random.h"
#include "kernels/cross_entropy_head.h"
#include "kernels/cuda/testing/device_run.h"
#include "kernels/testing/kernel_test_support.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry::testing {
namespace {

struct Case {
  int64_t tokens;
  int64_t vocabulary;
  int64_t block;  // words
  DType logits;
  DType gradients;
};

struct Reference {
  std::vector<double> log_sum_exp;
  std::vector<double> log_probabilities;
  reference::Matrix grad_logits;
};

Reference InDouble(const reference::Matrix& logits, std::span<const int32_t> targets,
                   std::span<const float> grads) {
  Reference result{.log_sum_exp = {}, .log_probabilities = {}, .grad_logits = logits};
  for (int64_t n = 0; n < logits.rows; ++n) {
    double maximum = -std::numeric_limits<double>::infinity();
    for (int64_t v = 0; v < logits.cols; ++v) maximum = std::max(maximum, logits(n, v));
    double sum = 0;
    for (int64_t v = 0; v < logits.cols; ++v) sum += std::exp(logits(n, v) - maximum);
    const double log_sum_exp = maximum + std::log(sum);
    const int32_t target = targets[static_cast<size_t>(n)];
    const double grad = target == kIgnoreTarget ? 0.0 : grads[static_cast<size_t>(n)];
    result.log_sum_exp.push_back(log_sum_exp);
    result.log_probabilities.push_back(target == kIgnoreTarget ? 0.0
                                                               : logits(n, target) - log_sum_exp);
    for (int64_t v = 0; v < logits.cols; ++v) {
      const double hit = v == target ? 1.0 : 0.0;
      result.grad_logits(n, v) = grad * (hit - std::exp(logits(n, v) - log_sum_exp));
    }
  }
  return result;
}

struct Tokens {
  std::vector<int32_t> targets;
  std::vector<float> grads;
};
Tokens RandomTokens(const Case& c) {
  const Random random({.seed = kSeed, .stream = 5});
  Tokens tokens;
  for (int64_t n = 0; n < c.tokens; ++n) {
    const auto at = static_cast<uint64_t>(3 * n);
    const bool ignored = n % 4 == 3;
    tokens.targets.push_back(ignored ? kIgnoreTarget
                                     : static_cast<int32_t>(random.Below(c.vocabulary, at)));
    tokens.grads.push_back(n % 7 == 5 ? 0.0F : static_cast<float>(random.Normal(at + 1)));
  }
  // The first and last words of blocks.
  if (c.tokens > 2) tokens.targets[0] = static_cast<int32_t>(c.vocabulary - 1);
  if (c.tokens > 2) tokens.targets[1] = static_cast<int32_t>(c.block % c.vocabulary);
  return tokens;
}

// A block of the vocabulary in memory of its own: what lies behind it is not the next block.
DeviceMatrix BlockOf(const reference::Matrix& logits, DType dtype, int64_t word, int64_t words) {
  reference::Matrix block(logits.rows, words);
  for (int64_t n = 0; n < logits.rows; ++n) {
    for (int64_t v = 0; v < words; ++v) block(n, v) = logits(n, word + v);
  }
  return DeviceMatrix({.dtype = dtype, .rows = logits.rows, .cols = words, .gap = 5}, block);
}

// Runs both passes on the device; grad_logits block by block into one matrix.
struct Outputs {
  std::vector<float> log_probabilities;
  std::vector<float> log_sum_exp;
  reference::Matrix grad_logits;
};
Outputs OnDevice(const Case& c, const reference::Matrix& logits, const Tokens& tokens) {
  Outputs outputs;
  ExpectSameOnEveryRun([&](const DeviceRun& run) {
    const auto size = static_cast<size_t>(c.tokens);
    DeviceBytes running(c.tokens * static_cast<int64_t>(sizeof(cuda::RunningLogits)), run.poison);
    const std::span<cuda::RunningLogits> running_span(
        reinterpret_cast<cuda::RunningLogits*>(running.span().data()), size);
    outputs.log_probabilities.assign(size, std::numeric_limits<float>::quiet_NaN());
    outputs.log_sum_exp = outputs.log_probabilities;
    DeviceMatrix grads({.dtype = c.gradients, .rows = c.tokens, .cols = c.vocabulary, .gap = 3},
                       run.poison);
    // With an odd number of tokens the last block comes first.
    const int64_t blocks = (c.vocabulary + c.block - 1) / c.block;
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t word = (c.tokens % 2 == 0 ? i : blocks - 1 - i) * c.block;
      const int64_t words = std::min(c.block, c.vocabulary - word);
      DeviceMatrix block = BlockOf(logits, c.logits, word, words);
      EXPECT_EQ(cuda::AddLogits(run.stream,
                                {.logits = block.view(),
                                 .first_word = word,
                                 .accumulate = i == 0 ? Accumulate::kOverwrite : Accumulate::kAdd,
                                 .targets = tokens.targets,
                                 .running = running_span,
                                 .target_logits = outputs.log_probabilities}),
                0);
    }
    EXPECT_EQ(
        cuda::FinishLogProbabilities(run.stream, {.targets = tokens.targets,
                                                  .running = running_span,
                                                  .log_probabilities = outputs.log_probabilities,
                                                  .log_sum_exp = outputs.log_sum_exp}),
        0);
    for (int64_t word = 0; word < c.vocabulary; word += c.block) {
      const int64_t words = std::min(c.block, c.vocabulary - word);
      DeviceMatrix block = BlockOf(logits, c.logits, word, words);
      EXPECT_EQ(
          cuda::LogitsToGradients(run.stream, {.logits = block.view(),
                                               .first_word = word,
                                               .targets = tokens.targets,
                                               .log_sum_exp = outputs.log_sum_exp,
                                               .grad_log_probabilities = tokens.grads,
                                               .grad_logits = grads.view().Columns(word, words)}),
          0);
    }
    grads.ExpectIntact();
    outputs.grad_logits = grads.values();
    std::vector<std::byte> bytes;
    grads.AppendTo(bytes);
    Append(outputs.log_probabilities, bytes);
    Append(outputs.log_sum_exp, bytes);
    return bytes;
  });
  return outputs;
}

void Check(const Case& c, const reference::Matrix& values) {
  SCOPED_TRACE(::testing::Message() << c.tokens << " tokens, " << c.vocabulary << " words in "
                                    << c.block << ", " << c.logits);
  const Tokens tokens = RandomTokens(c);
  const reference::Matrix logits =
      DeviceMatrix({.dtype = c.logits, .rows = c.tokens, .cols = c.vocabulary}, values).values();
  const Outputs outputs = OnDevice(c, logits, tokens);
  const Reference expected = InDouble(logits, tokens.targets, tokens.grads);
  for (int64_t n = 0; n < c.tokens; ++n) {
    for (int64_t v = 0; v < c.vocabulary; ++v) {
      if (std::isinf(logits(n, v))) {
        ASSERT_EQ(outputs.grad_logits(n, v), 0.0);
      }
    }
  }
  for (size_t n = 0; n < tokens.targets.size(); ++n) {
    const double allowed = 3e-6 * (1 + std::abs(expected.log_sum_exp[n]));
    EXPECT_NEAR(outputs.log_sum_exp[n], expected.log_sum_exp[n], allowed) << n;
    EXPECT_NEAR(outputs.log_probabilities[n], expected.log_probabilities[n], 2 * allowed) << n;
    const bool without = tokens.targets[n] == kIgnoreTarget || tokens.grads[n] == 0.0F;
    if (tokens.targets[n] == kIgnoreTarget) {
      EXPECT_EQ(outputs.log_probabilities[n], 0.0F);
    }
    for (int64_t v = 0; without && v < c.vocabulary; ++v) {
      ASSERT_EQ(outputs.grad_logits(static_cast<int64_t>(n), v), 0.0);
    }
  }
  ExpectNear(outputs.grad_logits, expected.grad_logits,
             {.absolute = 0, .relative = RoundingError(c.gradients, 1) + 2e-5}, "grad_logits");
}

TEST(CudaTokenLogProbabilities, AreLogSoftmaxInDouble) {
  for (const Case& c :
       {Case{0, 5, 5, DType::kF32, DType::kF32}, Case{1, 1, 1, DType::kF32, DType::kBF16},
        Case{5, 300, 64, DType::kF32, DType::kF32}, Case{9, 2311, 1155, DType::kBF16, DType::kBF16},
        Case{4, 40, 7, DType::kF16, DType::kF32}, Case{3, 2051, 2051, DType::kF32, DType::kBF16},
        Case{7, 513, 256, DType::kF16, DType::kF16}}) {
    Check(c, RandomMatrix({.rows = c.tokens, .cols = c.vocabulary}, 1, 5.0));
    if (HasFailure()) return;
  }
}

// Logits of hundreds, where exponentials overflow without the maximum, and words of probability 0.
TEST(CudaTokenLogProbabilities, LargeAndInfiniteLogits) {
  const Case c{6, 260, 64, DType::kF32, DType::kF32};
  reference::Matrix values = RandomMatrix({.rows = 6, .cols = 260}, 2, 200.0);
  for (int64_t v = 0; v < 64; ++v) values(2, v) = -std::numeric_limits<double>::infinity();
  Tokens tokens = RandomTokens(c);
  for (int64_t n = 0; n < 6; ++n) {
    const int32_t target = tokens.targets[static_cast<size_t>(n)];
    if (n == 2 && target >= 0 && target < 64) values(2, target) = 1.0;
  }
  Check(c, values);
}

}  // namespace
}  // namespace gantry::testing
