#include "base/tier.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

namespace gantry {
namespace {

static_assert(Tier::kDevice < Tier::kHost && Tier::kHost < Tier::kFile, "fastest first");

TEST(TierTest, EveryTierPrintsANameOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i < kTierCount; ++i) {
    std::ostringstream out;
    out << static_cast<Tier>(i);
    names.insert(out.str());
  }
  EXPECT_EQ(names, (std::set<std::string>{"device", "host", "file"}));
}

}  // namespace
}  // namespace gantry
