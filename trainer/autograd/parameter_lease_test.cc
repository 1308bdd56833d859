#include "trainer/autograd/parameter_lease.h"

#include <array>
#include <cstddef>

#include "gtest/gtest.h"

namespace gantry {
namespace {

LeasedTensor SixElements(const std::byte* parameter, std::byte* gradient) {
  return {.tensor = TensorId(4),
          .parameter = parameter,
          .gradient = gradient,
          .gradient_content = GradientContent::kEmpty,
          .dtype = DType::kBF16,
          .gradient_dtype = DType::kF32,
          .elements = 6};
}

TEST(LeasedParametersTest, ViewsHaveTheLeasesTypesAndAddresses) {
  std::array<std::byte, 24> memory{};
  LeasedParameters parameters;
  parameters.Set(2, SixElements(memory.data(), memory.data()));
  const ConstMatrixView value = parameters.Value(2, {.rows = 2, .cols = 3});
  EXPECT_EQ(value.data, memory.data());
  EXPECT_EQ(value.dtype, DType::kBF16);
  EXPECT_EQ(value.row_stride, 3);
  const MatrixView gradient = parameters.Gradient(2, {.rows = 3, .cols = 2});
  EXPECT_EQ(gradient.dtype, DType::kF32);
  EXPECT_EQ(gradient.rows, 3);
  EXPECT_TRUE(parameters.HasGradient(2));
  EXPECT_FALSE(parameters.HasGradient(0));
}

TEST(LeasedParametersTest, EmptyGradientsAreOverwritten) {
  std::array<std::byte, 24> memory{};
  LeasedTensor tensor = SixElements(nullptr, memory.data());
  LeasedParameters parameters;
  parameters.Set(0, tensor);
  EXPECT_EQ(parameters.GradientAccumulate(0), Accumulate::kOverwrite);
  tensor.gradient_content = GradientContent::kPartial;
  parameters.Set(0, tensor);
  EXPECT_EQ(parameters.GradientAccumulate(0), Accumulate::kAdd);
}

TEST(LeasedParametersTest, WhatIsNotLeasedAborts) {
  std::array<std::byte, 24> memory{};
  LeasedParameters parameters;
  parameters.Set(0, SixElements(memory.data(), nullptr));
  EXPECT_DEATH(parameters.Value(1, {.rows = 2, .cols = 3}), "not leased for reading");
  EXPECT_DEATH(parameters.Gradient(0, {.rows = 2, .cols = 3}), "no gradient leased");
  EXPECT_DEATH(parameters.Value(0, {.rows = 2, .cols = 4}), "tensor#4");
  EXPECT_DEATH(parameters.HasGradient(8), "8");
}

}  // namespace
}  // namespace gantry
