#include "parallel/comm/device_mesh.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/testing/run_ranks.h"

namespace gantry {
namespace {

DeviceMesh Mesh(std::vector<MeshAxis> axes) {
  absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Create(std::move(axes));
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return *std::move(mesh);
}

TEST(DeviceMeshTest, TheLastAxisVariesFastest) {
  const DeviceMesh mesh = Mesh({{"pipeline", 2}, {"data", 3}, {"tensor", 4}});
  EXPECT_EQ(mesh.size(), 24);
  EXPECT_EQ(mesh.Describe(17), "rank 17: pipeline 1, data 1, tensor 1");
  EXPECT_EQ(mesh.Group(17, 2), (std::vector<int>{16, 17, 18, 19}));
  EXPECT_EQ(mesh.Group(17, 1), (std::vector<int>{13, 17, 21}));
  EXPECT_EQ(mesh.Group(17, 0), (std::vector<int>{5, 17}));
}

TEST(DeviceMeshTest, GroupsOfAnAxisPartitionTheRanks) {
  const DeviceMesh mesh = Mesh({{"a", 3}, {"b", 1}, {"c", 2}, {"d", 5}});
  for (int axis = 0; axis < 4; ++axis) {
    std::set<std::vector<int>> groups;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const std::vector<int> group = mesh.Group(rank, axis);
      groups.insert(group);
      EXPECT_EQ(group[static_cast<size_t>(mesh.Coordinate(rank, axis))], rank);
    }
    std::set<int> seen;
    for (const std::vector<int>& group : groups) {
      for (const int rank : group) EXPECT_TRUE(seen.insert(rank).second) << rank;
    }
    EXPECT_EQ(seen.size(), 30u);
  }
}

TEST(DeviceMeshTest, RefusesWhatIsNoMesh) {
  EXPECT_EQ(DeviceMesh::Create({}).status().message(), "a device mesh needs at least one axis");
  EXPECT_EQ(DeviceMesh::Create({{"", 2}}).status().message(),
            "axis 0 of the device mesh has no name");
  EXPECT_EQ(DeviceMesh::Create({{"data", 2}, {"data", 3}}).status().message(),
            "the device mesh has two axes named 'data'");
  EXPECT_EQ(DeviceMesh::Create({{"data", 0}}).status().message(),
            "axis 'data' of the device mesh has size 0; allowed are 1 to 1048576");
  EXPECT_EQ(DeviceMesh::Create({{"a", 1 << 20}, {"b", 2}}).status().message(),
            "the device mesh has more than 1048576 ranks");
  EXPECT_EQ(Mesh({{"data", 2}, {"tensor", 1}}).AxisIndex("expert").status().message(),
            "the device mesh has no axis 'expert'; it has data, tensor");
}

TEST(DeviceMeshTest, SplitsAWorldAlongAnAxis) {
  const DeviceMesh mesh = Mesh({{"data", 3}, {"tensor", 2}});
  const auto results = RunRanks(6, [&](Communicator& world) -> absl::Status {
    for (int axis = 0; axis < 2; ++axis) {
      const std::string& name = mesh.axes()[static_cast<size_t>(axis)].name;
      GANTRY_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> line,
                              mesh.SplitAlong(world, name));
      EXPECT_EQ(line->name(), name);
      EXPECT_EQ(line->rank(), mesh.Coordinate(world.rank(), axis));
      const auto mine = static_cast<float>(world.rank());
      std::vector<float> all(static_cast<size_t>(line->size()));
      GANTRY_RETURN_IF_ERROR(line->AllGather({.input = reinterpret_cast<const std::byte*>(&mine),
                                              .output = reinterpret_cast<std::byte*>(all.data()),
                                              .count = 1}));
      const std::vector<int> group = mesh.Group(world.rank(), axis);
      EXPECT_EQ(std::vector<int>(all.begin(), all.end()), group);
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : results) EXPECT_TRUE(status.ok()) << status;
}

TEST(DeviceMeshTest, AWorldOfAnotherSizeIsRefused) {
  const DeviceMesh mesh = Mesh({{"data", 3}});
  const auto results =
      RunRanks(2, [&](Communicator& world) { return mesh.SplitAlong(world, "data").status(); });
  for (const absl::Status& status : results) {
    EXPECT_EQ(status.message(), "the device mesh has 3 ranks, and 'world' has 2");
  }
}

}  // namespace
}  // namespace gantry
