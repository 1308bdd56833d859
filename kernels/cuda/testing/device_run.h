// What the tests of CUDA kernels share: matrices in "device" memory at chosen alignments, between
// guards, and runs of a kernel on the emulator in several orders of turns with the race detector.
#ifndef GANTRY_KERNELS_CUDA_TESTING_DEVICE_RUN_H_
#define GANTRY_KERNELS_CUDA_TESTING_DEVICE_RUN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "device/cuda/stream.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry::testing {

// A matrix whose rows lie `gap` elements apart, the first `offset` elements behind a boundary of
// 64 bytes. Guards and gaps hold a pattern.
class DeviceMatrix {
 public:
  struct Options {
    DType dtype;
    int64_t rows;
    int64_t cols;
    int64_t gap = 0;
    int64_t offset = 0;
  };
  // Every byte is `fill`.
  DeviceMatrix(const Options& options, std::byte fill);
  // Elements are `values`, rounded to the type.
  DeviceMatrix(const Options& options, const reference::Matrix& values);

  MatrixView view();
  VectorView vector() { return view().RowView(0); }
  // The first row. REQUIRES: T matches the type.
  template <typename T>
  std::span<T> span() {
    return {view().Row<T>(0), static_cast<size_t>(options_.cols)};
  }
  // As stored.
  reference::Matrix values() const;
  // Fails the test where a gap or a guard has changed.
  void ExpectIntact() const;
  // Appends the elements' bytes.
  void AppendTo(std::vector<std::byte>& bytes) const;

 private:
  const std::byte* At(int64_t row, int64_t col) const;
  std::byte* At(int64_t row, int64_t col);

  Options options_;
  int64_t begin_ = 0;
  std::vector<std::byte> storage_;
};

// 64-byte aligned memory full of `fill`.
class DeviceBytes {
 public:
  DeviceBytes(int64_t bytes, std::byte fill);
  std::span<std::byte> span();

 private:
  int64_t bytes_;
  std::vector<std::byte> storage_;
};

struct DeviceRun {
  CudaStream stream;
  std::byte poison;  // what outputs and workspaces hold before
};
// Runs `kernel`, which computes everything anew and returns the bytes of its results, in ascending,
// descending and two drawn orders of turns, finding races, on memory with several poisons. Fails
// the test where a launch fails or results differ. Returns the first's.
using DeviceKernel = std::function<std::vector<std::byte>(const DeviceRun& run)>;
std::vector<std::byte> ExpectSameOnEveryRun(const DeviceKernel& kernel);
// In two of the orders, one of them finding races: for kernels that take long.
std::vector<std::byte> ExpectSameOnTwoRuns(const DeviceKernel& kernel);

// f32, bf16 and f16.
std::span<const DType> DeviceTypes();
// Half a unit in the last place of a stored 1, times `factor`, plus 1e-6 for float arithmetic.
double RoundingError(DType dtype, double factor);

}  // namespace gantry::testing

#endif  // GANTRY_KERNELS_CUDA_TESTING_DEVICE_RUN_H_
