// Groups of parameters with a learning rate or weight decay of their own, chosen by name.
//
// A group as text, as configs and checkpoints hold it: "match=PATTERN" and then, each after a
// semicolon, "learning_rate_factor=NUMBER" or "weight_decay=NUMBER". In a pattern `*` stands for
// any characters, none included; everything else for itself.
//
// Stateless functions and plain data.
#ifndef GANTRY_TRAINER_BOOSTER_PARAMETER_GROUPS_H_
#define GANTRY_TRAINER_BOOSTER_PARAMETER_GROUPS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemini/parameter_store.h"

namespace gantry {

struct ParameterGroup {
  std::string match;
  double learning_rate_factor = 1.0;
  std::optional<double> weight_decay = std::nullopt;  // none: as without the group

  bool operator==(const ParameterGroup&) const = default;
};

// Errors: kInvalidArgument saying what is wrong: no or an empty pattern, another key, a key twice,
// a number outside [0, 1000] (factor) or [0, 100] (decay).
absl::StatusOr<ParameterGroup> ParseParameterGroup(std::string_view text);
// What ParseParameterGroup reads back as the same group.
std::string FormatParameterGroup(const ParameterGroup& group);

bool MatchesPattern(std::string_view pattern, std::string_view name);

// How a store is told of groups: by factors of one weight decay.
class GroupedRegistration {
 public:
  // `weight_decay` is what parameters have outside the groups. The first group that matches counts.
  GroupedRegistration(std::span<const ParameterGroup> groups, double weight_decay);

  // `implied` is what the parameter has without groups; its weight decay factor is 0 or 1.
  RegistrationOptions For(std::string_view name, const RegistrationOptions& implied) const;
  // What OptimizerStep::weight_decay has to be.
  double weight_decay() const { return weight_decay_; }

 private:
  std::vector<ParameterGroup> groups_;
  double default_factor_;  // of parameters outside the groups
  double weight_decay_;
};

// Errors: kInvalidArgument naming a group that is the first match of none of the names.
absl::Status CheckGroupsAreUsed(std::span<const ParameterGroup> groups,
                                std::span<const std::string> names);

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_PARAMETER_GROUPS_H_
