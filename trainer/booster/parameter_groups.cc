#include "trainer/booster/parameter_groups.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/parameter_store.h"

namespace gantry {
namespace {

constexpr double kFactorMost = 1000.0;
constexpr double kDecayMost = 100.0;

std::string NumberText(double number) {
  std::array<char, 64> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  return {buffer.data(), result.ptr};
}

struct Range {
  std::string_view key;
  double most;
};
absl::StatusOr<double> ParseNumber(std::string_view text, Range range) {
  double number = 0.0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec == std::errc() && result.ptr == end && number >= 0.0 && number <= range.most) {
    return number;
  }
  return InvalidArgument(range.key, " must be a number from 0 to ", range.most, ", not '", text,
                         "'");
}

const ParameterGroup* FirstMatch(std::span<const ParameterGroup> groups, std::string_view name) {
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& group) {
    return MatchesPattern(group.match, name);
  });
  return found == groups.end() ? nullptr : &*found;
}

absl::Status TakeSetting(std::string_view key, std::string_view value, ParameterGroup& group) {
  if (key == "match") {
    if (value.empty()) return InvalidArgument("match is empty");
    group.match = value;
  } else if (key == "learning_rate_factor") {
    GANTRY_ASSIGN_OR_RETURN(group.learning_rate_factor, ParseNumber(value, {key, kFactorMost}));
  } else if (key == "weight_decay") {
    GANTRY_ASSIGN_OR_RETURN(group.weight_decay, ParseNumber(value, {key, kDecayMost}));
  } else {
    return InvalidArgument("unknown key '", key,
                           "': a group has match, learning_rate_factor and weight_decay");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParameterGroup> ParseParameterGroup(std::string_view text) {
  ParameterGroup group;
  std::set<std::string, std::less<>> keys;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    const std::string_view setting = text.substr(begin, end - begin);
    const size_t equals = setting.find('=');
    if (equals == std::string_view::npos) {
      return InvalidArgument("expected key=value, not '", setting, "'");
    }
    const std::string_view key = setting.substr(0, equals);
    if (!keys.emplace(key).second) return InvalidArgument(key, " is set twice");
    GANTRY_RETURN_IF_ERROR(TakeSetting(key, setting.substr(equals + 1), group));
    begin = end + 1;
  }
  if (group.match.empty()) return InvalidArgument("match is missing");
  return group;
}

std::string FormatParameterGroup(const ParameterGroup& group) {
  std::string text = StrCat("match=", group.match);
  if (group.learning_rate_factor != 1.0) {
    text += StrCat(";learning_rate_factor=", NumberText(group.learning_rate_factor));
  }
  if (group.weight_decay.has_value()) {
    text += StrCat(";weight_decay=", NumberText(*group.weight_decay));
  }
  return text;
}

// Tries the last star only: an earlier one that took more could not help.
bool MatchesPattern(std::string_view pattern, std::string_view name) {
  size_t p = 0;
  size_t n = 0;
  std::optional<size_t> star;  // behind the last one
  size_t taken = 0;            // where the name goes on behind what it took
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star.has_value()) {
      p = *star;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// Where nothing else decays there is no decay to take a factor of, so it is 1 and the factors are
// the decays.
GroupedRegistration::GroupedRegistration(std::span<const ParameterGroup> groups,
                                         double weight_decay)
    : groups_(groups.begin(), groups.end()),
      default_factor_(weight_decay > 0.0 ? 1.0 : 0.0),
      weight_decay_(weight_decay > 0.0 ? weight_decay : 1.0) {
  const bool any = std::any_of(groups_.begin(), groups_.end(), [](const ParameterGroup& group) {
    return group.weight_decay.value_or(0.0) > 0.0;
  });
  if (!any && weight_decay == 0.0) weight_decay_ = 0.0;
}

RegistrationOptions GroupedRegistration::For(std::string_view name,
                                             const RegistrationOptions& implied) const {
  RegistrationOptions options = implied;
  options.weight_decay_factor *= default_factor_;
  const ParameterGroup* const group = FirstMatch(groups_, name);
  if (group == nullptr) return options;
  options.learning_rate_factor *= group->learning_rate_factor;
  if (group->weight_decay.has_value()) {
    options.weight_decay_factor = weight_decay_ > 0.0 ? *group->weight_decay / weight_decay_ : 0.0;
  }
  return options;
}

absl::Status CheckGroupsAreUsed(std::span<const ParameterGroup> groups,
                                std::span<const std::string> names) {
  std::set<const ParameterGroup*> used;
  for (const std::string& name : names) used.insert(FirstMatch(groups, name));
  for (const ParameterGroup& group : groups) {
    if (used.contains(&group)) continue;
    return InvalidArgument("optimizer.groups: '", group.match,
                           "' matches no parameter that an earlier group has not; the model's are "
                           "named like '",
                           names.empty() ? "" : names.back(), "'");
  }
  return absl::OkStatus();
}

}  // namespace gantry
