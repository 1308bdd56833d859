// What the kernels' tests share: matrices of a stored type with canaries between their rows,
// comparison with a reference, and running a kernel on every instruction set and several team
// sizes to see that the bits agree.
#ifndef GANTRY_KERNELS_TESTING_KERNEL_TEST_SUPPORT_H_
#define GANTRY_KERNELS_TESTING_KERNEL_TEST_SUPPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/parallel_for.h"
#include "kernels/kernel_context.h"
#include "kernels/matmul.h"
#include "kernels/testing/reference.h"
#include "kernels/views.h"

namespace gantry::testing {

inline constexpr uint64_t kSeed = 7;

// Standard normal values times `scale`, a pure function of kSeed and `stream`.
reference::Matrix RandomMatrix(MatrixShape shape, uint64_t stream, double scale);

// A matrix in memory. Rows lie `gap` elements apart; the gaps hold a canary.
class TestMatrix {
 public:
  struct Options {
    DType dtype;
    MatrixShape shape;
    int64_t gap;
  };
  // Elements are NaN, so that one a kernel forgets to write is found.
  explicit TestMatrix(const Options& options);
  // Elements are `values`, rounded to the type.
  TestMatrix(const Options& options, const reference::Matrix& values);

  MatrixView view();
  reference::Matrix values() const;
  // The first row. REQUIRES: one row.
  VectorView vector() { return view().RowView(0); }
  bool GapsAreIntact() const;
  // All of the memory, gaps included.
  std::span<const std::byte> bytes() const { return memory_; }

 private:
  Options options_;
  std::vector<std::byte> memory_;
};

// Every element within tolerance.absolute + tolerance.relative * (largest expected magnitude).
struct Tolerance {
  double absolute;
  double relative;
};
void ExpectNear(const reference::Matrix& actual, const reference::Matrix& expected,
                const Tolerance& tolerance, const std::string& what);

// 1e-6 * factor for f32, 2^-8 * factor for bf16, relative to the largest magnitude.
Tolerance RoundingOf(DType dtype, double factor);

// A team and a MatMul to run kernels with. The default MatMul unless options say otherwise.
class TestContext {
 public:
  explicit TestContext(int threads) : TestContext(threads, {}) {}
  TestContext(int threads, MatMul::Options options);
  const KernelContext& context() const { return context_; }

 private:
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<MatMul> matmul_;
  KernelContext context_;
};

// Aligned scratch memory, filled with NaN bytes.
class TestWorkspace {
 public:
  explicit TestWorkspace(Bytes bytes);
  std::span<std::byte> span() const { return span_; }

 private:
  std::vector<std::byte> memory_;
  std::span<std::byte> span_;
};

// Runs `kernel`, which returns the bytes of everything it computed, with teams of 1, 2 and 3
// threads and, where `targets` asks for it, on every compiled instruction set this CPU has;
// expects the same bytes each time.
enum class Targets : uint8_t { kBest, kAll };
using KernelRun = std::function<std::vector<std::byte>(const KernelContext& context)>;
void ExpectSameBits(Targets targets, const KernelRun& kernel);

// Appends the memory of `matrix` or `values` to `bytes`.
void Append(const TestMatrix& matrix, std::vector<std::byte>& bytes);
void Append(std::span<const float> values, std::vector<std::byte>& bytes);

// Both stored types, for parameterised tests.
std::vector<DType> StoredTypes();

}  // namespace gantry::testing

#endif  // GANTRY_KERNELS_TESTING_KERNEL_TEST_SUPPORT_H_
