// Checksums of pieces of 1 MiB with each set of instructions that this processor has: of one piece,
// which stays in a cache, and of many, which come from memory. The bound is a sum of the same
// bytes.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "benches/suite/huge_memory.h"

namespace gantry {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

uint64_t Sum(const void* bytes, size_t size) {
  const auto* words = static_cast<const uint64_t*>(bytes);
  uint64_t sum = 0;
  for (size_t i = 0; i < size / sizeof(uint64_t); ++i) sum += words[i];
  return sum;
}

void BM_Pieces(benchmark::State& state, HashKernel kernel) {
  auto memory = HugeMemory::Create(Bytes(state.range(0)));
  GANTRY_CHECK_OK(memory.status());
  size_t offset = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(kernel(memory->data() + offset, kPiece));
    offset = (offset + kPiece) % memory->bytes().size();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kPiece));
}

void Register(const std::string& name, HashKernel kernel) {
  benchmark::RegisterBenchmark(("BM_Pieces/" + name).c_str(), BM_Pieces, kernel)
      ->ArgName("memory")
      ->Arg(int64_t{1} << 20)
      ->Arg(int64_t{256} << 20);
}

}  // namespace
}  // namespace gantry

int main(int argc, char** argv) {
  for (const gantry::HashVariant& variant : gantry::HashVariants()) {
    gantry::Register(std::string(variant.name), variant.kernel);
  }
  gantry::Register("sum", gantry::Sum);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
