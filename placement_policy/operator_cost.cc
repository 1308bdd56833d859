#include "placement_policy/operator_cost.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace gantry {
namespace {

constexpr double kAttentionBackwardFactor = 2.5;
// The blocks in which kernels/cross_entropy_head.h goes through logits.
constexpr int64_t kTokenBlock = 1024;
constexpr int64_t kVocabularyBlock = 2048;
constexpr int64_t kVocabularyBlockMin = 256;
constexpr int64_t kLogitGradientElements = int64_t{8} << 20;
constexpr int64_t kFloatBytes = 4;

// Computes the bytes of one token; the head's workspaces come on top.
class TokenBytes {
 public:
  TokenBytes(const ModelShape& shape, DType dtype)
      : shape_(shape),
        element_(SizeOf(dtype)),
        width_(shape.width * element_),
        norm_row_(shape.family == ModelFamily::kGpt2 ? 8 : 4) {}

  OperatorCost Of(OperatorKind kind) const {
    switch (kind) {
      case OperatorKind::kEmbedding:
        return {.stream_bytes = width_, .backward_bytes = width_};
      case OperatorKind::kQueryKeyValue:
        return {.saved_bytes = SavedQueryKeyValue(),
                .read_next_bytes = QueryKeyValue(),
                .backward_bytes = 2 * width_};
      case OperatorKind::kAttention:
        return {.saved_bytes = Attended() + 4 * shape_.heads,
                .read_next_bytes = Attended(),
                .backward_bytes = width_ + Attended() + QueryKeyValue()};
      case OperatorKind::kAttentionOutput:
        return {.saved_bytes = width_,
                .forward_bytes = width_,
                .backward_bytes = 2 * width_ + Attended()};
      case OperatorKind::kMlpUp:
      case OperatorKind::kMlpDown:
        return OfMlp(kind);
      case OperatorKind::kRouter:
      case OperatorKind::kExperts:
      case OperatorKind::kSharedExperts:
        return OfMixture(kind);
      case OperatorKind::kFinalNorm:
        return {.saved_bytes = width_ + norm_row_,
                .read_next_bytes = width_,
                .backward_bytes = 2 * width_};
      case OperatorKind::kHead:
        return {.saved_bytes = 8, .forward_bytes = 16, .backward_bytes = width_};
    }
    GANTRY_CHECK(false) << "operator kind " << static_cast<int>(kind);
    return {};
  }

 private:
  int64_t Attended() const { return element_ * shape_.attended_width(); }
  int64_t QueryKeyValue() const {
    return element_ * (shape_.query_width() + shape_.key_width() + shape_.value_width());
  }
  int64_t SavedQueryKeyValue() const {
    int64_t bytes = width_ + norm_row_ + QueryKeyValue();
    if (shape_.query_key_norm) {
      bytes += element_ * (shape_.query_width() + shape_.key_width()) +
               norm_row_ * (shape_.heads + shape_.kv_heads);
    }
    const LatentAttentionShape& latent = shape_.latent;
    if (latent.kv_rank > 0) {
      bytes += element_ * (2 * latent.kv_rank + latent.rope_dim) + norm_row_;
      if (latent.query_rank > 0) bytes += element_ * 2 * latent.query_rank + norm_row_;
    }
    return bytes;
  }

  OperatorCost OfMlp(OperatorKind kind) const {
    const int64_t ffn = element_ * shape_.ffn_width;
    const int64_t up = shape_.family == ModelFamily::kGpt2 ? ffn : 2 * ffn;
    if (kind == OperatorKind::kMlpUp) {
      return {.saved_bytes = width_ + norm_row_ + up,
              .forward_bytes = ffn,
              .backward_bytes = 2 * width_};
    }
    return {.saved_bytes = ffn,
            .stream_bytes = width_,
            .forward_bytes = width_,
            .backward_bytes = width_ + ffn};
  }

  OperatorCost OfMixture(OperatorKind kind) const {
    const MixtureShape& mixture = shape_.mixture;
    const int64_t chosen = mixture.experts_per_token;
    if (kind == OperatorKind::kRouter) {
      return {.saved_bytes = width_ + norm_row_ + 4 * mixture.experts + 8 * chosen,
              .read_next_bytes = width_ + 8 * chosen,
              .backward_bytes = 2 * width_ + 4 * mixture.experts};
    }
    if (kind == OperatorKind::kExperts) {
      const int64_t expert = element_ * mixture.expert_width;
      return {.saved_bytes = chosen * (2 * width_ + 3 * expert),
              .stream_bytes = mixture.shared_experts == 0 ? width_ : 0,
              .forward_bytes = width_,
              .backward_bytes = 2 * width_ + chosen * (width_ + expert)};
    }
    const int64_t shared = element_ * mixture.shared_experts * mixture.expert_width;
    return {.saved_bytes = 3 * shared,
            .stream_bytes = width_,
            .forward_bytes = 2 * width_,
            .backward_bytes = 2 * width_ + shared};
  }

  const ModelShape& shape_;
  int64_t element_;
  int64_t width_;
  int64_t norm_row_;
};

void AddHeadWorkspaces(const ModelShape& shape, const MicroBatchShape& micro_batch,
                       OperatorCost& cost) {
  const int64_t tokens = micro_batch.tokens();
  const int64_t token_block = std::min(kTokenBlock, tokens);
  cost.forward_bytes += kFloatBytes * token_block * std::min(kVocabularyBlock, shape.vocabulary);
  const int64_t words = kLogitGradientElements / tokens / kVocabularyBlockMin * kVocabularyBlockMin;
  const int64_t block =
      std::min(shape.vocabulary, std::clamp(words, kVocabularyBlockMin, kVocabularyBlock));
  cost.backward_bytes += SizeOf(micro_batch.dtype) * tokens * block;
  if (micro_batch.dtype == DType::kF32) return;
  cost.backward_bytes += kFloatBytes * (token_block * block + tokens * shape.width);
}

double MatrixElements(const ModelStructure& structure, const ModelOperator& op) {
  double elements = 0.0;
  for (int64_t i = 0; i < op.tensor_count; ++i) {
    const TensorShape& tensor = structure.tensors[static_cast<size_t>(op.first_tensor + i)];
    if (tensor.rows > 1) elements += static_cast<double>(tensor.elements());
  }
  return elements;
}

void AddFlops(const ModelShape& shape, double matrix_elements, OperatorKind kind,
              const MicroBatchShape& micro_batch, OperatorCost& cost) {
  const auto tokens = static_cast<double>(micro_batch.tokens());
  cost.tensor_rows = tokens;
  if (kind == OperatorKind::kEmbedding) return;
  if (kind == OperatorKind::kAttention) {
    const double pairs = static_cast<double>(micro_batch.sequences) *
                         AttentionPairs(micro_batch.length, shape.window);
    cost.forward_flops =
        2.0 * pairs * static_cast<double>(shape.query_width() + shape.attended_width());
    cost.input_gradient_flops = kAttentionBackwardFactor * cost.forward_flops;
    return;
  }
  if (kind == OperatorKind::kExperts) {
    cost.tensor_rows *= static_cast<double>(shape.mixture.experts_per_token) /
                        static_cast<double>(shape.mixture.experts);
  }
  cost.forward_flops = 2.0 * cost.tensor_rows * matrix_elements;
  cost.weight_gradient_flops = cost.forward_flops;
  cost.input_gradient_flops = cost.forward_flops * (kind == OperatorKind::kHead ? 2.0 : 1.0);
}

}  // namespace

double AttentionPairs(int64_t length, int64_t window) {
  const auto rows = static_cast<double>(length);
  const auto seen = static_cast<double>(window == 0 ? length : std::min(window, length));
  return seen * (seen + 1.0) / 2.0 + (rows - seen) * seen;
}

OperatorCost CostOf(const ModelShape& shape, const ModelStructure& structure,
                    const ModelOperator& op, const MicroBatchShape& micro_batch) {
  const int64_t tokens = micro_batch.tokens();
  GANTRY_CHECK(micro_batch.sequences >= 1 && tokens >= 1 && tokens <= kMicroBatchTokensMax);
  OperatorCost cost = TokenBytes(shape, micro_batch.dtype).Of(op.kind);
  for (int64_t* bytes : {&cost.saved_bytes, &cost.read_next_bytes, &cost.stream_bytes,
                         &cost.forward_bytes, &cost.backward_bytes}) {
    *bytes *= tokens;
  }
  if (op.kind == OperatorKind::kHead) AddHeadWorkspaces(shape, micro_batch, cost);
  AddFlops(shape, MatrixElements(structure, op), op.kind, micro_batch, cost);
  return cost;
}

}  // namespace gantry
