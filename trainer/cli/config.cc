#include "trainer/cli/config.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "chunk/optimizer_states.h"
#include "trainer/booster/learning_rate.h"
#include "trainer/booster/run_config.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/cli/config_fields.h"
#include "trainer/cli/yaml_entries.h"

namespace gantry {
namespace {

std::string_view SectionOf(std::string_view key) { return key.substr(0, key.find('.')); }
std::string_view NameOf(std::string_view key) { return key.substr(key.find('.') + 1); }

const ConfigField* FindKey(const std::vector<ConfigField>& fields, std::string_view key) {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const ConfigField& field) { return field.key == key; });
  return found == fields.end() ? nullptr : &*found;
}

// The known key, or name within its section, that is nearest to `key`; empty when none is near.
std::string NearestKey(const std::vector<ConfigField>& fields, std::string_view key) {
  std::vector<std::string> names;
  names.reserve(2 * fields.size());
  for (const ConfigField& field : fields) names.emplace_back(field.key);
  if (key.find('.') == std::string_view::npos) {
    for (const ConfigField& field : fields) names.emplace_back(NameOf(field.key));
  }
  return NearestName(key, names.data(), names.size());
}

absl::Status UnknownKey(std::string_view key, std::string_view nearest) {
  if (nearest.empty()) {
    return InvalidArgument("unknown key '", key, "'; `gantry help config` lists all");
  }
  return InvalidArgument("unknown key '", key, "', did you mean '", nearest, "'?");
}

// The same for a file, where a name needs its section.
absl::Status UnknownKeyInFile(const std::vector<ConfigField>& fields, std::string_view key) {
  std::string nearest = NearestKey(fields, key);
  for (const ConfigField& field : fields) {
    if (field.key.starts_with(StrCat(key, "."))) {
      return InvalidArgument("'", key, "' is a section, which holds keys like '", field.key, "'");
    }
  }
  for (const ConfigField& field : fields) {
    if (NameOf(field.key) == nearest) {
      nearest = field.key;
      break;
    }
  }
  return UnknownKey(key, nearest);
}

// A key of the command line, with or without its section.
absl::StatusOr<const ConfigField*> FindOverride(const std::vector<ConfigField>& fields,
                                                std::string_view key) {
  if (key == "model") key = "model.path";
  if (const ConfigField* field = FindKey(fields, key)) return field;
  std::vector<const ConfigField*> found;
  for (const ConfigField& field : fields) {
    if (NameOf(field.key) == key) found.push_back(&field);
  }
  if (found.size() == 1) return found[0];
  if (found.empty()) return UnknownKey(key, NearestKey(fields, key));
  std::string candidates(found[0]->key);
  for (size_t i = 1; i < found.size(); ++i) {
    candidates += StrCat(i + 1 == found.size() ? " or " : ", ", found[i]->key);
  }
  return InvalidArgument("'", key, "' may be ", candidates, ": name the section");
}

std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// YAML takes JSON's strings, which can say every character.
std::string Quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string YamlValue(const ConfigField& field) {
  std::vector<std::string> values = ValuesOf(field);
  if (IsList(field)) {
    const bool numbers = std::holds_alternative<RealListField>(field.target);
    std::string list = "[";
    for (size_t i = 0; i < values.size(); ++i) {
      list += StrCat(i == 0 ? "" : ", ", numbers ? values[i] : Quoted(values[i]));
    }
    return list + "]";
  }
  const bool text = std::holds_alternative<TextField>(field.target);
  return text ? Quoted(values[0]) : values[0];
}

// What the text form is read from; the table needs a config that it could change.
std::vector<ConfigField> FieldsOfConst(RunConfig& copy, const RunConfig& config) {
  copy = config;
  return FieldsOf(copy);
}

}  // namespace

absl::Status ApplyYaml(std::string_view text, std::string_view name, RunConfig& config) {
  GANTRY_ASSIGN_OR_RETURN(const std::vector<YamlEntry> entries, ReadYamlEntries(text, name));
  RunConfig changed = config;
  const std::vector<ConfigField> fields = FieldsOf(changed);
  for (const YamlEntry& entry : entries) {
    const ConfigField* const field = FindKey(fields, entry.key);
    if (field == nullptr) {
      return InvalidArgument(name, ":", entry.line, ": ",
                             FromAbsl(UnknownKeyInFile(fields, entry.key).message()));
    }
    const absl::Status status = SetField(*field, entry.values);
    if (!status.ok()) {
      return InvalidArgument(name, ":", entry.line, ": ", entry.key, ": ",
                             FromAbsl(status.message()));
    }
  }
  config = std::move(changed);
  return absl::OkStatus();
}

absl::Status ApplyConfigFile(FileCalls& files, const std::string& path, RunConfig& config) {
  const absl::StatusOr<std::string> text = ReadFileToString(files, path, kYamlBytesMax);
  if (!text.ok()) {
    return InvalidArgument("cannot read config file '", path,
                           "': ", FromAbsl(text.status().message()));
  }
  return ApplyYaml(*text, path, config);
}

absl::Status ApplyOverride(std::string_view key, const std::optional<std::string>& value,
                           RunConfig& config) {
  const std::vector<ConfigField> fields = FieldsOf(config);
  const std::string typed = value.has_value() ? StrCat("--", key, "=", *value) : StrCat("--", key);
  const absl::StatusOr<const ConfigField*> field = FindOverride(fields, key);
  if (!field.ok()) return InvalidArgument(typed, ": ", FromAbsl(field.status().message()));
  std::vector<std::string> values;
  if (IsList(**field)) {
    values = SplitList(value.value_or(""));
  } else if (value.has_value()) {
    values = {*value};
  } else if (std::holds_alternative<FlagField>((*field)->target)) {
    values = {"true"};
  } else {
    return InvalidArgument(typed, ": needs a value, ", DescribeType(**field));
  }
  absl::Status status = SetField(**field, values);
  if (status.ok()) return status;
  return InvalidArgument(typed, ": ", FromAbsl(status.message()));
}

std::string DumpYaml(const RunConfig& config) {
  RunConfig copy;
  std::string text;
  std::string section;
  for (const ConfigField& field : FieldsOfConst(copy, config)) {
    if (SectionOf(field.key) != section) {
      section = SectionOf(field.key);
      text += StrCat(section, ":\n");
    }
    text += StrCat("  ", NameOf(field.key), ": ", YamlValue(field), "\n");
  }
  return text;
}

RunSettings SettingsOf(const RunConfig& config) {
  RunConfig copy;
  RunSettings settings;
  for (const ConfigField& field : FieldsOfConst(copy, config)) {
    if (field.effect != FieldEffect::kNumbers) continue;
    std::string text;
    for (const std::string& value : ValuesOf(field)) {
      text += StrCat(text.empty() ? "" : ", ", value);
    }
    settings[std::string(field.key)] = std::move(text);
  }
  // As it takes effect: a split master is an f32 one.
  const bool eight_bit = config.optimizer.state_format == StateFormat::kEightBit;
  settings["optimizer.state_format"] =
      std::string(Name(eight_bit ? StateFormat::kEightBit : StateFormat::kF32));
  // What takes no effect makes no difference.
  if (config.model.parameter_dtype != DType::kF16) {
    settings.erase("optimizer.initial_loss_scale");
    settings.erase("optimizer.loss_scale_steps");
  }
  if (config.schedule.shape != ScheduleShape::kWarmupStableDecay) {
    settings.erase("schedule.decay_fraction");
    settings.erase("schedule.decay_shape");
  }
  if (config.optimizer.groups.empty()) settings.erase("optimizer.groups");
  // Without a decay, nowhere.
  settings["schedule.total_steps"] = StrCat(
      config.schedule.shape == ScheduleShape::kConstant ? 0 : ScheduleOf(config).total_steps);
  return settings;
}

absl::Status ApplyModelSettings(const RunSettings& settings, RunConfig& config) {
  RunConfig changed = config;
  for (const ConfigField& field : FieldsOf(changed)) {
    if (field.effect != FieldEffect::kNumbers) continue;
    if (SectionOf(field.key) != "model" && field.key != "train.dtype") continue;
    const auto found = settings.find(field.key);
    if (found == settings.end()) {
      return InvalidArgument("the checkpoint does not say its ", field.key);
    }
    const absl::Status status = SetField(field, std::span(&found->second, 1));
    if (!status.ok()) {
      return InvalidArgument("the checkpoint's ", field.key, ": ", FromAbsl(status.message()));
    }
  }
  config = std::move(changed);
  return absl::OkStatus();
}

std::string ConfigHelp() {
  RunConfig defaults;
  std::string text =
      "Settings, with their defaults. In a YAML file they stand under their section; on the "
      "command\n"
      "line they are --section.name=value, or --name=value where only one section has the name.\n";
  std::string section;
  for (const ConfigField& field : FieldsOf(defaults)) {
    if (SectionOf(field.key) != section) {
      section = SectionOf(field.key);
      text += StrCat("\n", section, "\n");
    }
    text += StrCat("  ", NameOf(field.key), " = ", YamlValue(field), "\n      ", field.help, " (",
                   DescribeType(field), ")\n");
  }
  return text;
}

}  // namespace gantry
