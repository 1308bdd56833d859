// What a test of operators runs on: threads, matrix multiplication, a MemoryStore, and the context
// over them. Aborts where setting up fails.
#ifndef GANTRY_TRAINER_AUTOGRAD_TESTING_TEST_BENCH_H_
#define GANTRY_TRAINER_AUTOGRAD_TESTING_TEST_BENCH_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/ids.h"
#include "base/parallel_for.h"
#include "gemini/parameter_store.h"
#include "gemini/testing/memory_store.h"
#include "kernels/matmul.h"
#include "kernels/views.h"
#include "trainer/autograd/execution_context.h"
#include "trainer/autograd/tape.h"

namespace gantry {

class TestBench {
 public:
  struct Options {
    DType compute_dtype = DType::kF32;
    DType gradient_dtype = DType::kF32;  // of bf16 parameters
    int threads = 2;
    int64_t chunk_elements = kChunkGranularityElements;
    int64_t activation_slots = 256;
  };
  explicit TestBench(const Options& options);

  MemoryStore& store() { return *store_; }
  ExecutionContext context() {
    return {.store = store_.get(),
            .kernels = {.team = team_.get(), .matmul = matmul_.get()},
            .compute_dtype = options_.compute_dtype};
  }
  // The same over another store, e.g. one that wraps store().
  ExecutionContext ContextOver(ParameterStore* store) {
    ExecutionContext context = this->context();
    context.store = store;
    return context;
  }

  // Begins a training step of one micro-batch and the micro-batch.
  void BeginTraining(double learning_rate);
  // An activation in the compute type, of values rounded to it.
  Activation MakeActivation(MatrixShape shape, std::span<const double> values);
  // The same as a Var that takes a gradient.
  Var MakeInput(MatrixShape shape, std::span<const double> values);

 private:
  Options options_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<MatMul> matmul_;
  std::unique_ptr<MemoryStore> store_;
};

// The elements of an activation.
std::vector<double> ValuesOf(const Activation& activation);
// `value` rounded to `dtype`.
double RoundTo(DType dtype, double value);

}  // namespace gantry

#endif  // GANTRY_TRAINER_AUTOGRAD_TESTING_TEST_BENCH_H_
