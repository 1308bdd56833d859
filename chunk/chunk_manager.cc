#include "chunk/chunk_manager.h"

#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {

absl::StatusOr<std::unique_ptr<ChunkManager>> ChunkManager::Create(const Options& options) {
  auto manager = std::unique_ptr<ChunkManager>(new ChunkManager(options));
  const ChunkLayout& layout = *options.layout;
  GANTRY_ASSIGN_OR_RETURN(manager->device_slab_,
                          options.device->CreateSlab({.kind = MemoryKind::kDevice,
                                                      .slot_bytes = layout.slot_bytes(),
                                                      .slot_count = options.device_slots}));
  GANTRY_ASSIGN_OR_RETURN(manager->host_slab_,
                          options.device->CreateSlab({.kind = MemoryKind::kHostPinned,
                                                      .slot_bytes = layout.slot_bytes(),
                                                      .slot_count = options.host_slots}));
  manager->device_pool_ = std::make_unique<SlotPool>(manager->device_slab_.get());
  manager->host_pool_ = std::make_unique<SlotPool>(manager->host_slab_.get());

  const int64_t chunks = layout.chunk_count();
  const int64_t chunk_blocks = chunks * kStateKindCount;
  manager->blocks_.resize(static_cast<size_t>(chunk_blocks + options.activation_blocks));
  for (int64_t index = chunk_blocks; index < manager->block_count(); ++index) {
    manager->block(static_cast<BlockIndex>(index)).slots = 1;
  }
  for (int64_t index = 0; index < chunk_blocks; ++index) {
    const BlockId id = manager->IdOf(static_cast<BlockIndex>(index));
    if (!layout.HasBlock(id)) continue;
    BlockRecord& record = manager->block(static_cast<BlockIndex>(index));
    record.slots = static_cast<int8_t>(layout.slots_of(id));
    // Everything but gradients starts as zeros that nobody has written down yet.
    if (id.kind != StateKind::kGradient) record.content = BlockContent::kZero;
  }
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    manager->states_.emplace_back(ChunkId(chunk));
  }
  GANTRY_RETURN_IF_ERROR(manager->ReserveHomes(options.device));
  if (options.activation_blocks > 0) {
    GANTRY_ASSIGN_OR_RETURN(manager->activation_home_.space,
                            options.device->ReserveAddressSpace(manager->device_slab_.get(),
                                                                options.activation_blocks));
  }
  return manager;
}

absl::Status ChunkManager::ReserveHomes(Device* device) {
  group_of_chunk_.resize(static_cast<size_t>(chunk_count()));
  int32_t group_number = 0;
  for (const ChunkGroup& group : layout_.groups()) {
    for (int64_t i = 0; i < group.chunk_count; ++i) {
      group_of_chunk_[static_cast<size_t>(group.first_chunk.value() + i)] = group_number;
    }
    for (const StateKind kind : {StateKind::kParameter, StateKind::kGradient}) {
      HomeSpace home;
      home.first_chunk = group.first_chunk.value();
      const BlockId first{kind, group.first_chunk};
      if (group.chunk_count > 0 && layout_.HasBlock(first)) {
        home.pages_per_block = layout_.slots_of(first);
        GANTRY_ASSIGN_OR_RETURN(
            home.space, device->ReserveAddressSpace(device_slab_.get(),
                                                    home.pages_per_block * group.chunk_count));
      }
      homes_.push_back(std::move(home));
    }
    ++group_number;
  }
  return absl::OkStatus();
}

ChunkManager::~ChunkManager() {
  // Content dies with the manager. The spaces unmap what they can: after a failure maybe not all.
  homes_.clear();
  activation_home_.space.reset();
  // Pools check that every slot came back.
  for (int64_t i = 0; i < block_count(); ++i) {
    const auto index = static_cast<BlockIndex>(i);
    for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
      const BlockCopy& c = copy(index, tier);
      if (c.phase == CopyPhase::kAbsent) continue;
      for (int part = 0; part < block(index).slots; ++part) {
        pool(tier).Release(SlotId(c.slots[static_cast<size_t>(part)]));
      }
    }
  }
}

bool ChunkManager::HasHome(BlockIndex index) const {
  if (IsActivation(index)) return true;
  const StateKind kind = IdOf(index).kind;
  return kind == StateKind::kParameter || kind == StateKind::kGradient;
}

const ChunkManager::HomeSpace& ChunkManager::HomeOf(BlockIndex index) const {
  if (IsActivation(index)) return activation_home_;
  const BlockId id = IdOf(index);
  GANTRY_CHECK(HasHome(index)) << id << " has no home address";
  const auto group = static_cast<size_t>(group_of_chunk_[static_cast<size_t>(id.chunk.value())]);
  return homes_[2 * group + (id.kind == StateKind::kGradient ? 1 : 0)];
}

ChunkManager::HomeSpace& ChunkManager::HomeOf(BlockIndex index) {
  return const_cast<HomeSpace&>(std::as_const(*this).HomeOf(index));
}

int64_t ChunkManager::FirstPage(BlockIndex index) const {
  if (IsActivation(index)) return index - ActivationBlock(0);
  const HomeSpace& home = HomeOf(index);
  return (IdOf(index).chunk.value() - home.first_chunk) * home.pages_per_block;
}

std::byte* ChunkManager::Home(BlockIndex index) const {
  return HomeOf(index).space->base() + FirstPage(index) * layout_.slot_bytes().count();
}

MemoryTag ChunkManager::TagOf(BlockIndex index) const {
  if (IsActivation(index)) return MemoryTag::kActivation;
  switch (IdOf(index).kind) {
    case StateKind::kParameter:
      return MemoryTag::kParameter;
    case StateKind::kGradient:
      return MemoryTag::kGradient;
    default:
      return MemoryTag::kOptimizer;
  }
}

bool ChunkManager::HasOtherCopy(BlockIndex index, Tier tier) const {
  const BlockRecord& record = block(index);
  if (record.file_valid) return true;
  const auto other = tier == Tier::kDevice ? 1u : 0u;
  return record.copies[other].phase == CopyPhase::kValid;
}

bool ChunkManager::HasAnyCopy(BlockIndex index) const {
  const BlockRecord& record = block(index);
  return record.file_valid || record.copies[0].phase == CopyPhase::kValid ||
         record.copies[1].phase == CopyPhase::kValid;
}

bool ChunkManager::TryBeginFill(BlockIndex index, Tier tier) {
  BlockRecord& record = block(index);
  BlockCopy& c = copy(index, tier);
  GANTRY_CHECK_GT(static_cast<int>(record.slots), 0) << NameOf(index);
  GANTRY_CHECK(c.phase == CopyPhase::kAbsent) << Describe(index);
  SlotPool& slots = pool(tier);
  for (int part = 0; part < record.slots; ++part) {
    const auto slot = slots.TryAcquire(TagOf(index));
    if (!slot.has_value()) {
      while (part-- > 0)
        slots.Release(SlotId(std::exchange(c.slots[static_cast<size_t>(part)], -1)));
      return false;
    }
    c.slots[static_cast<size_t>(part)] = slot->value();
  }
  c.phase = CopyPhase::kFilling;
  return true;
}

absl::Status ChunkManager::CompleteFill(BlockIndex index, Tier tier) {
  BlockRecord& record = block(index);
  BlockCopy& c = copy(index, tier);
  GANTRY_CHECK(c.phase == CopyPhase::kFilling) << Describe(index);
  if (tier == Tier::kDevice && HasHome(index)) {
    const int64_t first = FirstPage(index);
    for (int part = 0; part < record.slots; ++part) {
      const absl::Status mapped =
          HomeOf(index).space->Map(first + part, SlotId(c.slots[static_cast<size_t>(part)]));
      if (!mapped.ok()) {
        GANTRY_RETURN_IF_ERROR(UnmapParts(index, part));
        return mapped;
      }
    }
  }
  c.phase = CopyPhase::kValid;
  record.content = BlockContent::kStored;
  return absl::OkStatus();
}

absl::Status ChunkManager::UnmapParts(BlockIndex index, int parts) {
  const int64_t first = FirstPage(index);
  for (int part = 0; part < parts; ++part) {
    GANTRY_RETURN_IF_ERROR(HomeOf(index).space->Unmap(first + part));
  }
  return absl::OkStatus();
}

void ChunkManager::AbandonFill(BlockIndex index, Tier tier) {
  BlockCopy& c = copy(index, tier);
  GANTRY_CHECK(c.phase == CopyPhase::kFilling) << Describe(index);
  for (int part = 0; part < block(index).slots; ++part) {
    pool(tier).Release(SlotId(c.slots[static_cast<size_t>(part)]));
  }
  c = BlockCopy{};
}

absl::Status ChunkManager::DropUnchecked(BlockIndex index, Tier tier) {
  BlockCopy& c = copy(index, tier);
  if (tier == Tier::kDevice && HasHome(index)) {
    // A drop that failed half-way may be tried again.
    for (; c.unmapped < block(index).slots; ++c.unmapped) {
      GANTRY_RETURN_IF_ERROR(HomeOf(index).space->Unmap(FirstPage(index) + c.unmapped));
    }
  }
  for (int part = 0; part < block(index).slots; ++part) {
    pool(tier).Release(SlotId(c.slots[static_cast<size_t>(part)]));
  }
  c = BlockCopy{};
  return absl::OkStatus();
}

absl::Status ChunkManager::Drop(BlockIndex index, Tier tier) {
  GANTRY_CHECK(copy(index, tier).idle()) << Describe(index);
  GANTRY_CHECK(HasOtherCopy(index, tier)) << "the last copy would be lost: " << Describe(index);
  return DropUnchecked(index, tier);
}

absl::Status ChunkManager::KeepOnly(BlockIndex index, Tier tier) {
  GANTRY_CHECK(copy(index, tier).phase == CopyPhase::kValid) << Describe(index);
  const Tier other = tier == Tier::kDevice ? Tier::kHost : Tier::kDevice;
  const BlockCopy& stale = copy(index, other);
  GANTRY_CHECK(stale.phase != CopyPhase::kFilling) << Describe(index);
  block(index).file_valid = false;
  block(index).content = BlockContent::kStored;
  if (stale.phase == CopyPhase::kAbsent) return absl::OkStatus();
  GANTRY_CHECK(stale.idle()) << Describe(index);
  return DropUnchecked(index, other);
}

absl::Status ChunkManager::Forget(BlockIndex index) {
  BlockRecord& record = block(index);
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    const BlockCopy& c = copy(index, tier);
    if (c.phase == CopyPhase::kAbsent) continue;
    GANTRY_CHECK(c.idle()) << Describe(index);
    GANTRY_RETURN_IF_ERROR(DropUnchecked(index, tier));
  }
  record.file_valid = false;
  record.content = BlockContent::kUndefined;
  return absl::OkStatus();
}

bool ChunkManager::CanSetAside(BlockIndex index) const {
  return block(index).file_valid && block(index).aside[0] < 0;
}

void ChunkManager::SetAside(BlockIndex index) {
  GANTRY_CHECK(CanSetAside(index)) << Describe(index);
  BlockRecord& record = block(index);
  record.aside = std::exchange(record.extents, {-1, -1});
  record.file_valid = false;
}

std::array<int64_t, 2> ChunkManager::ForgetAside(BlockIndex index) {
  GANTRY_CHECK(block(index).aside[0] >= 0) << Describe(index);
  return std::exchange(block(index).aside, {-1, -1});
}

absl::StatusOr<std::array<int64_t, 2>> ChunkManager::TakeBack(BlockIndex index) {
  BlockRecord& record = block(index);
  GANTRY_CHECK(record.aside[0] >= 0) << Describe(index);
  GANTRY_RETURN_IF_ERROR(Forget(index));
  record.content = BlockContent::kStored;
  record.file_valid = true;
  return std::exchange(record.extents, std::exchange(record.aside, {-1, -1}));
}

std::span<std::byte> ChunkManager::storage_memory() const {
  const Slab& slab = unified_ ? *device_slab_ : *host_slab_;
  if (slab.slot_count() == 0) return {};
  return {slab.parking(SlotId(0)),
          static_cast<size_t>(slab.slot_count() * slab.slot_bytes().count())};
}

std::byte* ChunkManager::Part(BlockIndex index, Tier tier, int part) const {
  const BlockCopy& c = copy(index, tier);
  GANTRY_CHECK(c.phase != CopyPhase::kAbsent) << Describe(index);
  if (tier == Tier::kDevice && c.phase == CopyPhase::kValid && HasHome(index)) {
    return Home(index) + part * layout_.slot_bytes().count();
  }
  const Slab& slab = tier == Tier::kDevice ? *device_slab_ : *host_slab_;
  return slab.parking(SlotId(c.slots[static_cast<size_t>(part)]));
}

std::string ChunkManager::NameOf(BlockIndex index) const {
  if (!IsActivation(index)) return StrCat(IdOf(index));
  return StrCat("activation block ", index - ActivationBlock(0));
}

std::string ChunkManager::Describe(BlockIndex index) const {
  const BlockRecord& record = block(index);
  std::string text = StrCat(NameOf(index), " (", static_cast<int>(record.slots), " slots)");
  static constexpr const char* kPhases[] = {"absent", "filling", "valid"};
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    const BlockCopy& c = copy(index, tier);
    text += StrCat("; ", tier, " ", kPhases[static_cast<int>(c.phase)], " pins ", c.pins,
                   " readers ", c.readers, " writers ", c.writers, c.evicting ? " evicting" : "");
  }
  return text + (record.file_valid ? "; file valid" : "; file stale");
}

}  // namespace gantry
