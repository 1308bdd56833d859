#include "trainer/models/rotary_tables.h"

#include <utility>

namespace gantry {

RotaryTables::RotaryTables(const DecoderConfig& config)
    : rotary_(config.rotary()), positions_(config.max_sequence), rotates_(config.positions == 0) {}

const RopeTable* RotaryTables::For(int64_t tokens) {
  if (!rotates_) return nullptr;
  if (table_.has_value() && !DependsOnLength(rotary_.scaling)) return &*table_;
  std::vector<double> frequencies = RotaryFrequencies(rotary_, tokens);
  if (!table_.has_value() || frequencies != frequencies_) {
    frequencies_ = std::move(frequencies);
    table_.emplace(RopeTable::Options{.positions = positions_,
                                      .frequencies = frequencies_,
                                      .magnitude = RotaryMagnitude(rotary_.scaling)});
  }
  return &*table_;
}

}  // namespace gantry
