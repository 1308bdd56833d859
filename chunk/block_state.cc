#include "chunk/block_state.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/check.h"

namespace gantry {

std::string_view Name(ChunkState state) {
  constexpr std::array<std::string_view, kChunkStateCount> kNames = {
      "free", "hold", "compute", "hold after backward", "ready for reduce"};
  const auto index = static_cast<size_t>(state);
  GANTRY_CHECK_LT(index, kNames.size());
  return kNames[index];
}

void ChunkStateMachine::Transition(ChunkState to, int64_t moment) {
  GANTRY_CHECK(IsLegalTransition(state_, to))
      << chunk_ << " may not go from '" << state_ << "' to '" << to << "' at moment " << moment
      << "; last transitions:\n"
      << History();
  history_[static_cast<size_t>(transition_count_ % kHistorySize)] = {
      .moment = moment, .from = state_, .to = to};
  ++transition_count_;
  state_ = to;
}

std::string ChunkStateMachine::History() const {
  std::ostringstream out;
  if (transition_count_ == 0) out << "  none\n";
  for (int64_t i = std::max<int64_t>(0, transition_count_ - kHistorySize); i < transition_count_;
       ++i) {
    const Entry& entry = history_[static_cast<size_t>(i % kHistorySize)];
    out << "  moment " << entry.moment << ": " << entry.from << " -> " << entry.to << "\n";
  }
  return std::move(out).str();
}

}  // namespace gantry
