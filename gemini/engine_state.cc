// Access to state between steps, whatever the format in which its blocks hold it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "gemini/engine_impl.h"
#include "offload/adafactor.h"
#include "offload/split_master.h"

namespace gantry {
namespace {

std::vector<std::byte> ConvertElements(std::span<const std::byte> bytes, DType from, DType to) {
  const auto count = static_cast<int64_t>(bytes.size()) / SizeOf(from);
  std::vector<std::byte> result(static_cast<size_t>(count * SizeOf(to)));
  for (int64_t i = 0; i < count; ++i) {
    StoreElement(to, result.data(), i, LoadElement(from, bytes.data(), i));
  }
  return result;
}

std::span<const std::byte> BytesOf(const std::vector<uint16_t>& elements) {
  return std::as_bytes(std::span(elements));
}

float FloatAt(std::span<const std::byte> bytes, size_t index) {
  float value = 0.0f;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

// Calls copy(memory, offset in the range, bytes) for each part of `bytes` bytes from an element of
// a block on: a 4-byte block lies in two slots.
template <typename Copy>
void ForEachPart(const ChunkManager& manager, BlockIndex block, int64_t element, size_t bytes,
                 Copy copy) {
  const int64_t slot = manager.layout().slot_bytes().count();
  int64_t at = element * manager.layout().element_bytes(manager.IdOf(block));
  for (size_t done = 0; done < bytes;) {
    const size_t n = std::min(bytes - done, static_cast<size_t>(slot - at % slot));
    const auto part = static_cast<int>(at / slot);
    copy(manager.Part(block, manager.storage_tier(), part) + at % slot, done, n);
    done += n;
    at += static_cast<int64_t>(n);
  }
}

}  // namespace

absl::Status EngineImpl::CheckStateAccess(StateKind kind, TensorId tensor, int64_t first,
                                          int64_t bytes) const {
  if (dry_run()) return FailedPrecondition("state is accessible after Seal");
  if (step_.has_value()) return FailedPrecondition("state is accessible between steps only");
  if (!HasTensor(tensor)) return InvalidArgument("state of unknown ", tensor);
  const TensorSpec& spec = specs_[static_cast<size_t>(tensor.value())];
  if (!layout_->HasState(kind, tensor)) {
    return InvalidArgument("'", spec.name, "' has no ", Name(kind), " between steps");
  }
  const int64_t size = kind == StateKind::kParameter ? SizeOf(spec.dtype) : 4;
  const int64_t elements = layout_->StateElements(kind, tensor);
  if (bytes % size != 0 || first < 0 || first > elements - bytes / size) {
    return InvalidArgument("elements ", first, " to ", first + bytes / size, " of the ", Name(kind),
                           " of '", spec.name, "', which has ", elements);
  }
  return absl::OkStatus();
}

// Calls visit(chunk, element in the chunk, element in the range, elements) for each chunk.
template <typename Visit>
absl::Status EngineImpl::ForEachChunkOf(TensorId tensor, int64_t first, int64_t count,
                                        Visit visit) {
  const int64_t begin = layout_->placement(tensor).offset + first;
  const int64_t chunk_elements = layout_->chunk_elements();
  const ChunkId tensor_first = chunks_of_tensor_[static_cast<size_t>(tensor.value())].first;
  const int64_t group_first = tensor_first.value() - layout_->index_in_group(tensor_first);
  for (int64_t done = 0; done < count;) {
    const int64_t element = (begin + done) % chunk_elements;
    const int64_t n = std::min(count - done, chunk_elements - element);
    const ChunkId chunk(group_first + (begin + done) / chunk_elements);
    GANTRY_RETURN_IF_ERROR(visit(chunk, element, done, n));
    done += n;
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::ReadState(StateKind kind, TensorId tensor, int64_t first,
                                   std::span<std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  GANTRY_RETURN_IF_ERROR(CheckStateAccess(kind, tensor, first, size));
  const DType dtype = specs_[static_cast<size_t>(tensor.value())].dtype;
  if (kind == StateKind::kMaster && dtype == DType::kF32) kind = StateKind::kParameter;
  const int64_t element_bytes = kind == StateKind::kParameter ? SizeOf(dtype) : 4;
  MutexLock lock(mutex_);
  GANTRY_RETURN_IF_ERROR(failure_);
  if (kind == StateKind::kVariance && updates_->factors().active()) {
    GANTRY_ASSIGN_OR_RETURN(const std::span<float> factors, Factors(tensor));
    std::memcpy(bytes.data(), factors.data() + first, bytes.size());
    return absl::OkStatus();
  }
  const auto visit = [&](ChunkId chunk, int64_t element, int64_t done, int64_t n)
                         GANTRY_NO_THREAD_SAFETY_ANALYSIS {
                           return ReadSlice(kind, chunk, element,
                                            bytes.subspan(static_cast<size_t>(done * element_bytes),
                                                          static_cast<size_t>(n * element_bytes)));
                         };
  return ForEachChunkOf(tensor, first, size / element_bytes, visit);
}

absl::Status EngineImpl::WriteState(StateKind kind, TensorId tensor, int64_t first,
                                    std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  GANTRY_RETURN_IF_ERROR(CheckStateAccess(kind, tensor, first, size));
  const DType dtype = specs_[static_cast<size_t>(tensor.value())].dtype;
  if (kind == StateKind::kMaster && dtype == DType::kF32) kind = StateKind::kParameter;
  const int64_t element_bytes = kind == StateKind::kParameter ? SizeOf(dtype) : 4;
  MutexLock lock(mutex_);
  GANTRY_RETURN_IF_ERROR(failure_);
  if (kind == StateKind::kVariance && updates_->factors().active()) {
    GANTRY_ASSIGN_OR_RETURN(const std::span<float> factors, Factors(tensor));
    std::memcpy(factors.data() + first, bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  const auto visit = [&](ChunkId chunk, int64_t element, int64_t done,
                         int64_t n) GANTRY_NO_THREAD_SAFETY_ANALYSIS {
    return WriteSlice(kind, chunk, element,
                      bytes.subspan(static_cast<size_t>(done * element_bytes),
                                    static_cast<size_t>(n * element_bytes)));
  };
  return ForEachChunkOf(tensor, first, size / element_bytes, visit);
}

absl::Status EngineImpl::ReadSlice(StateKind kind, ChunkId chunk, int64_t element,
                                   std::span<std::byte> bytes) {
  const bool is_moment = kind == StateKind::kMomentum || kind == StateKind::kVariance;
  if (is_moment && layout_->HasEightBitMoments(chunk)) {
    return ReadEightBit({kind, chunk}, element, bytes);
  }
  if (!layout_->SplitsMaster(chunk)) return ReadBlock(kind, chunk, element, bytes);
  if (kind == StateKind::kMaster) return ReadSplitMaster(chunk, element, bytes);
  GANTRY_RETURN_IF_ERROR(ReadBlock(kind, chunk, element, bytes));
  if (kind != StateKind::kVariance) return absl::OkStatus();
  for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
    StoreElement(DType::kF32, bytes.data(), static_cast<int64_t>(i), VarianceOf(FloatAt(bytes, i)));
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::ReadSplitMaster(ChunkId chunk, int64_t element,
                                         std::span<std::byte> bytes) {
  const size_t count = bytes.size() / sizeof(float);
  std::vector<uint16_t> parameter(count);
  std::vector<uint16_t> low_half(count);
  const auto into = [](std::vector<uint16_t>& halves) {
    return std::as_writable_bytes(std::span(halves));
  };
  GANTRY_RETURN_IF_ERROR(ReadBlock(StateKind::kParameter, chunk, element, into(parameter)));
  GANTRY_RETURN_IF_ERROR(ReadBlock(StateKind::kMaster, chunk, element, into(low_half)));
  GANTRY_RETURN_IF_ERROR(ReadBlock(StateKind::kVariance, chunk, element, bytes));
  for (size_t i = 0; i < count; ++i) {
    const BFloat16 rounded = std::bit_cast<BFloat16>(parameter[i]);
    StoreElement(DType::kF32, bytes.data(), static_cast<int64_t>(i),
                 JoinMaster(rounded, low_half[i], FloatAt(bytes, i)));
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::ReadBlock(StateKind kind, ChunkId chunk, int64_t element,
                                   std::span<std::byte> bytes) {
  const Need need{Index(kind, chunk), Need::Mode::kRead, chunk};
  GANTRY_RETURN_IF_ERROR(Pin(manager_->storage_tier(), std::span(&need, 1), "read state"));
  ForEachPart(*manager_, need.block, element, bytes.size(),
              [&](const std::byte* memory, size_t offset, size_t n) {
                std::memcpy(bytes.data() + offset, memory, n);
              });
  Unpin(manager_->storage_tier(), std::span(&need, 1));
  return absl::OkStatus();
}

// Writes one kind of state; a 16-bit parameter and its master are written together.
absl::Status EngineImpl::WriteSlice(StateKind kind, ChunkId chunk, int64_t element,
                                    std::span<const std::byte> bytes) {
  const bool of_weight = kind == StateKind::kMaster || kind == StateKind::kParameter;
  if (layout_->SplitsMaster(chunk)) {
    if (of_weight) return WriteSplitMaster(kind, chunk, element, bytes);
    if (kind == StateKind::kVariance) return WriteSplitVariance(chunk, element, bytes);
  }
  if (!of_weight && layout_->HasEightBitMoments(chunk)) {
    return WriteEightBit({kind, chunk}, element, bytes);
  }
  std::vector<BlockBytes> writes{{kind, bytes}};
  std::vector<std::byte> converted;
  if (of_weight && layout_->HasBlock({StateKind::kMaster, chunk})) {
    const StateKind partner =
        kind == StateKind::kMaster ? StateKind::kParameter : StateKind::kMaster;
    converted = ConvertElements(bytes, layout_->dtype_of({kind, chunk}),
                                layout_->dtype_of({partner, chunk}));
    writes.push_back({partner, converted});
  }
  return WriteBlocks(chunk, element, writes);
}

absl::Status EngineImpl::WriteSplitMaster(StateKind kind, ChunkId chunk, int64_t element,
                                          std::span<const std::byte> bytes) {
  const DType dtype = kind == StateKind::kMaster ? DType::kF32 : DType::kBF16;
  const size_t count = bytes.size() / static_cast<size_t>(SizeOf(dtype));
  std::vector<uint16_t> parameter(count);
  std::vector<uint16_t> low_half(count);
  std::vector<float> tie(count);  // its sign
  for (size_t i = 0; i < count; ++i) {
    SplitState split{};
    if (kind == StateKind::kMaster) {
      split = SplitMaster(FloatAt(bytes, i), 0.0f);
    } else {
      std::memcpy(&split.parameter, bytes.data() + i * sizeof split.parameter,
                  sizeof split.parameter);
    }
    parameter[i] = split.parameter.bits;
    low_half[i] = split.low_half;
    tie[i] = split.variance;
  }
  const BlockBytes writes[] = {{StateKind::kParameter, BytesOf(parameter)},
                               {StateKind::kMaster, BytesOf(low_half)}};
  GANTRY_RETURN_IF_ERROR(WriteBlocks(chunk, element, writes));
  // Initial values of untouched variances need no bit most often, and then no block either.
  const BlockIndex variance = Index(StateKind::kVariance, chunk);
  if (manager_->block(variance).content == BlockContent::kZero &&
      std::ranges::none_of(tie, [](float t) { return std::signbit(t); })) {
    return absl::OkStatus();
  }
  std::vector<float> stored(count);
  const auto stored_bytes = std::as_writable_bytes(std::span(stored));
  GANTRY_RETURN_IF_ERROR(ReadBlock(StateKind::kVariance, chunk, element, stored_bytes));
  for (size_t i = 0; i < count; ++i) {
    stored[i] = std::copysign(stored[i], tie[i]);
  }
  const BlockBytes write{StateKind::kVariance, stored_bytes};
  return WriteBlocks(chunk, element, std::span(&write, 1));
}

// The variance's sign belongs to the master.
absl::Status EngineImpl::WriteSplitVariance(ChunkId chunk, int64_t element,
                                            std::span<const std::byte> bytes) {
  std::vector<float> stored(bytes.size() / sizeof(float));
  const auto stored_bytes = std::as_writable_bytes(std::span(stored));
  GANTRY_RETURN_IF_ERROR(ReadBlock(StateKind::kVariance, chunk, element, stored_bytes));
  for (size_t i = 0; i < stored.size(); ++i) {
    stored[i] = std::copysign(FloatAt(bytes, i), stored[i]);
  }
  const BlockBytes write{StateKind::kVariance, stored_bytes};
  return WriteBlocks(chunk, element, std::span(&write, 1));
}

absl::Status EngineImpl::WriteBlocks(ChunkId chunk, int64_t element,
                                     std::span<const BlockBytes> writes) {
  const Tier tier = manager_->storage_tier();
  std::vector<Need> needs;
  for (const BlockBytes& write : writes) {
    needs.push_back({Index(write.kind, chunk), Need::Mode::kWrite, chunk});
  }
  GANTRY_RETURN_IF_ERROR(Pin(tier, needs, "write state"));
  for (size_t i = 0; i < needs.size(); ++i) {
    const std::span<const std::byte> bytes = writes[i].bytes;
    ForEachPart(*manager_, needs[i].block, element, bytes.size(),
                [&](std::byte* memory, size_t offset, size_t n) {
                  std::memcpy(memory, bytes.data() + offset, n);
                });
  }
  const int64_t element_bytes = layout_->element_bytes({writes[0].kind, chunk});
  NoteMasters(chunk, element, std::ssize(writes[0].bytes) / element_bytes);
  Unpin(tier, needs);
  return SettleWritten(chunk, std::move(needs));
}

absl::Status EngineImpl::SettleWritten(ChunkId chunk, std::vector<Need> needs) {
  if (manager_->unified() || updates_->update_tier(chunk) != Tier::kDevice) {
    return absl::OkStatus();
  }
  // The device is this chunk's home: the host copy becomes a spare one, which may be dropped.
  for (Need& need : needs) need.mode = Need::Mode::kRead;
  GANTRY_RETURN_IF_ERROR(Pin(Tier::kDevice, needs, "write state"));
  Unpin(Tier::kDevice, needs);
  return absl::OkStatus();
}

// The values of a factored variance, when no update of the tensor is to come.
absl::StatusOr<std::span<float>> EngineImpl::Factors(TensorId tensor) {
  const auto [first, last] = chunks_of_tensor_[static_cast<size_t>(tensor.value())];
  for (int64_t c = first.value(); c <= last.value(); ++c) {
    while (updates_->Pending(ChunkId(c))) {
      GANTRY_RETURN_IF_ERROR(WaitForChange("an optimizer update", "access to factors"));
    }
  }
  return updates_->factors().of(tensor).state();
}

// Tells the factors of masters in a pinned chunk that no update has written.
void EngineImpl::NoteMasters(ChunkId chunk, int64_t element, int64_t count) {
  if (!updates_->factors().active() || !layout_->HasBlock({StateKind::kGradient, chunk})) return;
  const bool own_master = !layout_->HasBlock({StateKind::kMaster, chunk});
  const BlockIndex master = Index(own_master ? StateKind::kParameter : StateKind::kMaster, chunk);
  for (const TensorSlice& slice : layout_->SlicesIn(chunk)) {
    const int64_t begin = std::max(slice.chunk_begin, element);
    const int64_t end = std::min(slice.chunk_begin + slice.elements, element + count);
    if (begin >= end) continue;
    AdafactorFactors& factors = updates_->factors().of(slice.tensor);
    const int64_t shift = slice.chunk_begin - slice.tensor_begin;
    const AdafactorFactors::Range range = factors.PiecesAround(begin - shift, end - begin);
    ForEachPart(*manager_, master, range.begin + shift,
                static_cast<size_t>(range.count) * sizeof(float),
                [&](const std::byte* memory, size_t offset, size_t n) {
                  factors.ObserveMaster(range.begin + static_cast<int64_t>(offset / sizeof(float)),
                                        static_cast<int64_t>(n / sizeof(float)),
                                        reinterpret_cast<const float*>(memory), options_.team);
                });
  }
}

absl::Status EngineImpl::ReadEightBit(BlockId moment, int64_t element, std::span<std::byte> bytes) {
  const Tier tier = manager_->storage_tier();
  const Need need{Index(StateKind::kMomentum, moment.chunk), Need::Mode::kRead, moment.chunk};
  std::vector<float> values(bytes.size() / sizeof(float));
  GANTRY_RETURN_IF_ERROR(Pin(tier, std::span(&need, 1), "read state"));
  updates_->eight_bit().Read(moment, element,
                             reinterpret_cast<const uint8_t*>(manager_->Part(need.block, tier, 0)),
                             values);
  Unpin(tier, std::span(&need, 1));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status EngineImpl::WriteEightBit(BlockId moment, int64_t element,
                                       std::span<const std::byte> bytes) {
  const Tier tier = manager_->storage_tier();
  std::vector<Need> needs{
      {Index(StateKind::kMomentum, moment.chunk), Need::Mode::kWrite, moment.chunk}};
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  GANTRY_RETURN_IF_ERROR(Pin(tier, needs, "write state"));
  updates_->eight_bit().Write(moment, element, values,
                              reinterpret_cast<uint8_t*>(manager_->Part(needs[0].block, tier, 0)));
  Unpin(tier, needs);
  return SettleWritten(moment.chunk, std::move(needs));
}

}  // namespace gantry
