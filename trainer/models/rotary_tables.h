// The table of rotations that a model's attention reads: one for all sequences, or, where
// frequencies depend on how long a sequence is (dynamic, longrope), the one for the length asked
// for, kept until another is.
//
// Thread-compatible; owns its tables.
#ifndef GANTRY_TRAINER_MODELS_ROTARY_TABLES_H_
#define GANTRY_TRAINER_MODELS_ROTARY_TABLES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/rope.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/rotary.h"

namespace gantry {

class RotaryTables {
 public:
  // REQUIRES: a valid config.
  explicit RotaryTables(const DecoderConfig& config);

  // Of max_sequence positions, for sequences of `tokens`. Null for a model without rotation. Valid
  // until the next call.
  const RopeTable* For(int64_t tokens);

 private:
  Rotary rotary_;
  int64_t positions_;
  bool rotates_;
  std::vector<double> frequencies_;  // of table_
  std::optional<RopeTable> table_;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_ROTARY_TABLES_H_
