// The pass that bounds an optimizer touches every element of every array, as it says.
#include "benches/suite/read_modify_write.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/parallel_for.h"

namespace gantry {
namespace {

constexpr int64_t kCount = 70'000 / 16 * 16;  // more than two tasks

TEST(ReadModifyWrite, TouchesEveryElement) {
  auto team = ThreadTeam::Create({.threads = 2});
  ASSERT_TRUE(team.ok());
  struct Shape {
    int floats;
    int halves;
    bool parameter;
    int64_t bytes;
  };
  for (const Shape& shape : {Shape{3, 0, true, 28}, Shape{2, 0, true, 20}, Shape{1, 0, true, 12},
                             Shape{1, 1, true, 16}, Shape{2, 2, false, 26}}) {
    std::vector<std::vector<float>> floats(static_cast<size_t>(shape.floats),
                                           std::vector<float>(kCount, 2.0f));
    std::vector<std::vector<uint16_t>> halves(static_cast<size_t>(shape.halves),
                                              std::vector<uint16_t>(kCount, 5));
    const std::vector<uint16_t> gradient(kCount, 7);
    std::vector<uint16_t> parameter(kCount, 0);
    UpdateArrays arrays = {.count = kCount, .gradient = gradient.data()};
    for (size_t a = 0; a < floats.size(); ++a) arrays.floats[a] = floats[a].data();
    for (size_t a = 0; a < halves.size(); ++a) arrays.halves[a] = halves[a].data();
    if (shape.parameter) arrays.parameter = parameter.data();
    EXPECT_EQ(arrays.bytes_per_element(), shape.bytes);
    ReadModifyWrite(arrays, team->get());
    for (const auto& array : floats) EXPECT_EQ(array, std::vector<float>(kCount, 3.0f));
    for (const auto& array : halves) EXPECT_EQ(array, std::vector<uint16_t>(kCount, 12));
    EXPECT_EQ(parameter, std::vector<uint16_t>(kCount, shape.parameter ? 7 : 0));
  }
}

TEST(ReadModifyWrite, NothingIsNothing) {
  auto team = ThreadTeam::Create({.threads = 1});
  ASSERT_TRUE(team.ok());
  const uint16_t gradient = 1;
  uint16_t parameter = 0;
  float master = 0.0f;
  ReadModifyWrite({.count = 0, .floats = {&master}, .gradient = &gradient, .parameter = &parameter},
                  team->get());
  EXPECT_EQ(parameter, 0);
}

}  // namespace
}  // namespace gantry
