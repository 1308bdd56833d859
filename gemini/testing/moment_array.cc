#include "gemini/testing/moment_array.h"

#include <algorithm>

#include "base/bytes.h"
#include "offload/eight_bit_states.h"

namespace gantry {
namespace {

constexpr int64_t kBlock = kQuantizationBlockElements;

}  // namespace

MomentArray::MomentArray(StateKind kind, int64_t elements, StateFormat format)
    : kind_(kind),
      format_(format),
      values_(static_cast<size_t>(RoundUp(elements, kBlock)), 0.0F),
      open_(values_.size(), 0),
      tensor_(values_.size(), 0) {}

void MomentArray::AddTensor(int64_t first, int64_t count) {
  if (values_.empty()) return;
  std::fill_n(tensor_.begin() + first, count, 1);
  std::fill_n(open_.begin() + first, count, 1);
}

void MomentArray::OnWritten(int64_t first, int64_t count) {
  if (!eight_bit()) return;
  std::fill_n(open_.begin() + first, count, 0);
  for (int64_t begin = first / kBlock * kBlock; begin < first + count; begin += kBlock) {
    const auto block = open_.begin() + begin;
    if (std::find(block, block + kBlock, 1) == block + kBlock) RoundBlock(begin);
  }
}

void MomentArray::RoundAll() {
  if (!eight_bit()) return;
  for (size_t begin = 0; begin < values_.size(); begin += kBlock) {
    RoundBlock(static_cast<int64_t>(begin));
  }
}

void MomentArray::RoundBlock(int64_t begin) {
  std::vector<uint8_t> codes(kBlock * kCodeBytesPerElement);
  std::vector<float> zeros(kBlock, 0.0F);
  const bool is_momentum = kind_ == StateKind::kMomentum;
  float* const block = values_.data() + begin;
  float* const momentum = is_momentum ? block : zeros.data();
  float* const variance = is_momentum ? nullptr : block;
  DecodeBlock(codes.data(), EncodeBlock(momentum, variance, codes.data()), momentum, variance);
  std::copy_n(tensor_.begin() + begin, kBlock, open_.begin() + begin);
}

}  // namespace gantry
