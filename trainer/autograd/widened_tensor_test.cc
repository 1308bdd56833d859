#include "trainer/autograd/widened_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "base/parallel_for.h"
#include "base/testing/status_matchers.h"
#include "gemini/parameter_store.h"
#include "gemini/testing/memory_store.h"

namespace gantry {
namespace {

using ::testing::ElementsAre;

class WidenedTensorTest : public ::testing::Test {
 protected:
  WidenedTensorTest() {
    auto team = ThreadTeam::Create({.threads = 2});
    GANTRY_CHECK_OK(team.status());
    team_ = *std::move(team);
    auto store = MemoryStore::Create({.gradient_dtype = DType::kF32, .team = team_.get()});
    GANTRY_CHECK_OK(store.status());
    store_ = *std::move(store);
    GANTRY_CHECK_OK(
        store_->Register({.name = "w", .shape = {4}, .dtype = DType::kF32}, {}).status());
    GANTRY_CHECK_OK(store_->Seal());
  }

  LeasedTensor Leased(GradientContent content) {
    return {.tensor = TensorId(0),
            .parameter = reinterpret_cast<const std::byte*>(value_.data()),
            .gradient = reinterpret_cast<std::byte*>(gradient_.data()),
            .gradient_content = content,
            .dtype = DType::kF16,
            .gradient_dtype = DType::kF16,
            .elements = 4};
  }
  static std::vector<float> Floats(const std::byte* data) {
    const auto* const floats = reinterpret_cast<const float*>(data);
    return {floats, floats + 4};
  }

  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<MemoryStore> store_;
  std::array<Float16, 4> value_ = {Float16(1.0F), Float16(-2.5F), Float16(65504.0F), Float16(0.0F)};
  std::array<Float16, 4> gradient_ = {Float16(3.0F), Float16(4.0F), Float16(5.0F), Float16(6.0F)};
};

TEST_F(WidenedTensorTest, KernelsSeeFloats) {
  const LeasedTensor leased = Leased(GradientContent::kPartial);
  EXPECT_TRUE(HasHalves(leased));
  absl::StatusOr<WidenedTensor> widened = WidenedTensor::Create(store_->arena(), leased);
  ASSERT_THAT(widened, IsOk());
  EXPECT_EQ(widened->tensor().dtype, DType::kF32);
  EXPECT_EQ(widened->tensor().gradient_dtype, DType::kF32);
  widened->Load(*team_);
  EXPECT_THAT(Floats(widened->tensor().parameter), ElementsAre(1.0F, -2.5F, 65504.0F, 0.0F));
  EXPECT_THAT(Floats(widened->tensor().gradient), ElementsAre(3.0F, 4.0F, 5.0F, 6.0F));
}

TEST_F(WidenedTensorTest, GradientsGoBackRoundedAndOverflowToInfinity) {
  const LeasedTensor leased = Leased(GradientContent::kEmpty);
  absl::StatusOr<WidenedTensor> widened = WidenedTensor::Create(store_->arena(), leased);
  ASSERT_THAT(widened, IsOk());
  widened->Load(*team_);
  auto* const gradient = reinterpret_cast<float*>(widened->tensor().gradient);
  const std::array<float, 4> written = {1.0F + 0x1p-12F, 70000.0F, -1e-9F, 2.0F};
  std::copy(written.begin(), written.end(), gradient);
  widened->Store(*team_);
  EXPECT_EQ(static_cast<float>(gradient_[0]), 1.0F);
  EXPECT_TRUE(std::isinf(static_cast<float>(gradient_[1])));
  EXPECT_EQ(static_cast<float>(gradient_[2]), 0.0F);
  EXPECT_EQ(static_cast<float>(gradient_[3]), 2.0F);
  EXPECT_EQ(static_cast<float>(value_[1]), -2.5F);
}

TEST_F(WidenedTensorTest, OtherTypesAreUsedAsTheyAre) {
  std::array<float, 4> gradient = {};
  LeasedTensor leased = Leased(GradientContent::kEmpty);
  leased.gradient = reinterpret_cast<std::byte*>(gradient.data());
  leased.gradient_dtype = DType::kF32;
  absl::StatusOr<WidenedTensor> widened = WidenedTensor::Create(store_->arena(), leased);
  ASSERT_THAT(widened, IsOk());
  EXPECT_EQ(widened->tensor().gradient, leased.gradient);
  leased.parameter = nullptr;
  EXPECT_FALSE(HasHalves(leased));
}

}  // namespace
}  // namespace gantry
