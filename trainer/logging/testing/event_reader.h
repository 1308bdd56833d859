// Reads event files back, for tests: checks both checksums of every record and decodes the fields
// that trainer/logging writes. Any other field fails, so that nothing is overlooked.
#ifndef GANTRY_TRAINER_LOGGING_TESTING_EVENT_READER_H_
#define GANTRY_TRAINER_LOGGING_TESTING_EVENT_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gantry {

struct ReadEvent {
  double wall_time = 0.0;
  int64_t step = 0;
  std::string file_version;  // empty: none
  bool restart = false;
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

// Errors: kDataLoss saying what is wrong at which byte.
absl::StatusOr<std::vector<ReadEvent>> ReadEvents(std::string_view bytes);

}  // namespace gantry

#endif  // GANTRY_TRAINER_LOGGING_TESTING_EVENT_READER_H_
