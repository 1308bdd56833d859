// Every setting of a run as one table: key, where it goes, what it may be, and one line of help.
// Parsing, error messages, help and the dump all follow from it.
//
// A table is bound to one RunConfig and is valid while that lives. Thread-compatible.
#ifndef GANTRY_TRAINER_CLI_CONFIG_FIELDS_H_
#define GANTRY_TRAINER_CLI_CONFIG_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "trainer/booster/parameter_groups.h"
#include "trainer/booster/run_config.h"

namespace gantry {

struct IntegerField {
  int64_t* value;
  int64_t least;
  int64_t most;
};
struct SeedField {
  uint64_t* value;
};
struct RealField {
  double* value;
  double least;
  double most;
};
struct DefaultedRealField {  // where none is set, what other settings imply
  std::optional<double>* value;
  std::function<double()> implied;
  double least;
  double most;
};
struct SizeField {  // "128MiB"
  Bytes* value;
  Bytes least;
};
struct FlagField {
  bool* value;
};
struct TextField {
  std::string* value;
};
struct NameField {  // one of a few names
  std::string* value;
  std::vector<std::string_view> names;
};
struct ListField {
  std::vector<std::string>* value;
};
struct RealListField {
  std::vector<double>* value;
  double least;
  double most;
};
struct GroupListField {  // as ParseParameterGroup
  std::vector<ParameterGroup>* value;
};
struct ChoiceField {  // an enum, whose values are 0, 1, ... in the order of the names
  std::vector<std::string_view> names;
  std::function<size_t()> get;
  std::function<void(size_t)> set;
};
using FieldTarget =
    std::variant<IntegerField, SeedField, RealField, DefaultedRealField, SizeField, FlagField,
                 TextField, NameField, ListField, RealListField, GroupListField, ChoiceField>;

// What a setting can change.
enum class FieldEffect {
  kNumbers,  // what the run computes: saved with checkpoints and compared on resuming
  kMachine,  // where and how it runs, and what it reports
};

struct ConfigField {
  std::string_view key;  // "section.name"
  FieldEffect effect;
  FieldTarget target;
  std::string_view help;
};

std::vector<ConfigField> FieldsOf(RunConfig& config);

// "a whole number from 1 to 1024", for help and errors.
std::string DescribeType(const ConfigField& field);
// Whether it takes any number of values.
bool IsList(const ConfigField& field);
// The values as text: one of a scalar, any number of a list.
std::vector<std::string> ValuesOf(const ConfigField& field);
// Errors: kInvalidArgument as "expected a whole number from 1 to 1024, not 'many'".
absl::Status SetField(const ConfigField& field, std::span<const std::string> values);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_CONFIG_FIELDS_H_
