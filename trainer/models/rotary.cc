#include "trainer/models/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/rope.h"

namespace gantry {
namespace {

absl::Status CheckPositive(std::string_view name, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return InvalidArgument(name, " must be finite and positive, not ", value);
}

absl::Status CheckNotNegative(std::string_view name, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return InvalidArgument(name, " must be finite and not negative, not ", value);
}

absl::Status CheckLlama3(const RopeScaling& scaling) {
  GANTRY_RETURN_IF_ERROR(
      CheckPositive("rope_scaling.low_frequency_factor", scaling.low_frequency_factor));
  if (scaling.high_frequency_factor > scaling.low_frequency_factor &&
      std::isfinite(scaling.high_frequency_factor)) {
    return absl::OkStatus();
  }
  return InvalidArgument("rope_scaling.high_frequency_factor must be finite and above ",
                         scaling.low_frequency_factor, ", not ", scaling.high_frequency_factor);
}

absl::Status CheckYarn(const RopeScaling& scaling) {
  GANTRY_RETURN_IF_ERROR(CheckPositive("rope_scaling.beta_fast", scaling.beta_fast));
  GANTRY_RETURN_IF_ERROR(CheckPositive("rope_scaling.beta_slow", scaling.beta_slow));
  GANTRY_RETURN_IF_ERROR(CheckNotNegative("rope_scaling.mscale", scaling.mscale));
  GANTRY_RETURN_IF_ERROR(CheckNotNegative("rope_scaling.mscale_all_dim", scaling.mscale_all_dim));
  return CheckNotNegative("rope_scaling.attention_factor", scaling.attention_factor);
}

absl::Status CheckLongRope(const RopeScaling& scaling, int64_t head_dim) {
  for (const std::vector<double>* factors : {&scaling.short_factors, &scaling.long_factors}) {
    const bool is_short = factors == &scaling.short_factors;
    const char* name = is_short ? "rope_scaling.short_factors" : "rope_scaling.long_factors";
    if (static_cast<int64_t>(factors->size()) != head_dim / 2) {
      return InvalidArgument(name, " must be ", head_dim / 2, " numbers, half a head, not ",
                             factors->size());
    }
    for (const double factor : *factors) GANTRY_RETURN_IF_ERROR(CheckPositive(name, factor));
  }
  return CheckNotNegative("rope_scaling.attention_factor", scaling.attention_factor);
}

void ScaleLlama3(const RopeScaling& scaling, std::vector<double>& frequencies) {
  const double low_wavelength = scaling.original_positions / scaling.low_frequency_factor;
  const double high_wavelength = scaling.original_positions / scaling.high_frequency_factor;
  for (double& frequency : frequencies) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength < high_wavelength) continue;
    if (wavelength > low_wavelength) {
      frequency /= scaling.factor;
      continue;
    }
    const double smooth = (scaling.original_positions / wavelength - scaling.low_frequency_factor) /
                          (scaling.high_frequency_factor - scaling.low_frequency_factor);
    frequency *= (1 - smooth) / scaling.factor + smooth;
  }
}

// The dimension whose pair turns `rotations` times over the original positions.
double CorrectionDimension(const Rotary& rotary, double rotations) {
  const double turns = rotary.scaling.original_positions / (rotations * 2 * std::numbers::pi);
  return static_cast<double>(rotary.head_dim) * std::log(turns) / (2 * std::log(rotary.theta));
}

// Fast pairs keep their frequency, slow ones have it over the factor, a linear ramp between.
void ScaleYarn(const Rotary& rotary, std::vector<double>& frequencies) {
  const RopeScaling& scaling = rotary.scaling;
  double low = CorrectionDimension(rotary, scaling.beta_fast);
  double high = CorrectionDimension(rotary, scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotary.head_dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / scaling.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

double DynamicTheta(const Rotary& rotary, int64_t tokens) {
  const RopeScaling& scaling = rotary.scaling;
  const double length = std::max(static_cast<double>(tokens), scaling.original_positions);
  const double dim = static_cast<double>(rotary.head_dim);
  const double stretch =
      scaling.factor * length / scaling.original_positions - (scaling.factor - 1);
  return rotary.theta * std::pow(stretch, dim / (dim - 2));
}

double YarnMagnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

}  // namespace

std::string_view Name(RopeScalingKind kind) {
  switch (kind) {
    case RopeScalingKind::kNone:
      return "default";
    case RopeScalingKind::kLinear:
      return "linear";
    case RopeScalingKind::kDynamic:
      return "dynamic";
    case RopeScalingKind::kLlama3:
      return "llama3";
    case RopeScalingKind::kYarn:
      return "yarn";
    case RopeScalingKind::kLongRope:
      return "longrope";
  }
  return "?";
}

absl::Status ValidateRotary(const Rotary& rotary) {
  const RopeScaling& scaling = rotary.scaling;
  GANTRY_RETURN_IF_ERROR(CheckPositive("rope_theta", rotary.theta));
  if (rotary.head_dim % 2 != 0) {
    return InvalidArgument("head_dim must be even for rotary positions, not ", rotary.head_dim);
  }
  if (scaling.kind == RopeScalingKind::kNone) return absl::OkStatus();
  GANTRY_RETURN_IF_ERROR(CheckPositive("rope_scaling.factor", scaling.factor));
  if (scaling.kind == RopeScalingKind::kLinear) return absl::OkStatus();
  GANTRY_RETURN_IF_ERROR(
      CheckPositive("rope_scaling.original_positions", scaling.original_positions));
  switch (scaling.kind) {
    case RopeScalingKind::kNone:
    case RopeScalingKind::kLinear:
      break;
    case RopeScalingKind::kDynamic:
      if (rotary.head_dim > 2 && scaling.factor >= 1) break;
      return InvalidArgument(
          "dynamic rope_scaling needs a head_dim above 2 and a factor of at "
          "least 1, not ",
          rotary.head_dim, " and ", scaling.factor);
    case RopeScalingKind::kLlama3:
      return CheckLlama3(scaling);
    case RopeScalingKind::kYarn:
      return CheckYarn(scaling);
    case RopeScalingKind::kLongRope:
      return CheckLongRope(scaling, rotary.head_dim);
  }
  return absl::OkStatus();
}

bool DependsOnLength(const RopeScaling& scaling) {
  return scaling.kind == RopeScalingKind::kDynamic || scaling.kind == RopeScalingKind::kLongRope;
}

std::vector<double> RotaryFrequencies(const Rotary& rotary, int64_t tokens) {
  const RopeScaling& scaling = rotary.scaling;
  const bool is_dynamic = scaling.kind == RopeScalingKind::kDynamic;
  std::vector<double> frequencies =
      RopeFrequencies(is_dynamic ? DynamicTheta(rotary, tokens) : rotary.theta, rotary.head_dim);
  switch (scaling.kind) {
    case RopeScalingKind::kNone:
    case RopeScalingKind::kDynamic:
      break;
    case RopeScalingKind::kLinear:
      for (double& frequency : frequencies) frequency /= scaling.factor;
      break;
    case RopeScalingKind::kLlama3:
      ScaleLlama3(scaling, frequencies);
      break;
    case RopeScalingKind::kYarn:
      ScaleYarn(rotary, frequencies);
      break;
    case RopeScalingKind::kLongRope: {
      const bool is_long = static_cast<double>(tokens) > scaling.original_positions;
      const std::vector<double>& factors = is_long ? scaling.long_factors : scaling.short_factors;
      GANTRY_CHECK_EQ(factors.size(), frequencies.size());
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
      break;
    }
  }
  return frequencies;
}

double RotaryMagnitude(const RopeScaling& scaling) {
  if (scaling.kind == RopeScalingKind::kYarn) {
    if (scaling.attention_factor > 0) return scaling.attention_factor;
    if (scaling.mscale > 0 && scaling.mscale_all_dim > 0) {
      return YarnMagnitude(scaling.factor, scaling.mscale) /
             YarnMagnitude(scaling.factor, scaling.mscale_all_dim);
    }
    return YarnMagnitude(scaling.factor, 1.0);
  }
  if (scaling.kind == RopeScalingKind::kLongRope) {
    if (scaling.attention_factor > 0) return scaling.attention_factor;
    if (scaling.factor <= 1) return 1.0;
    return std::sqrt(1 + std::log(scaling.factor) / std::log(scaling.original_positions));
  }
  return 1.0;
}

}  // namespace gantry
