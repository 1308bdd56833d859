// Strong identifiers: a StrongId<Tag> is a 64-bit index that converts to nothing else.
// Explicit constructor, total order, hash (std and absl), ToString/operator<<, no default value.
#ifndef GANTRY_BASE_IDS_H_
#define GANTRY_BASE_IDS_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

namespace gantry {

template <typename Tag>
class StrongId {
 public:
  constexpr explicit StrongId(int64_t value) : value_(value) {}
  constexpr int64_t value() const { return value_; }
  constexpr auto operator<=>(const StrongId&) const = default;
  std::string ToString() const { return std::string(Tag::kPrefix) + std::to_string(value_); }

  friend std::ostream& operator<<(std::ostream& out, StrongId id) {
    return out << Tag::kPrefix << id.value_;
  }
  template <typename H>
  friend H AbslHashValue(H state, StrongId id) {
    return H::combine(std::move(state), id.value_);
  }

 private:
  int64_t value_;
};

#define GANTRY_DEFINE_ID(Name, prefix)             \
  struct Name##Tag {                               \
    static constexpr const char* kPrefix = prefix; \
  };                                               \
  using Name = StrongId<Name##Tag>

GANTRY_DEFINE_ID(ChunkId, "chunk#");    // index of a chunk in a layout
GANTRY_DEFINE_ID(TensorId, "tensor#");  // index of a registered parameter
GANTRY_DEFINE_ID(DeviceId, "device#");
GANTRY_DEFINE_ID(SlotId, "slot#");  // index of a physical slot inside its pool
GANTRY_DEFINE_ID(Rank, "rank#");
GANTRY_DEFINE_ID(Step, "step#");
GANTRY_DEFINE_ID(StreamId, "stream#");

}  // namespace gantry

template <typename Tag>
struct std::hash<gantry::StrongId<Tag>> {
  size_t operator()(gantry::StrongId<Tag> id) const noexcept {
    return std::hash<int64_t>()(id.value());
  }
};

#endif  // GANTRY_BASE_IDS_H_
