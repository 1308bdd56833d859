// What moving a slot between its parking and a home address costs, per slot size, beside what
// copying it would: the bound that a design without remapping pays for every fetch. Each iteration
// maps, touches, unmaps and copies one slot, so that the figures of a row are from the same minute
// and their ratio means something where the absolute times do not.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/ids.h"
#include "device/device.h"
#include "device/host/host_device.h"

namespace gantry {
namespace {

constexpr int64_t kSlots = 4;
constexpr int64_t kPages = 16;

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::unique_ptr<Slab> MakeSlab(Device& device, MemoryKind kind, Bytes slot_bytes) {
  auto slab = device.CreateSlab({.kind = kind, .slot_bytes = slot_bytes, .slot_count = kSlots});
  GANTRY_CHECK_OK(slab.status());
  return *std::move(slab);
}

// One touch per 4 KiB page: what faults of small pages would make expensive.
void Touch(std::byte* memory, int64_t bytes) {
  for (int64_t offset = 0; offset < bytes; offset += 4096) {
    *static_cast<volatile std::byte*>(memory + offset) = std::byte{1};
  }
}

void BM_MapAndUnmapSlot(benchmark::State& state) {
  const Bytes slot_bytes(state.range(0));
  MonotonicClock clock;
  auto device = CreateHostDevice({.topology = DeviceTopology::kDiscrete, .clock = &clock});
  GANTRY_CHECK_OK(device.status());
  const auto slab = MakeSlab(**device, MemoryKind::kDevice, slot_bytes);
  const auto host = MakeSlab(**device, MemoryKind::kHostPinned, slot_bytes);
  auto space = (*device)->ReserveAddressSpace(slab.get(), kPages);
  GANTRY_CHECK_OK(space.status());
  double map = 0;
  double touch = 0;
  double unmap = 0;
  double copy = 0;
  int64_t round = 0;
  for (auto _ : state) {
    const SlotId slot(round % kSlots);
    const int64_t page = round * 7 % kPages;
    ++round;
    std::byte* const home = (*space)->base() + page * slot_bytes.count();
    const double mapped = Seconds([&] { GANTRY_CHECK_OK((*space)->Map(page, slot)); });
    touch += Seconds([&] { Touch(home, slot_bytes.count()); });
    const double unmapped = Seconds([&] { GANTRY_CHECK_OK((*space)->Unmap(page)); });
    copy += Seconds([&] {
      std::memcpy(slab->parking(slot), host->parking(slot),
                  static_cast<size_t>(slot_bytes.count()));
    });
    map += mapped;
    unmap += unmapped;
    state.SetIterationTime(mapped + unmapped);
  }
  const auto rounds = static_cast<double>(round);
  state.counters["map_us"] = map / rounds * 1e6;
  state.counters["touch_us"] = touch / rounds * 1e6;
  state.counters["unmap_us"] = unmap / rounds * 1e6;
  state.counters["memcpy_us"] = copy / rounds * 1e6;
  state.counters["memcpy_per_map"] = copy / map;
  state.counters["peak_bytes"] = static_cast<double>(2 * kSlots * slot_bytes.count());
}

BENCHMARK(BM_MapAndUnmapSlot)
    ->ArgName("slot_bytes")
    ->Arg(64 << 10)
    ->Arg(2 << 20)
    ->Arg(8 << 20)
    ->Arg(32 << 20)
    ->Arg(128 << 20)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace gantry

BENCHMARK_MAIN();
