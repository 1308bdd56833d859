// A folder with a small text and a small config, for tests that run the program there.
#ifndef GANTRY_TRAINER_CLI_TESTING_PROGRAM_FOLDER_H_
#define GANTRY_TRAINER_CLI_TESTING_PROGRAM_FOLDER_H_

#include <string>
#include <string_view>
#include <vector>

#include "trainer/cli/testing/program.h"

namespace gantry {

class ProgramFolder {
 public:
  // Makes the folder anew under the test's temporary folder: text.txt, tiny.yaml. Aborts on errors.
  explicit ProgramFolder(const std::string& name);

  const std::string& path() const { return path_; }
  void Write(const std::string& name, std::string_view content) const;
  std::string Read(const std::string& name) const;
  // "train tiny.yaml" and more.
  ProgramOptions Train(std::vector<std::string> more) const;
  ProgramResult Run(std::vector<std::string> arguments) const;

 private:
  std::string path_;
};

// The value of a top-level key in the JSON object that `text` is, as JSON. Aborts when it is none.
std::string JsonValue(const std::string& text, const std::string& key);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_TESTING_PROGRAM_FOLDER_H_
