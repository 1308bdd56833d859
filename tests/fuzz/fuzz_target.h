// What every fuzz target defines, for one parser each: fuzz_entry.cc gives it libFuzzer's inputs
// (`./dev fuzz`), smoke_test.cc a few thousand of its own.
#ifndef GANTRY_TESTS_FUZZ_FUZZ_TARGET_H_
#define GANTRY_TESTS_FUZZ_FUZZ_TARGET_H_

#include <string_view>

namespace gantry {

// Gives the text to the parser, and aborts when a property of it does not hold. Whether the parser
// took it.
bool Fuzz(std::string_view text);

}  // namespace gantry

#endif  // GANTRY_TESTS_FUZZ_FUZZ_TARGET_H_
