#include "gemini/eight_bit_moments.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gantry {
namespace {

constexpr int64_t kBlock = kQuantizationBlockElements;

// Calls visit(block, offset in the block, offset in the range, elements) for each quantization
// block that elements [element, element + count) of a chunk touch.
template <typename Visit>
void ForEachBlock(int64_t element, int64_t count, Visit visit) {
  for (int64_t done = 0; done < count;) {
    const int64_t offset = (element + done) % kBlock;
    const int64_t n = std::min(count - done, kBlock - offset);
    visit((element + done) / kBlock, offset, done, n);
    done += n;
  }
}

}  // namespace

EightBitMoments::EightBitMoments(const ChunkLayout& layout) : layout_(layout) {
  const auto chunks = static_cast<size_t>(layout.chunk_count());
  scales_.resize(chunks);
  aside_.resize(chunks);
  written_.resize(chunks);
  const auto blocks = static_cast<size_t>(layout.chunk_elements() / kBlock);
  for (size_t c = 0; c < chunks; ++c) {
    if (layout.HasEightBitMoments(ChunkId(static_cast<int64_t>(c)))) {
      scales_[c].assign(blocks, EightBitScales{.momentum = 0.0f, .variance = 0.0f});
    }
  }
}

void EightBitMoments::Read(BlockId moment, int64_t element, const uint8_t* codes,
                           std::span<float> values) const {
  BlockFloats decoded;
  ForEachBlock(element, std::ssize(values),
               [&](int64_t block, int64_t offset, int64_t done, int64_t n) {
                 const auto& written = written_[Index(moment.chunk)];
                 const auto kept = written.find({block, moment.kind});
                 if (kept == written.end()) {
                   Decode(moment.chunk, {block, moment.kind}, codes, decoded);
                 }
                 const BlockFloats& from = kept == written.end() ? decoded : kept->second.values;
                 std::copy_n(from.begin() + offset, n, values.begin() + done);
               });
}

void EightBitMoments::Write(BlockId moment, int64_t element, std::span<const float> values,
                            uint8_t* codes) {
  auto& written = written_[Index(moment.chunk)];
  ForEachBlock(element, std::ssize(values),
               [&](int64_t block, int64_t offset, int64_t done, int64_t n) {
                 const Key key{block, moment.kind};
                 const auto [kept, is_new] = written.try_emplace(key);
                 if (is_new) Decode(moment.chunk, key, codes, kept->second.values);
                 std::copy_n(values.begin() + done, n, kept->second.values.begin() + offset);
                 for (int64_t i = 0; i < n; ++i) {
                   kept->second.elements.set(static_cast<size_t>(offset + i));
                 }
                 const auto count = static_cast<int64_t>(kept->second.elements.count());
                 if (count < TensorElements(moment.chunk, block)) return;
                 Encode(moment.chunk, key, kept->second.values, codes);
                 written.erase(kept);
               });
}

void EightBitMoments::Settle(ChunkId chunk, uint8_t* codes) {
  for (const auto& [key, kept] : written_[Index(chunk)]) Encode(chunk, key, kept.values, codes);
  written_[Index(chunk)].clear();
}

void EightBitMoments::SetScalesAside(ChunkId chunk) {
  GANTRY_CHECK(!HasWritten(chunk) && aside_[Index(chunk)].empty()) << chunk;
  aside_[Index(chunk)] = scales_[Index(chunk)];
}

void EightBitMoments::TakeScalesBack(ChunkId chunk) {
  if (aside_[Index(chunk)].empty()) return;
  scales_[Index(chunk)] = std::exchange(aside_[Index(chunk)], {});
}

Bytes EightBitMoments::bytes() const {
  size_t bytes = 0;
  for (const auto& scales : scales_) bytes += scales.size() * sizeof(EightBitScales);
  for (const auto& scales : aside_) bytes += scales.size() * sizeof(EightBitScales);
  for (const auto& written : written_) bytes += written.size() * sizeof(Written);
  return Bytes(static_cast<int64_t>(bytes));
}

void EightBitMoments::Decode(ChunkId chunk, const Key& key, const uint8_t* codes,
                             BlockFloats& values) const {
  BlockFloats other;
  const bool is_momentum = key.moment == StateKind::kMomentum;
  float* const momentum = is_momentum ? values.data() : other.data();
  float* const variance = is_momentum ? other.data() : values.data();
  DecodeBlock(codes + key.block * kBlock * kCodeBytesPerElement,
              scales_[Index(chunk)][static_cast<size_t>(key.block)], momentum,
              has_variance() ? variance : nullptr);
}

// Encodes one moment; the other is decoded and encoded, which changes none of its values.
void EightBitMoments::Encode(ChunkId chunk, const Key& key, const BlockFloats& values,
                             uint8_t* codes) {
  const bool is_momentum = key.moment == StateKind::kMomentum;
  GANTRY_CHECK(is_momentum || has_variance()) << Name(key.moment);
  BlockFloats other;
  const Key partner{key.block, is_momentum ? StateKind::kVariance : StateKind::kMomentum};
  if (has_variance()) Decode(chunk, partner, codes, other);
  const float* const momentum = is_momentum ? values.data() : other.data();
  const float* const variance = is_momentum ? other.data() : values.data();
  scales_[Index(chunk)][static_cast<size_t>(key.block)] =
      EncodeBlock(momentum, has_variance() ? variance : nullptr,
                  codes + key.block * kBlock * kCodeBytesPerElement);
}

// How many elements of a block belong to tensors.
int64_t EightBitMoments::TensorElements(ChunkId chunk, int64_t block) const {
  const int64_t begin = block * kBlock;
  const int64_t end = begin + kBlock;
  const std::span<const TensorSlice> slices = layout_.SlicesIn(chunk);
  int64_t elements = 0;
  for (auto slice = std::ranges::partition_point(
           slices,
           [&](const TensorSlice& each) { return each.chunk_begin + each.elements <= begin; });
       slice != slices.end() && slice->chunk_begin < end; ++slice) {
    elements +=
        std::min(slice->chunk_begin + slice->elements, end) - std::max(slice->chunk_begin, begin);
  }
  return elements;
}

}  // namespace gantry
