// The ranks of a run as a grid with named axes, outermost first: {{"pipeline", 2}, {"data", 4},
// {"tensor", 2}}. The last axis varies fastest, so its ranks are neighbours, which launchers put on
// one machine. A line of the grid along an axis is a group that communicates. Immutable.
#ifndef GANTRY_PARALLEL_COMM_DEVICE_MESH_H_
#define GANTRY_PARALLEL_COMM_DEVICE_MESH_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/comm/communicator.h"

namespace gantry {

struct MeshAxis {
  std::string name;
  int size = 1;
};

class DeviceMesh {
 public:
  // Errors: kInvalidArgument for no axes, a name that is empty or there twice, a size below 1, or
  // more than kRanksMax ranks in all.
  static constexpr int kRanksMax = 1 << 20;
  static absl::StatusOr<DeviceMesh> Create(std::vector<MeshAxis> axes);

  int size() const { return size_; }
  const std::vector<MeshAxis>& axes() const { return axes_; }
  // Errors: kInvalidArgument naming the axis and those there are.
  absl::StatusOr<int> AxisIndex(std::string_view axis) const;

  // REQUIRES: 0 <= rank < size(), 0 <= axis < axes().size().
  int Coordinate(int rank, int axis) const;
  // The ranks that differ from `rank` along `axis` only, in the order of the axis; with `rank`.
  std::vector<int> Group(int rank, int axis) const;
  // "rank 5: pipeline 1, data 0, tensor 1".
  std::string Describe(int rank) const;

  // This rank's group along the axis. All ranks of `world` call it with the same axis. Errors:
  // kInvalidArgument unless world has size() ranks; those of AxisIndex and Split.
  absl::StatusOr<std::unique_ptr<Communicator>> SplitAlong(Communicator& world,
                                                           std::string_view axis) const;

 private:
  explicit DeviceMesh(std::vector<MeshAxis> axes);
  int Stride(int axis) const;  // between neighbours

  std::vector<MeshAxis> axes_;
  int size_ = 1;
};

}  // namespace gantry

#endif  // GANTRY_PARALLEL_COMM_DEVICE_MESH_H_
