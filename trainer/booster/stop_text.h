// Finds the texts that end a generation, wherever tokens happen to divide them.
//
// Text that could be the beginning of one is held back until it is known, so nothing of a stop text
// ever comes out. Thread-compatible.
#ifndef GANTRY_TRAINER_BOOSTER_STOP_TEXT_H_
#define GANTRY_TRAINER_BOOSTER_STOP_TEXT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gantry {

class StopText {
 public:
  // REQUIRES: none is empty.
  explicit StopText(std::vector<std::string> stops);

  // The text that goes out after `piece` came in: all up to the first place where a stop text
  // begins. Once one is found nothing more comes out.
  std::string Push(std::string_view piece);
  // What is still held back, at the end of the text.
  std::string Finish() { return std::exchange(held_, {}); }
  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_STOP_TEXT_H_
