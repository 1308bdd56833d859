// A fuzz target on a few thousand inputs made of its seeds by changes drawn from a fixed seed: it
// compiles with every compiler, takes its seeds, and survives what is near to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "tests/fuzz/fuzz_target.h"

namespace gantry {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int kInputs = 3000;
constexpr int64_t kChangesMax = 6;
// What parsers treat in a special way.
constexpr std::string_view kTokens[] = {
    "",     "\"", "\\", "{",   "}",    "[",     "]",    ":",    ",",       "\n",
    " ",    "-1", "0",  "1e9", "null", "false", "\xff", "\xc3", "\\ud800", "1.5",
    "- ",   "? ", "&a", "*a",  "!!x",  "---",   "%",    "#",    "\t",      "9223372036854775808",
    "1e400"};

std::vector<std::string> Seeds() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::getenv("GANTRY_FUZZ_SEEDS"))) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

// Draws numbers one after the other.
class Draws {
 public:
  int64_t Below(size_t bound) { return random_.Below(static_cast<int64_t>(bound), index_++); }

 private:
  const Random random_{{.seed = kSeed, .stream = 0}};
  uint64_t index_ = 0;
};

// One change of a text: a bit, a token in the place of some bytes, or a part of another seed.
void Change(std::string& text, const std::vector<std::string>& seeds, Draws& draws) {
  const auto at = static_cast<size_t>(draws.Below(text.size() + 1));
  const auto length = static_cast<size_t>(draws.Below(std::min<size_t>(text.size() - at, 8) + 1));
  switch (draws.Below(4)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << draws.Below(8)));
      break;
    case 1:
      text.replace(at, length, kTokens[draws.Below(std::size(kTokens))]);
      break;
    case 2: {
      const std::string& seed = seeds[static_cast<size_t>(draws.Below(seeds.size()))];
      const auto begin = static_cast<size_t>(draws.Below(seed.size()));
      text.insert(at, seed.substr(begin, static_cast<size_t>(draws.Below(64))));
      break;
    }
    default:
      text.resize(draws.Below(4) == 0 ? at : text.size());
      break;
  }
}

bool Give(const std::string& text) {
  // Memory of exactly that size, so that AddressSanitizer sees a byte too many.
  const std::vector<char> bytes(text.begin(), text.end());
  return Fuzz({bytes.data(), bytes.size()});
}

TEST(FuzzSmokeTest, SurvivesWhatIsNearItsSeeds) {
  const std::vector<std::string> seeds = Seeds();
  ASSERT_FALSE(seeds.empty());
  Give("");
  for (const std::string& seed : seeds) EXPECT_TRUE(Give(seed)) << seed;
  Draws draws;
  int taken = 0;
  for (int i = 0; i < kInputs; ++i) {
    std::string text = seeds[static_cast<size_t>(draws.Below(seeds.size()))];
    for (int64_t changes = 1 + draws.Below(kChangesMax); changes > 0; --changes) {
      Change(text, seeds, draws);
    }
    if (Give(text)) ++taken;
  }
  RecordProperty("taken", taken);
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, kInputs) << "nothing is refused";
}

}  // namespace
}  // namespace gantry
