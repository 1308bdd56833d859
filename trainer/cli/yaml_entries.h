// A YAML text as a flat list of keys and values, in order, each with its line. The one place that
// touches yaml-cpp, whose exceptions stop here.
//
// Taken is a mapping of sections to mappings of keys to scalars or lists; "section.key" at the top
// works too. An item of a list is a scalar, or a mapping of keys to scalars, which becomes one
// value of the form "key=value;key=value". Refused with the line: anchors and aliases, tags, deeper
// nesting, a key that comes twice, several documents. Events are handled as they come, so no text
// of bounded size can use more than a small multiple of its size.
#ifndef GANTRY_TRAINER_CLI_YAML_ENTRIES_H_
#define GANTRY_TRAINER_CLI_YAML_ENTRIES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"

namespace gantry {

inline constexpr Bytes kYamlBytesMax = 1_MiB;

struct YamlEntry {
  std::string key;                  // "section.key"
  std::vector<std::string> values;  // one of a scalar
  int64_t line;                     // from 1
};

// `name` is what errors call the text. Errors: kInvalidArgument as "name:line: what".
absl::StatusOr<std::vector<YamlEntry>> ReadYamlEntries(std::string_view text,
                                                       std::string_view name);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_YAML_ENTRIES_H_
