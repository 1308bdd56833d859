// Kernels of one decoder layer at the sizes of a small model (4 x 256 tokens, 768 channels, 2048 in
// the feed-forward layer, 12 heads of 64), bf16 and f32, on 2 threads.
//
// Roofline: the matrix products report FLOP/s to be compared with BM_OneLargeProduct, a single
// oneDNN call with its own OpenMP team; attention is to stay below a quarter of the
// time of the layer's seven products, forward and backward. The others report bytes/s, to be
// compared with memory bandwidth.
#include <oneapi/dnnl/dnnl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "benchmark/benchmark.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy_head.h"
#include "kernels/embedding.h"
#include "kernels/kernel_context.h"
#include "kernels/matmul.h"
#include "kernels/onednn.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "kernels/views.h"
#include "kernels/workspace.h"

namespace gantry {
namespace {

constexpr int64_t kBatch = 4;
constexpr int64_t kSequence = 256;
constexpr int64_t kTokens = kBatch * kSequence;
constexpr int64_t kChannels = 768;
constexpr int64_t kFeedForward = 2048;
constexpr int64_t kVocabulary = 32000;
constexpr AttentionShape kAttention = {
    .batch = kBatch, .tokens = kSequence, .query_heads = 12, .kv_heads = 12, .head_dim = 64};

class Runner {
 public:
  Runner() {
    auto team = ThreadTeam::Create({.threads = 2});
    GANTRY_CHECK_OK(team.status());
    team_ = *std::move(team);
    auto matmul = MatMul::Create({});
    GANTRY_CHECK_OK(matmul.status());
    matmul_ = *std::move(matmul);
  }
  KernelContext context() const { return {.team = team_.get(), .matmul = matmul_.get()}; }

 private:
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<MatMul> matmul_;
};

// Owns a matrix of small random numbers.
class Buffer {
 public:
  Buffer(DType dtype, MatrixShape shape) : dtype_(dtype), shape_(shape) {
    const Random random({.seed = 1, .stream = 1});
    const int64_t count = shape.rows * shape.cols;
    if (dtype == DType::kF32) {
      floats_.resize(static_cast<size_t>(count));
      for (size_t i = 0; i < floats_.size(); ++i) floats_[i] = Value(random, i);
    } else {
      halves_.resize(static_cast<size_t>(count));
      for (size_t i = 0; i < halves_.size(); ++i) halves_[i] = BFloat16(Value(random, i));
    }
  }
  MatrixView view() {
    return dtype_ == DType::kF32 ? ViewOf(std::span(floats_), shape_)
                                 : ViewOf(std::span(halves_), shape_);
  }
  double bytes() const { return static_cast<double>(shape_.rows * shape_.cols * SizeOf(dtype_)); }

 private:
  static float Value(const Random& random, size_t i) {
    return static_cast<float>(random.Uniform(i % 4096) - 0.5);
  }
  DType dtype_;
  MatrixShape shape_;
  std::vector<float> floats_;
  std::vector<BFloat16> halves_;
};

class Workspace {
 public:
  explicit Workspace(Bytes bytes)
      : memory_(static_cast<size_t>(bytes.count() + kWorkspaceAlignment)) {
    void* start = memory_.data();
    size_t space = memory_.size();
    std::align(static_cast<size_t>(kWorkspaceAlignment), static_cast<size_t>(bytes.count()), start,
               space);
    span_ = {static_cast<std::byte*>(start), static_cast<size_t>(bytes.count())};
  }
  std::span<std::byte> span() const { return span_; }

 private:
  std::vector<std::byte> memory_;
  std::span<std::byte> span_;
};

DType TypeOf(const benchmark::State& state) {
  return state.range(0) == 16 ? DType::kBF16 : DType::kF32;
}

void ReportFlops(benchmark::State& state, double flops) {
  state.counters["FLOP/s"] = benchmark::Counter(flops * static_cast<double>(state.iterations()),
                                                benchmark::Counter::kIsRate);
}
void ReportBytes(benchmark::State& state, double bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(bytes * static_cast<double>(state.iterations())));
}

struct LinearSizes {
  int64_t out;
  int64_t in;
};
LinearSizes SizesOf(const benchmark::State& state) {
  return {.out = state.range(1), .in = state.range(2)};
}
double LinearFlops(const LinearSizes& sizes) {
  return 2.0 * static_cast<double>(kTokens) * static_cast<double>(sizes.out * sizes.in);
}

void BM_LinearForward(benchmark::State& state) {
  const Runner runner;
  const LinearSizes sizes = SizesOf(state);
  Buffer x(TypeOf(state), {.rows = kTokens, .cols = sizes.in});
  Buffer weight(TypeOf(state), {.rows = sizes.out, .cols = sizes.in});
  Buffer y(TypeOf(state), {.rows = kTokens, .cols = sizes.out});
  for (auto _ : state) {
    GANTRY_CHECK_OK(
        LinearForward(runner.context(), {.x = x.view(), .weight = weight.view(), .y = y.view()}));
  }
  ReportFlops(state, LinearFlops(sizes));
}

void BM_LinearBackwardInput(benchmark::State& state) {
  const Runner runner;
  const LinearSizes sizes = SizesOf(state);
  Buffer grad_y(TypeOf(state), {.rows = kTokens, .cols = sizes.out});
  Buffer weight(TypeOf(state), {.rows = sizes.out, .cols = sizes.in});
  Buffer grad_x(TypeOf(state), {.rows = kTokens, .cols = sizes.in});
  for (auto _ : state) {
    GANTRY_CHECK_OK(LinearBackwardInput(runner.context(), {.grad_y = grad_y.view(),
                                                           .weight = weight.view(),
                                                           .grad_x = grad_x.view(),
                                                           .accumulate = Accumulate::kOverwrite}));
  }
  ReportFlops(state, LinearFlops(sizes));
}

void BM_LinearBackwardWeight(benchmark::State& state) {
  const Runner runner;
  const LinearSizes sizes = SizesOf(state);
  Buffer grad_y(TypeOf(state), {.rows = kTokens, .cols = sizes.out});
  Buffer x(TypeOf(state), {.rows = kTokens, .cols = sizes.in});
  Buffer grad_weight(TypeOf(state), {.rows = sizes.out, .cols = sizes.in});
  for (auto _ : state) {
    GANTRY_CHECK_OK(LinearBackwardWeight(runner.context(), {.grad_y = grad_y.view(),
                                                            .x = x.view(),
                                                            .grad_weight = grad_weight.view(),
                                                            .accumulate = Accumulate::kOverwrite}));
  }
  ReportFlops(state, LinearFlops(sizes));
}

// The bound of LinearForward: one oneDNN call on oneDNN's own OpenMP team of all cores.
void BM_OneLargeProduct(benchmark::State& state) {
  const LinearSizes sizes = SizesOf(state);
  const DType dtype = TypeOf(state);
  Buffer x(dtype, {.rows = kTokens, .cols = sizes.in});
  Buffer weight(dtype, {.rows = sizes.out, .cols = sizes.in});
  Buffer y(dtype, {.rows = kTokens, .cols = sizes.out});
  if (dtype == DType::kF32) {
    for (auto _ : state) {
      dnnl_sgemm('N', 'T', kTokens, sizes.out, sizes.in, 1.0f, x.view().Row<float>(0), sizes.in,
                 weight.view().Row<float>(0), sizes.in, 0.0f, y.view().Row<float>(0), sizes.out);
    }
    return ReportFlops(state, LinearFlops(sizes));
  }
  if (!onednn::HasNativeBF16()) return state.SkipWithError("no AVX512-BF16");
  const auto engine = onednn::CreateCpuEngine();
  GANTRY_CHECK_OK(engine.status());
  const auto stream = onednn::CreateStream(engine->get());
  GANTRY_CHECK_OK(stream.status());
  const auto product =
      onednn::BF16Product::Create(engine->get(), {.m = kTokens,
                                                  .n = sizes.out,
                                                  .k = sizes.in,
                                                  .a_row_stride = sizes.in,
                                                  .a_column_stride = 1,
                                                  .b_row_stride = 1,
                                                  .b_column_stride = sizes.in,
                                                  .c_row_stride = sizes.out,
                                                  .c_dtype = DType::kBF16,
                                                  .accumulate = Accumulate::kOverwrite});
  GANTRY_CHECK_OK(product.status());
  const Workspace scratch((*product)->scratch_bytes());
  for (auto _ : state) {
    GANTRY_CHECK_OK((*product)->Execute(stream->get(), {.a = x.view().data,
                                                        .b = weight.view().data,
                                                        .c = y.view().data,
                                                        .scratch = scratch.span().data()}));
  }
  ReportFlops(state, LinearFlops(sizes));
}

// All inputs and outputs of attention at the bench's size.
struct AttentionBuffers {
  explicit AttentionBuffers(DType dtype)
      : qkv(dtype, {.rows = kTokens, .cols = 3 * kChannels}),
        grad_qkv(dtype, {.rows = kTokens, .cols = 3 * kChannels}),
        out(dtype, {.rows = kTokens, .cols = kChannels}),
        grad_out(dtype, {.rows = kTokens, .cols = kChannels}),
        log_sum_exp(static_cast<size_t>(kTokens * kAttention.query_heads)) {}
  static MatrixView Part(Buffer& fused, int64_t index) {
    return fused.view().Columns(index * kChannels, kChannels);
  }
  AttentionForwardArgs Forward(std::span<std::byte> workspace) {
    return {.shape = kAttention,
            .scale = 0.125f,
            .q = Part(qkv, 0),
            .k = Part(qkv, 1),
            .v = Part(qkv, 2),
            .out = out.view(),
            .log_sum_exp = log_sum_exp,
            .workspace = workspace};
  }

  Buffer qkv;
  Buffer grad_qkv;
  Buffer out;
  Buffer grad_out;
  std::vector<float> log_sum_exp;
};

// Half of the full square: 2 (forward) or 5 (backward) products of tokens^2 / 2 * head_dim.
double AttentionFlops(double products) {
  return products * static_cast<double>(kBatch * kSequence * kSequence * kChannels);
}

void BM_AttentionForward(benchmark::State& state) {
  const Runner runner;
  AttentionBuffers buffers(TypeOf(state));
  const Workspace workspace(AttentionForwardWorkspace(kAttention, 2));
  for (auto _ : state) AttentionForward(runner.context(), buffers.Forward(workspace.span()));
  ReportFlops(state, AttentionFlops(2));
}

void BM_AttentionBackward(benchmark::State& state) {
  const Runner runner;
  AttentionBuffers buffers(TypeOf(state));
  const Workspace forward(AttentionForwardWorkspace(kAttention, 2));
  const Workspace workspace(AttentionBackwardWorkspace(kAttention, 2));
  AttentionForward(runner.context(), buffers.Forward(forward.span()));
  const AttentionBackwardArgs args = {.shape = kAttention,
                                      .scale = 0.125f,
                                      .q = AttentionBuffers::Part(buffers.qkv, 0),
                                      .k = AttentionBuffers::Part(buffers.qkv, 1),
                                      .v = AttentionBuffers::Part(buffers.qkv, 2),
                                      .out = buffers.out.view(),
                                      .log_sum_exp = buffers.log_sum_exp,
                                      .grad_out = buffers.grad_out.view(),
                                      .grad_q = AttentionBuffers::Part(buffers.grad_qkv, 0),
                                      .grad_k = AttentionBuffers::Part(buffers.grad_qkv, 1),
                                      .grad_v = AttentionBuffers::Part(buffers.grad_qkv, 2),
                                      .workspace = workspace.span()};
  for (auto _ : state) AttentionBackward(runner.context(), args);
  ReportFlops(state, AttentionFlops(5));
}

void BM_AttentionDecode(benchmark::State& state) {
  const Runner runner;
  constexpr int64_t kLength = 2048;
  Buffer q(TypeOf(state), {.rows = 1, .cols = kChannels});
  Buffer k(TypeOf(state), {.rows = kLength, .cols = kChannels});
  Buffer v(TypeOf(state), {.rows = kLength, .cols = kChannels});
  Buffer out(TypeOf(state), {.rows = 1, .cols = kChannels});
  const Workspace workspace(AttentionDecodeWorkspace(
      {.batch = 1, .tokens = kLength, .query_heads = 12, .kv_heads = 12, .head_dim = 64}));
  for (auto _ : state) {
    AttentionDecode(runner.context(), {.query_heads = 12,
                                       .kv_heads = 12,
                                       .scale = 0.125f,
                                       .q = q.view(),
                                       .k = k.view(),
                                       .v = v.view(),
                                       .out = out.view(),
                                       .workspace = workspace.span()});
  }
  ReportBytes(state, k.bytes() + v.bytes());
}

void BM_RmsNormForward(benchmark::State& state) {
  const Runner runner;
  const MatrixShape shape = {.rows = kTokens, .cols = kChannels};
  Buffer x(TypeOf(state), shape);
  Buffer residual(TypeOf(state), shape);
  Buffer sum(TypeOf(state), shape);
  Buffer y(TypeOf(state), shape);
  Buffer weight(TypeOf(state), {.rows = 1, .cols = kChannels});
  std::vector<float> rstd(static_cast<size_t>(kTokens));
  for (auto _ : state) {
    RmsNormForward(runner.context(), {.x = x.view(),
                                      .residual = residual.view(),
                                      .sum = sum.view(),
                                      .weight = weight.view().RowView(0),
                                      .epsilon = 1e-5f,
                                      .y = y.view(),
                                      .rstd = rstd});
  }
  ReportBytes(state, 4 * x.bytes());
}

void BM_RmsNormBackward(benchmark::State& state) {
  const Runner runner;
  const MatrixShape shape = {.rows = kTokens, .cols = kChannels};
  Buffer h(TypeOf(state), shape);
  Buffer grad_y(TypeOf(state), shape);
  Buffer grad_residual(TypeOf(state), shape);
  Buffer grad_h(TypeOf(state), shape);
  Buffer weight(TypeOf(state), {.rows = 1, .cols = kChannels});
  Buffer grad_weight(TypeOf(state), {.rows = 1, .cols = kChannels});
  const std::vector<float> rstd(static_cast<size_t>(kTokens), 3.0f);
  const Workspace workspace(RmsNormBackwardWorkspace(shape));
  for (auto _ : state) {
    RmsNormBackward(runner.context(), {.h = h.view(),
                                       .weight = weight.view().RowView(0),
                                       .rstd = rstd,
                                       .grad_y = grad_y.view(),
                                       .grad_residual = grad_residual.view(),
                                       .grad_h = grad_h.view(),
                                       .grad_weight = grad_weight.view().RowView(0),
                                       .accumulate = Accumulate::kAdd,
                                       .workspace = workspace.span()});
  }
  ReportBytes(state, 4 * h.bytes());
}

void BM_Rope(benchmark::State& state) {
  const Runner runner;
  Buffer heads(TypeOf(state), {.rows = kTokens, .cols = kChannels});
  const std::vector<double> frequencies = RopeFrequencies(10000, 64);
  const RopeTable table({.positions = kSequence, .frequencies = frequencies});
  for (auto _ : state) {
    ApplyRope(runner.context(), {.heads = heads.view(),
                                 .table = &table,
                                 .tokens_per_sequence = kSequence,
                                 .position_offset = 0,
                                 .direction = RopeDirection::kForward});
  }
  ReportBytes(state, 2 * heads.bytes());
}

void BM_SwiGluForward(benchmark::State& state) {
  const Runner runner;
  const MatrixShape shape = {.rows = kTokens, .cols = kFeedForward};
  Buffer gate(TypeOf(state), shape);
  Buffer up(TypeOf(state), shape);
  Buffer activated(TypeOf(state), shape);
  for (auto _ : state) {
    SwiGluForward(runner.context(),
                  {.gate = gate.view(), .up = up.view(), .activated = activated.view()});
  }
  ReportBytes(state, 3 * gate.bytes());
}

void BM_SwiGluBackward(benchmark::State& state) {
  const Runner runner;
  const MatrixShape shape = {.rows = kTokens, .cols = kFeedForward};
  Buffer gate(TypeOf(state), shape);
  Buffer up(TypeOf(state), shape);
  Buffer grad(TypeOf(state), shape);
  Buffer grad_gate(TypeOf(state), shape);
  Buffer grad_up(TypeOf(state), shape);
  for (auto _ : state) {
    SwiGluBackward(runner.context(), {.gate = gate.view(),
                                      .up = up.view(),
                                      .grad_activated = grad.view(),
                                      .grad_gate = grad_gate.view(),
                                      .grad_up = grad_up.view()});
  }
  ReportBytes(state, 5 * gate.bytes());
}

std::vector<int32_t> Tokens() {
  const Random random({.seed = 1, .stream = 2});
  std::vector<int32_t> tokens(static_cast<size_t>(kTokens));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(random.Below(kVocabulary, i));
  }
  return tokens;
}

void BM_EmbeddingBackward(benchmark::State& state) {
  const Runner runner;
  Buffer grad(TypeOf(state), {.rows = kTokens, .cols = kChannels});
  Buffer grad_table(TypeOf(state), {.rows = kVocabulary, .cols = kChannels});
  const std::vector<int32_t> tokens = Tokens();
  const Workspace workspace(EmbeddingBackwardWorkspace(kTokens));
  for (auto _ : state) {
    EmbeddingBackward(runner.context(), {.tokens = tokens,
                                         .grad_embedded = grad.view(),
                                         .grad_table = grad_table.view(),
                                         .accumulate = Accumulate::kOverwrite,
                                         .workspace = workspace.span()});
  }
  ReportBytes(state, grad_table.bytes() + grad.bytes());
}

// Forward and backward: four products of tokens * channels * vocabulary.
void BM_CrossEntropyHead(benchmark::State& state) {
  const Runner runner;
  const HeadShape shape = {.tokens = kTokens, .channels = kChannels, .vocabulary = kVocabulary};
  const DType dtype = TypeOf(state);
  Buffer x(dtype, {.rows = kTokens, .cols = kChannels});
  Buffer grad_x(dtype, {.rows = kTokens, .cols = kChannels});
  Buffer weight(dtype, {.rows = kVocabulary, .cols = kChannels});
  Buffer grad_weight(dtype, {.rows = kVocabulary, .cols = kChannels});
  const std::vector<int32_t> targets = Tokens();
  std::vector<float> log_probabilities(targets.size());
  std::vector<float> log_sum_exp(targets.size());
  std::vector<float> grads(targets.size());
  const Workspace forward(TokenLogProbabilitiesWorkspace(shape));
  const Workspace backward(
      TokenLogProbabilitiesBackwardWorkspace(shape, {.x = dtype, .grad_x = dtype}));
  for (auto _ : state) {
    GANTRY_CHECK_OK(TokenLogProbabilities(runner.context(), {.x = x.view(),
                                                             .weight = weight.view(),
                                                             .targets = targets,
                                                             .log_probabilities = log_probabilities,
                                                             .log_sum_exp = log_sum_exp,
                                                             .workspace = forward.span()}));
    CrossEntropy({.log_probabilities = log_probabilities,
                  .targets = targets,
                  .scale = 1.0 / kTokens,
                  .grad_log_probabilities = grads});
    GANTRY_CHECK_OK(
        TokenLogProbabilitiesBackward(runner.context(), {.x = x.view(),
                                                         .weight = weight.view(),
                                                         .targets = targets,
                                                         .log_sum_exp = log_sum_exp,
                                                         .grad_log_probabilities = grads,
                                                         .grad_x = grad_x.view(),
                                                         .grad_weight = grad_weight.view(),
                                                         .accumulate = Accumulate::kOverwrite,
                                                         .workspace = backward.span()}));
  }
  ReportFlops(state, 4 * LinearFlops({.out = kVocabulary, .in = kChannels}));
}

void LinearArguments(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"bits", "out", "in"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const int64_t bits : {16, 32}) {
    benchmark->Args({bits, kChannels, kChannels});
    benchmark->Args({bits, kFeedForward, kChannels});
    benchmark->Args({bits, kChannels, kFeedForward});
  }
}
void TypeArguments(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("bits")->Arg(16)->Arg(32)->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(BM_LinearForward)->Apply(LinearArguments);
BENCHMARK(BM_OneLargeProduct)->Apply(LinearArguments);
BENCHMARK(BM_LinearBackwardInput)->Apply(LinearArguments);
BENCHMARK(BM_LinearBackwardWeight)->Apply(LinearArguments);
BENCHMARK(BM_AttentionForward)->Apply(TypeArguments);
BENCHMARK(BM_AttentionBackward)->Apply(TypeArguments);
BENCHMARK(BM_AttentionDecode)->Apply(TypeArguments);
BENCHMARK(BM_RmsNormForward)->Apply(TypeArguments);
BENCHMARK(BM_RmsNormBackward)->Apply(TypeArguments);
BENCHMARK(BM_Rope)->Apply(TypeArguments);
BENCHMARK(BM_SwiGluForward)->Apply(TypeArguments);
BENCHMARK(BM_SwiGluBackward)->Apply(TypeArguments);
BENCHMARK(BM_EmbeddingBackward)->Apply(TypeArguments);
BENCHMARK(BM_CrossEntropyHead)->Apply(TypeArguments);

}  // namespace
}  // namespace gantry

BENCHMARK_MAIN();
