// MemoryStore is the oracle of gemini::Engine, so its own arithmetic is checked here against a
// scalar AdamW in double, and its strictness case by case.
#include "gemini/testing/memory_store.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/random.h"
#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace gantry {
namespace {

using Code = absl::StatusCode;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20241;

template <typename T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

class MemoryStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto team = ThreadTeam::Create({.threads = 2});
    ASSERT_THAT(team, IsOk());
    team_ = *std::move(team);
    auto store = MemoryStore::Create({.activation_slots = 4, .team = team_.get()});
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
  }

  TensorId Add(const std::string& name, std::vector<int64_t> shape, DType dtype,
               Trainability trainability = Trainability::kTrainable,
               RegistrationOptions options = {}) {
    const auto id = store_->Register(
        {.name = name, .shape = std::move(shape), .dtype = dtype, .trainability = trainability},
        options);
    EXPECT_THAT(id, IsOk());
    return *id;
  }

  void Begin(OptimizerStep step, int64_t micro_batches = 1) {
    ASSERT_THAT(store_->BeginStep({.micro_batches = micro_batches, .optimizer = step}), IsOk());
    ASSERT_THAT(store_->BeginMicroBatch(), IsOk());
  }

  // Writes (first contribution) or adds to the gradient of `tensor`, which is f32.
  void Contribute(TensorId tensor, const std::vector<float>& values) {
    const ParameterUse use{tensor, ParameterAccess::kGradient};
    const auto lease = store_->Acquire({&use, 1}, "contribute", Phase::kBackward);
    ASSERT_THAT(lease, IsOk());
    const LeasedTensor& leased = (*lease)[0];
    ASSERT_EQ(leased.gradient_dtype, DType::kF32);
    auto* gradient = reinterpret_cast<float*>(leased.gradient);
    for (size_t i = 0; i < values.size(); ++i) {
      if (leased.gradient_content == GradientContent::kEmpty) {
        gradient[i] = values[i];
      } else {
        gradient[i] += values[i];
      }
    }
  }

  template <typename T>
  std::vector<T> Read(StateKind kind, TensorId tensor, size_t count) {
    std::vector<T> values(count);
    EXPECT_THAT(store_->ReadState(kind, tensor, 0, std::as_writable_bytes(std::span(values))),
                IsOk());
    return values;
  }

  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<MemoryStore> store_;
};

std::vector<float> Normals(uint64_t stream, size_t count) {
  const Random random({.seed = kSeed, .stream = stream});
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(random.Normal(i)));
  return values;
}

TEST_F(MemoryStoreTest, RejectsBadOptions) {
  EXPECT_THAT(MemoryStore::Create({}), StatusIs(Code::kInvalidArgument, "team"));
  EXPECT_THAT(MemoryStore::Create({.activation_slots = 0, .team = team_.get()}),
              StatusIs(Code::kInvalidArgument, "activation_slots"));
  EXPECT_THAT(MemoryStore::Create({.chunk_elements = 1000, .team = team_.get()}),
              StatusIs(Code::kInvalidArgument, "1000"));
}

TEST_F(MemoryStoreTest, RejectsBadRegistrations) {
  Add("w", {4, 4}, DType::kF32);
  EXPECT_THAT(store_->Register({.name = "w", .shape = {2}, .dtype = DType::kF32}, {}),
              StatusIs(Code::kInvalidArgument, "'w'"));
  EXPECT_THAT(store_->Register({.name = "z", .shape = {0}, .dtype = DType::kF32}, {}),
              StatusIs(Code::kInvalidArgument, "extent"));
  EXPECT_THAT(store_->Alias("alias", TensorId(7)), StatusIs(Code::kInvalidArgument, "tensor#7"));
  EXPECT_THAT(store_->Alias("w", TensorId(0)), StatusIs(Code::kInvalidArgument, "already"));
}

TEST_F(MemoryStoreTest, DryRunLeasesFaultWhenTouched) {
  const TensorId w = Add("w", {4}, DType::kF32);
  ASSERT_TRUE(store_->dry_run());
  Begin({.learning_rate = 1});
  const ParameterUse use{w, ParameterAccess::kReadAndGradient};
  const auto lease = store_->Acquire({&use, 1}, "operator", Phase::kBackward);
  ASSERT_THAT(lease, IsOk());
  const LeasedTensor& leased = (*lease)[0];
  ASSERT_NE(leased.parameter, nullptr);
  ASSERT_NE(leased.gradient, nullptr);
  EXPECT_EQ(leased.elements, 4);
  EXPECT_DEATH(*static_cast<volatile std::byte*>(leased.gradient) = std::byte{1}, "");
}

TEST_F(MemoryStoreTest, SealNamesAliasesAndBacksTheArena) {
  const TensorId w = Add("w", {3, 5}, DType::kF32);
  ASSERT_THAT(store_->Alias("tied", w), IsOk());
  ASSERT_THAT(store_->Seal(), IsOk());
  EXPECT_FALSE(store_->dry_run());
  EXPECT_THAT(store_->layout().Find("tied"), IsOkAndHolds(w));
  EXPECT_THAT(store_->Seal(), StatusIs(Code::kFailedPrecondition));
  const auto buffer = store_->arena().Allocate(1000);
  ASSERT_THAT(buffer, IsOk());
  std::memset(buffer->data(), 1, 1000);
  EXPECT_THAT(store_->arena().Allocate(int64_t{1} << 20), StatusIs(Code::kResourceExhausted));
}

TEST_F(MemoryStoreTest, MasterAndParameterFollowEachOther) {
  const TensorId w = Add("w", {2}, DType::kBF16);
  ASSERT_THAT(store_->Seal(), IsOk());
  const std::vector<float> master = {1.00390625F, 3.14159265F};  // a tie to even, and another
  ASSERT_THAT(store_->WriteState(StateKind::kMaster, w, 0, BytesOf(master)), IsOk());
  const auto rounded = Read<BFloat16>(StateKind::kParameter, w, 2);
  EXPECT_EQ(static_cast<float>(rounded[0]), 1.0F);
  EXPECT_EQ(static_cast<float>(rounded[1]), 3.140625F);
  const std::vector<BFloat16> parameter = {BFloat16(-2.5F)};
  ASSERT_THAT(store_->WriteState(StateKind::kParameter, w, 1, BytesOf(parameter)), IsOk());
  EXPECT_EQ(Read<float>(StateKind::kMaster, w, 2), (std::vector<float>{master[0], -2.5F}));
}

TEST_F(MemoryStoreTest, StateAccessChecksItsRange) {
  const TensorId w = Add("w", {4}, DType::kBF16);
  const TensorId frozen = Add("f", {4}, DType::kBF16, Trainability::kFrozen);
  std::vector<std::byte> bytes(6);
  EXPECT_THAT(store_->ReadState(StateKind::kParameter, w, 0, bytes),
              StatusIs(Code::kFailedPrecondition));
  ASSERT_THAT(store_->Seal(), IsOk());
  EXPECT_THAT(store_->ReadState(StateKind::kParameter, w, 1, bytes), IsOk());
  for (const int64_t first : {int64_t{2}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(store_->ReadState(StateKind::kParameter, w, first, bytes),
                StatusIs(Code::kInvalidArgument, "'w'"));
  }
  EXPECT_THAT(store_->ReadState(StateKind::kMomentum, w, 0, bytes),
              StatusIs(Code::kInvalidArgument, "multiple"));
  EXPECT_THAT(store_->ReadState(StateKind::kMaster, frozen, 0, {}),
              StatusIs(Code::kInvalidArgument, "frozen"));
  ASSERT_THAT(store_->BeginStep({}), IsOk());
  EXPECT_THAT(store_->WriteState(StateKind::kParameter, w, 0, bytes),
              StatusIs(Code::kFailedPrecondition, "inside a step"));
}

TEST_F(MemoryStoreTest, StepIsAdamWOverAllTensors) {
  constexpr size_t kCount = 40000;  // three norm segments
  const TensorId w = Add("w", {200, 200}, DType::kF32);
  const TensorId norm = Add("norm", {8}, DType::kF32, Trainability::kTrainable,
                            {.weight_decay_factor = 0.0, .learning_rate_factor = 0.5});
  const TensorId untouched = Add("untouched", {8}, DType::kF32);
  ASSERT_THAT(store_->Seal(), IsOk());
  const std::vector<float> start = Normals(1, kCount);
  const std::vector<float> small = Normals(2, 8);
  ASSERT_THAT(store_->WriteState(StateKind::kParameter, w, 0, BytesOf(start)), IsOk());
  ASSERT_THAT(store_->WriteState(StateKind::kParameter, norm, 0, BytesOf(small)), IsOk());
  ASSERT_THAT(store_->WriteState(StateKind::kParameter, untouched, 0, BytesOf(small)), IsOk());

  const std::vector<float> gradient = Normals(3, kCount);
  const std::vector<float> small_gradient = Normals(4, 8);
  Begin({.learning_rate = 0.1, .weight_decay = 0.3, .max_gradient_norm = 2.0, .loss_scale = 4.0});
  Contribute(w, gradient);
  Contribute(norm, small_gradient);
  store_->GradientReady(w);
  const auto result = store_->EndStep();
  ASSERT_THAT(result, IsOk());

  double square = 0;
  for (const float g : gradient) square += double{g} * g;
  for (const float g : small_gradient) square += double{g} * g;
  const double expected_norm = std::sqrt(square) / 4.0;
  EXPECT_EQ(result->outcome, StepResult::Outcome::kUpdated);
  EXPECT_NEAR(result->gradient_norm, expected_norm, 1e-9 * expected_norm);
  const double clip = 2.0 / (expected_norm + 1e-6);
  EXPECT_NEAR(result->clip_factor, clip, 1e-9);

  const auto expect_updated = [&](TensorId tensor, const std::vector<float>& before,
                                  const std::vector<float>& gradients, double rate, double decay) {
    const auto after = Read<float>(StateKind::kParameter, tensor, before.size());
    const auto variance = Read<float>(StateKind::kVariance, tensor, before.size());
    for (size_t i = 0; i < before.size(); ++i) {
      const double g = gradients[i] * clip / 4.0;
      const double v = 0.001 * g * g;
      const double update = rate * g / (std::sqrt(v) / std::sqrt(0.001) + 1e-8);
      ASSERT_NEAR(after[i], before[i] * (1 - rate * decay) - update, 1e-5) << tensor << " " << i;
      ASSERT_NEAR(variance[i], v, 1e-6 * v) << tensor << " " << i;
    }
  };
  expect_updated(w, start, gradient, 0.1, 0.3);
  expect_updated(norm, small, small_gradient, 0.05, 0.0);
  expect_updated(untouched, small, std::vector<float>(8, 0.0F), 0.1, 0.3);
}

TEST_F(MemoryStoreTest, BF16ParametersAreTheRoundedMaster) {
  const TensorId w = Add("w", {100}, DType::kBF16);
  ASSERT_THAT(store_->Seal(), IsOk());
  ASSERT_THAT(store_->WriteState(StateKind::kMaster, w, 0, BytesOf(Normals(1, 100))), IsOk());
  for (int64_t step = 1; step <= 3; ++step) {
    Begin({.learning_rate = 1e-3, .step = step});
    Contribute(w, Normals(10 + static_cast<uint64_t>(step), 100));
    ASSERT_THAT(store_->EndStep(), IsOk());
  }
  const auto master = Read<float>(StateKind::kMaster, w, 100);
  const auto parameter = Read<BFloat16>(StateKind::kParameter, w, 100);
  EXPECT_NE(master, Normals(1, 100));
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(parameter[i], BFloat16(master[i])) << i;
}

TEST_F(MemoryStoreTest, GradientsAccumulateOverMicroBatches) {
  const TensorId w = Add("w", {2}, DType::kF32);
  ASSERT_THAT(store_->Seal(), IsOk());
  Begin({.learning_rate = 0.0}, 2);
  {
    const ParameterUse use{w, ParameterAccess::kGradient};
    const auto lease = store_->Acquire({&use, 1}, "operator", Phase::kBackward);
    ASSERT_THAT(lease, IsOk());
    ASSERT_EQ((*lease)[0].gradient_content, GradientContent::kEmpty);
    EXPECT_TRUE(std::isnan(*reinterpret_cast<const float*>((*lease)[0].gradient)));
    auto* gradient = reinterpret_cast<float*>((*lease)[0].gradient);
    gradient[0] = 1.0F;
    gradient[1] = 2.0F;
  }
  store_->GradientReady(w);
  ASSERT_THAT(store_->BeginMicroBatch(), IsOk());
  Contribute(w, {10.0F, 20.0F});
  store_->GradientReady(w);
  EXPECT_THAT(store_->Gradient(w), IsOkAndHolds(std::vector<float>{11.0F, 22.0F}));
  const auto result = store_->EndStep();
  ASSERT_THAT(result, IsOk());
  EXPECT_DOUBLE_EQ(result->gradient_norm, std::sqrt(11.0 * 11.0 + 22.0 * 22.0));
}

TEST_F(MemoryStoreTest, NonFiniteStepIsSkippedOrNot) {
  const TensorId w = Add("w", {2}, DType::kF32);
  ASSERT_THAT(store_->Seal(), IsOk());
  const float infinity = std::numeric_limits<float>::infinity();
  Begin({.learning_rate = 0.1});
  Contribute(w, {1.0F, infinity});
  auto result = store_->EndStep();
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->outcome, StepResult::Outcome::kSkippedNonFinite);
  EXPECT_EQ(Read<float>(StateKind::kParameter, w, 2), (std::vector<float>{0.0F, 0.0F}));
  EXPECT_EQ(Read<float>(StateKind::kMomentum, w, 2), (std::vector<float>{0.0F, 0.0F}));

  Begin({.learning_rate = 0.1, .non_finite = OptimizerStep::NonFinite::kUpdateAnyway});
  Contribute(w, {1.0F, infinity});
  result = store_->EndStep();
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->outcome, StepResult::Outcome::kUpdated);
  const auto after = Read<float>(StateKind::kParameter, w, 2);
  EXPECT_NEAR(after[0], -0.1F, 1e-6);
  EXPECT_TRUE(std::isnan(after[1]));
}

TEST_F(MemoryStoreTest, EvaluationChangesNothing) {
  const TensorId w = Add("w", {2}, DType::kF32);
  ASSERT_THAT(store_->Seal(), IsOk());
  ASSERT_THAT(store_->BeginStep({}), IsOk());
  ASSERT_THAT(store_->BeginMicroBatch(), IsOk());
  const ParameterUse read{w, ParameterAccess::kRead};
  EXPECT_THAT(store_->Acquire({&read, 1}, "read", Phase::kForward), IsOk());
  const ParameterUse gradient{w, ParameterAccess::kGradient};
  EXPECT_THAT(store_->Acquire({&gradient, 1}, "operator", Phase::kForward),
              StatusIs(Code::kFailedPrecondition, "evaluation"));
  const auto result = store_->EndStep();
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->outcome, StepResult::Outcome::kEvaluated);
}

TEST_F(MemoryStoreTest, MisusedLeasesAreErrors) {
  const TensorId w = Add("w", {2}, DType::kF32);
  const TensorId frozen = Add("f", {2}, DType::kF32, Trainability::kFrozen);
  ASSERT_THAT(store_->Seal(), IsOk());
  const ParameterUse read{w, ParameterAccess::kRead};
  EXPECT_THAT(store_->Acquire({&read, 1}, "early", Phase::kForward),
              StatusIs(Code::kFailedPrecondition, "early"));
  Begin({.learning_rate = 0.1});
  const std::vector<ParameterUse> twice(2, read);
  EXPECT_THAT(store_->Acquire(twice, "twice", Phase::kForward),
              StatusIs(Code::kInvalidArgument, "'w' twice"));
  const std::vector<ParameterUse> many(9, read);
  EXPECT_THAT(store_->Acquire(many, "many", Phase::kForward),
              StatusIs(Code::kInvalidArgument, "9 tensors"));
  const ParameterUse frozen_gradient{frozen, ParameterAccess::kGradient};
  EXPECT_THAT(store_->Acquire({&frozen_gradient, 1}, "frozen", Phase::kBackward),
              StatusIs(Code::kInvalidArgument, "frozen 'f'"));
  const ParameterUse unknown{TensorId(9), ParameterAccess::kRead};
  EXPECT_THAT(store_->Acquire({&unknown, 1}, "unknown", Phase::kForward),
              StatusIs(Code::kInvalidArgument, "tensor#9"));
  {
    const auto outer = store_->Acquire({&read, 1}, "outer", Phase::kForward);
    ASSERT_THAT(outer, IsOk());
    EXPECT_EQ(store_->open_leases(), 1);
    EXPECT_THAT(store_->Acquire({&read, 1}, "nested", Phase::kForward),
                StatusIs(Code::kFailedPrecondition, "another lease"));
    EXPECT_DEATH(store_->GradientReady(w), "w");
  }
  store_->GradientReady(w);
  EXPECT_THAT(store_->Acquire({&read, 1}, "late", Phase::kForward),
              StatusIs(Code::kFailedPrecondition, "late"));
  EXPECT_DEATH(store_->GradientReady(w), "ready already");
  EXPECT_DEATH(store_->GradientReady(frozen), "f");
}

TEST_F(MemoryStoreTest, StepsMustBeWhole) {
  Add("w", {2}, DType::kF32);
  ASSERT_THAT(store_->Seal(), IsOk());
  EXPECT_THAT(store_->EndStep(), StatusIs(Code::kFailedPrecondition));
  EXPECT_THAT(store_->BeginMicroBatch(), StatusIs(Code::kFailedPrecondition));
  EXPECT_THAT(store_->BeginStep({.micro_batches = 0, .optimizer = {}}),
              StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(store_->BeginStep({.optimizer = OptimizerStep{.learning_rate = -1}}),
              StatusIs(Code::kInvalidArgument, "learning_rate"));
  EXPECT_THAT(store_->BeginStep({.optimizer = OptimizerStep{.learning_rate = 1, .loss_scale = 0}}),
              StatusIs(Code::kInvalidArgument, "loss_scale"));
  Begin({.learning_rate = 0.1}, 2);
  EXPECT_THAT(store_->BeginStep({}), StatusIs(Code::kFailedPrecondition));
  EXPECT_THAT(store_->EndStep(), StatusIs(Code::kFailedPrecondition, "2 micro-batches and ran 1"));
  Begin({.learning_rate = 0.1});  // the failed step is over
  EXPECT_THAT(store_->BeginMicroBatch(), StatusIs(Code::kFailedPrecondition, "more micro-batches"));
}

}  // namespace
}  // namespace gantry
