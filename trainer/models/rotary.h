// Rotary positions: the frequency of each pair of dimensions, and how models stretch them to
// sequences longer than those they were first trained on. The formulas and their names are those of
// transformers' modeling_rope_utils.py, computed in double; each kind names where it comes from.
//
// Pure functions and plain data; thread-safe.
#ifndef GANTRY_TRAINER_MODELS_ROTARY_H_
#define GANTRY_TRAINER_MODELS_ROTARY_H_

#include <cstdint>
#include <ostream>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace gantry {

enum class RopeScalingKind : uint8_t {
  kNone,      // "default"
  kLinear,    // kaiokendev: every frequency over `factor`
  kDynamic,   // bloc97, emozilla: a larger theta, growing with the sequence ("NTK-aware")
  kLlama3,    // Llama 3.1: long wavelengths over `factor`, a ramp between
  kYarn,      // Peng et al., arXiv 2309.00071
  kLongRope,  // Ding et al., arXiv 2402.13753: a factor for each frequency
};
// The `rope_type` of config.json: "default", "linear", "dynamic", "llama3", "yarn", "longrope".
std::string_view Name(RopeScalingKind kind);
inline std::ostream& operator<<(std::ostream& out, RopeScalingKind kind) {
  return out << Name(kind);
}

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1.0;
  // Positions the model was first trained on: original_max_position_embeddings of llama3, yarn and
  // longrope, max_position_embeddings of dynamic. Not read by others.
  double original_positions = 0.0;
  // llama3
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  // yarn
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  double mscale = 0.0;  // both or neither above 0
  double mscale_all_dim = 0.0;
  // longrope; [head_dim / 2] each
  std::vector<double> short_factors = {};
  std::vector<double> long_factors = {};
  // What cosines and sines are multiplied by; 0: as the kind implies. Read by yarn and longrope.
  double attention_factor = 0.0;

  bool operator==(const RopeScaling&) const = default;
};

struct Rotary {
  double theta;
  int64_t head_dim;  // even
  RopeScaling scaling;
};

// Errors: kInvalidArgument naming the field, its value and what is allowed. `scaling` is that of
// heads of `head_dim` dimensions.
absl::Status ValidateRotary(const Rotary& rotary);

// Whether frequencies depend on how long the sequence is (dynamic, longrope).
bool DependsOnLength(const RopeScaling& scaling);

// [head_dim / 2], for sequences of `tokens`, which only some kinds read. REQUIRES: valid.
std::vector<double> RotaryFrequencies(const Rotary& rotary, int64_t tokens);
// What cosines and sines are multiplied by. REQUIRES: valid.
double RotaryMagnitude(const RopeScaling& scaling);

}  // namespace gantry

#endif  // GANTRY_TRAINER_MODELS_ROTARY_H_
