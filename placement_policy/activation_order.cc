#include "placement_policy/activation_order.h"

#include <algorithm>
#include <tuple>

#include "base/clock.h"

namespace gantry {

ActivationOrder OrderActivations(const Trace& trace) {
  ActivationOrder order;
  std::vector<Nanoseconds> begin(trace.moments.size() + 1, 0);
  for (size_t m = 0; m < trace.moments.size(); ++m) {
    begin[m + 1] = begin[m] + trace.moments[m].compute;
  }
  for (size_t a = 0; a < trace.activations.size(); ++a) {
    if (trace.activations[a].slots <= 0) continue;
    order.offload.push_back(static_cast<int32_t>(a));
    order.recompute.push_back(static_cast<int32_t>(a));
  }
  const auto saved = [&](int32_t a) -> const SavedActivation& {
    return trace.activations[static_cast<size_t>(a)];
  };
  std::ranges::stable_sort(order.offload, [&](int32_t a, int32_t b) {
    const auto time = [&](int32_t i) {
      return begin[static_cast<size_t>(saved(i).used)] -
             begin[static_cast<size_t>(saved(i).created)];
    };
    return std::tuple(-time(a), saved(a).created) < std::tuple(-time(b), saved(b).created);
  });
  std::ranges::stable_sort(order.recompute, [&](int32_t a, int32_t b) {
    const auto cost = [&](int32_t i) {
      const int64_t freed = saved(i).slots * std::max(saved(i).used - saved(i).created - 1, 1);
      return static_cast<double>(saved(i).recompute) / static_cast<double>(freed);
    };
    return cost(a) < cost(b);
  });
  return order;
}

std::vector<ActivationPlace> PlaceActivations(const Trace& trace, const ActivationOrder& order,
                                              int64_t offloaded, int64_t recomputed) {
  std::vector<ActivationPlace> places(trace.activations.size(), ActivationPlace::kKeep);
  for (int64_t i = 0; i < offloaded; ++i) {
    places[static_cast<size_t>(order.offload[static_cast<size_t>(i)])] = ActivationPlace::kHost;
  }
  for (const int32_t a : order.recompute) {
    if (recomputed == 0) break;
    ActivationPlace& place = places[static_cast<size_t>(a)];
    if (place != ActivationPlace::kKeep) continue;
    place = ActivationPlace::kRecompute;
    --recomputed;
  }
  return places;
}

}  // namespace gantry
