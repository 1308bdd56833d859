#include "trainer/autograd/testing/test_bench.h"

#include <utility>

#include "base/check.h"

namespace gantry {
namespace {

template <typename T>
T ValueOrDie(absl::StatusOr<T> result) {
  GANTRY_CHECK_OK(result.status());
  return *std::move(result);
}

}  // namespace

TestBench::TestBench(const Options& options)
    : options_(options),
      team_(ValueOrDie(ThreadTeam::Create({.threads = options.threads}))),
      matmul_(ValueOrDie(MatMul::Create({}))),
      store_(ValueOrDie(MemoryStore::Create({.chunk_elements = options.chunk_elements,
                                             .gradient_dtype = options.gradient_dtype,
                                             .activation_slots = options.activation_slots,
                                             .team = team_.get()}))) {}

void TestBench::BeginTraining(double learning_rate) {
  StepOptions step;
  step.optimizer = OptimizerStep{.learning_rate = learning_rate};
  GANTRY_CHECK_OK(store_->BeginStep(step));
  GANTRY_CHECK_OK(store_->BeginMicroBatch());
}

Activation TestBench::MakeActivation(MatrixShape shape, std::span<const double> values) {
  GANTRY_CHECK_EQ(static_cast<int64_t>(values.size()), shape.rows * shape.cols);
  Activation activation =
      ValueOrDie(Activation::Allocate(store_->arena(), shape, options_.compute_dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    if (options_.compute_dtype == DType::kF32) {
      activation.flat().As<float>()[i] = value;
    } else {
      activation.flat().As<BFloat16>()[i] = BFloat16(value);
    }
  }
  return activation;
}

Var TestBench::MakeInput(MatrixShape shape, std::span<const double> values) {
  return {MakeActivation(shape, values), std::make_shared<GradientCell>()};
}

std::vector<double> ValuesOf(const Activation& activation) {
  const VectorView view = activation.flat();
  std::vector<double> values;
  for (int64_t i = 0; i < view.size; ++i) {
    values.push_back(view.dtype == DType::kF32 ? view.As<float>()[i]
                                               : static_cast<float>(view.As<BFloat16>()[i]));
  }
  return values;
}

double RoundTo(DType dtype, double value) {
  const auto rounded = static_cast<float>(value);
  return dtype == DType::kF32 ? rounded : static_cast<float>(BFloat16(rounded));
}

}  // namespace gantry
