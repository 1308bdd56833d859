// One moment of a group of tensors for the memory store: plain f32 values. In eight bits they are
// the values that codes can hold: blocks are encoded and decoded again, as the store's interface
// says: when all of a block has been written, and with each update.
#ifndef GANTRY_GEMINI_TESTING_MOMENT_ARRAY_H_
#define GANTRY_GEMINI_TESTING_MOMENT_ARRAY_H_

#include <cstdint>
#include <vector>

#include "chunk/block.h"
#include "chunk/optimizer_states.h"

namespace gantry {

class MomentArray {
 public:
  MomentArray() = default;  // no moment: data() is null
  // Zeros. `kind` is kMomentum or kVariance.
  MomentArray(StateKind kind, int64_t elements, StateFormat format);

  float* data() { return values_.empty() ? nullptr : values_.data(); }

  // Elements [first, first + count) belong to a tensor; others are never written.
  void AddTensor(int64_t first, int64_t count);
  // They have been written.
  void OnWritten(int64_t first, int64_t count);
  void RoundAll();

 private:
  bool eight_bit() const { return format_ == StateFormat::kEightBit && !values_.empty(); }
  void RoundBlock(int64_t begin);

  StateKind kind_ = StateKind::kMomentum;
  StateFormat format_ = StateFormat::kF32;
  std::vector<float> values_;  // whole quantization blocks
  std::vector<char> open_;     // by element: of a tensor, and not written since its last rounding
  std::vector<char> tensor_;   // by element: of a tensor
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_TESTING_MOMENT_ARRAY_H_
