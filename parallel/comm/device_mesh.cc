#include "parallel/comm/device_mesh.h"

#include <cstdint>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {

absl::StatusOr<DeviceMesh> DeviceMesh::Create(std::vector<MeshAxis> axes) {
  if (axes.empty()) return InvalidArgument("a device mesh needs at least one axis");
  int64_t size = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name.empty()) return InvalidArgument("axis ", i, " of the device mesh has no name");
    for (size_t j = 0; j < i; ++j) {
      if (axes[j].name != axes[i].name) continue;
      return InvalidArgument("the device mesh has two axes named '", axes[i].name, "'");
    }
    if (axes[i].size < 1 || axes[i].size > kRanksMax) {
      return InvalidArgument("axis '", axes[i].name, "' of the device mesh has size ", axes[i].size,
                             "; allowed are 1 to ", kRanksMax);
    }
    size *= axes[i].size;
    if (size > kRanksMax) {
      return InvalidArgument("the device mesh has more than ", kRanksMax, " ranks");
    }
  }
  return DeviceMesh(std::move(axes));
}

DeviceMesh::DeviceMesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  for (const MeshAxis& axis : axes_) size_ *= axis.size;
}

absl::StatusOr<int> DeviceMesh::AxisIndex(std::string_view axis) const {
  std::string names;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return static_cast<int>(i);
    names += (i == 0 ? "" : ", ") + axes_[i].name;
  }
  return InvalidArgument("the device mesh has no axis '", axis, "'; it has ", names);
}

int DeviceMesh::Stride(int axis) const {
  GANTRY_CHECK(axis >= 0 && static_cast<size_t>(axis) < axes_.size()) << axis;
  int stride = 1;
  for (size_t i = axes_.size() - 1; i > static_cast<size_t>(axis); --i) stride *= axes_[i].size;
  return stride;
}

int DeviceMesh::Coordinate(int rank, int axis) const {
  GANTRY_CHECK(rank >= 0 && rank < size_) << rank;
  return rank / Stride(axis) % axes_[static_cast<size_t>(axis)].size;
}

std::vector<int> DeviceMesh::Group(int rank, int axis) const {
  const int stride = Stride(axis);
  const int first = rank - Coordinate(rank, axis) * stride;
  std::vector<int> ranks;
  for (int i = 0; i < axes_[static_cast<size_t>(axis)].size; ++i) {
    ranks.push_back(first + i * stride);
  }
  return ranks;
}

std::string DeviceMesh::Describe(int rank) const {
  std::string text = StrCat("rank ", rank);
  for (size_t i = 0; i < axes_.size(); ++i) {
    text += StrCat(i == 0 ? ": " : ", ", axes_[i].name, " ", Coordinate(rank, static_cast<int>(i)));
  }
  return text;
}

absl::StatusOr<std::unique_ptr<Communicator>> DeviceMesh::SplitAlong(Communicator& world,
                                                                     std::string_view axis) const {
  if (world.size() != size_) {
    return InvalidArgument("the device mesh has ", size_, " ranks, and '", world.name(), "' has ",
                           world.size());
  }
  GANTRY_ASSIGN_OR_RETURN(const int index, AxisIndex(axis));
  // Every group has a least rank, and no other group has it.
  const int color = Group(world.rank(), index).front();
  return world.Split(color, Coordinate(world.rank(), index), axis);
}

}  // namespace gantry
