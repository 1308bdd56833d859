// What the engine does when it is used wrongly, or when a step is given up half way: typed errors,
// aborts that name the parameter, and an engine that works on with the right numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/testing/status_matchers.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "gemini/testing/memory_store.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr int64_t kChunk = kChunkGranularityElements;
constexpr int64_t kSlot = 2 * kChunk;

OptimizerStep Hyper(int64_t step) {
  return {.learning_rate = 1e-2, .step = step, .max_gradient_norm = 1.0};
}

// Overwrites or adds a gradient of `value` in every element.
absl::Status Contribute(ParameterStore* store, TensorId tensor, float value) {
  const ParameterUse use{tensor, ParameterAccess::kReadAndGradient};
  GANTRY_ASSIGN_OR_RETURN(const Lease lease,
                          store->Acquire({&use, 1}, "contribute", Phase::kBackward));
  for (int64_t i = 0; i < lease[0].elements; ++i) {
    float sum = value;
    if (lease[0].gradient_content == GradientContent::kPartial) {
      sum += LoadElement(lease[0].gradient_dtype, lease[0].gradient, i);
    }
    StoreElement(lease[0].gradient_dtype, lease[0].gradient, i, sum);
  }
  return absl::OkStatus();
}

absl::Status Read(ParameterStore* store, TensorId tensor) {
  const ParameterUse use{tensor, ParameterAccess::kRead};
  return store->Acquire({&use, 1}, "read", Phase::kForward).status();
}

// A whole step that gives every tensor the gradient `value`.
absl::Status Train(ParameterStore* store, std::span<const TensorId> tensors, int64_t step,
                   float value) {
  GANTRY_RETURN_IF_ERROR(store->BeginStep({.optimizer = Hyper(step)}));
  GANTRY_RETURN_IF_ERROR(store->BeginMicroBatch());
  for (const TensorId tensor : tensors) {
    GANTRY_RETURN_IF_ERROR(Contribute(store, tensor, value));
    store->GradientReady(tensor);
  }
  return store->EndStep().status();
}

absl::Status Evaluate(ParameterStore* store, std::span<const TensorId> tensors,
                      std::string_view key) {
  GANTRY_RETURN_IF_ERROR(store->BeginStep({.trace_key = std::string(key), .optimizer = {}}));
  GANTRY_RETURN_IF_ERROR(store->BeginMicroBatch());
  for (const TensorId tensor : tensors) GANTRY_RETURN_IF_ERROR(Read(store, tensor));
  return store->EndStep().status();
}

struct Budgets {
  DeviceTopology topology = DeviceTopology::kUnified;
  int64_t device_slots = 64;
  int64_t host_slots = 64;
  IoBackendFactory make_io = {};
};

class EngineMisuseTest : public ::testing::Test {
 protected:
  void Make(const Budgets& budgets) {
    engine_.reset();
    auto team = ThreadTeam::Create({.threads = 2});
    ASSERT_THAT(team, IsOk());
    team_ = *std::move(team);
    auto device = CreateHostDevice({.topology = budgets.topology, .clock = &clock_});
    ASSERT_THAT(device, IsOk());
    device_ = *std::move(device);
    auto engine = Engine::Create({.device = device_.get(),
                                  .team = team_.get(),
                                  .clock = &clock_,
                                  .logger = &logger_,
                                  .files = &files_,
                                  .device_memory = Bytes(kSlot * budgets.device_slots),
                                  .host_memory = Bytes(kSlot * budgets.host_slots),
                                  .spill_directories = {::testing::TempDir()},
                                  .make_io = budgets.make_io,
                                  .static_fractions = {},
                                  .chunk_elements = kChunk});
    ASSERT_THAT(engine, IsOk());
    engine_ = *std::move(engine);
  }

  TensorId Add(const TensorSpec& spec) {
    const auto id = engine_->Register(spec, {});
    GANTRY_CHECK(id.ok()) << id.status().ToString();
    return *id;
  }

  MonotonicClock clock_;
  MemoryLogger logger_;
  PosixFileCalls files_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
};

// A step of which a micro-batch never came is given up: its gradients count for nothing, and the
// next step is as if it had not been.
TEST_F(EngineMisuseTest, AStepGivenUpHalfWayLeavesNothing) {
  const auto run = [](ParameterStore* store, bool give_up) -> absl::StatusOr<std::vector<float>> {
    std::vector<TensorId> tensors;
    for (const int64_t elements : {1'000, 70'000, 500}) {
      GANTRY_ASSIGN_OR_RETURN(
          const TensorId id,
          store->Register(
              {.name = StrCat("t", elements), .shape = {elements}, .dtype = DType::kBF16}, {}));
      tensors.push_back(id);
    }
    GANTRY_RETURN_IF_ERROR(store->Seal());
    GANTRY_RETURN_IF_ERROR(Train(store, tensors, 1, 0.5F));
    if (give_up) {
      GANTRY_RETURN_IF_ERROR(store->BeginStep({.micro_batches = 2, .optimizer = Hyper(2)}));
      GANTRY_RETURN_IF_ERROR(store->BeginMicroBatch());
      GANTRY_RETURN_IF_ERROR(Contribute(store, tensors[0], 100.0F));
      GANTRY_RETURN_IF_ERROR(Contribute(store, tensors[1], 100.0F));
      store->GradientReady(tensors[0]);
      const absl::Status given_up = store->EndStep().status();
      if (given_up.code() != Code::kFailedPrecondition)
        return Internal("gave ", given_up.message());
    }
    GANTRY_RETURN_IF_ERROR(Train(store, std::span(tensors).first(2), 2, -0.25F));
    GANTRY_RETURN_IF_ERROR(Train(store, tensors, 3, 1.0F));
    std::vector<float> values;
    for (size_t t = 0; t < tensors.size(); ++t) {
      values.resize(values.size() + 500);
      const auto last = std::as_writable_bytes(std::span(values).last(500));
      GANTRY_RETURN_IF_ERROR(store->ReadState(StateKind::kMaster, tensors[t], 0, last));
    }
    return values;
  };
  auto team = ThreadTeam::Create({.threads = 1});
  ASSERT_THAT(team, IsOk());
  auto oracle = MemoryStore::Create({.gradient_dtype = DType::kBF16, .team = team->get()});
  ASSERT_THAT(oracle, IsOk());
  const auto expected = run(oracle->get(), false);
  ASSERT_THAT(expected, IsOk());
  for (const DeviceTopology topology : {DeviceTopology::kUnified, DeviceTopology::kDiscrete}) {
    Make({.topology = topology});
    const auto actual = run(engine_.get(), true);
    ASSERT_THAT(actual, IsOk());
    EXPECT_EQ(*actual, *expected);
  }
}

// The record of a step that was given up must not become the plan of its key.
TEST_F(EngineMisuseTest, AStepGivenUpHalfWayIsNoPlan) {
  Make({});
  const std::vector<TensorId> tensors = {Add({.name = "a", .shape = {100}, .dtype = DType::kBF16}),
                                         Add({.name = "b", .shape = {100}, .dtype = DType::kBF16})};
  ASSERT_THAT(engine_->Seal(), IsOk());
  ASSERT_THAT(Evaluate(engine_.get(), tensors, "evaluate"), IsOk());
  ASSERT_THAT(engine_->BeginStep({.micro_batches = 2, .optimizer = Hyper(1)}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(), IsOk());
  ASSERT_THAT(Read(engine_.get(), tensors[0]), IsOk());
  EXPECT_THAT(engine_->EndStep(), StatusIs(Code::kFailedPrecondition, "1 of its 2"));
  ASSERT_THAT(Evaluate(engine_.get(), tensors, "evaluate"), IsOk());
  EXPECT_EQ(engine_->trace("train"), nullptr);
  ASSERT_NE(engine_->trace("evaluate"), nullptr);
  EXPECT_EQ(engine_->trace("evaluate")->moments.size(), 2);
  ASSERT_THAT(Train(engine_.get(), tensors, 1, 1.0F), IsOk());
  EXPECT_NE(engine_->trace("train"), nullptr);
}

// Chunks that only fill a group up to its data-parallel degree have blocks but no gradient.
TEST_F(EngineMisuseTest, ChunksWithoutTensorsDoNotHoldUpTheStep) {
  Make({});
  const TensorId w = Add({.name = "w",
                          .shape = {100},
                          .dtype = DType::kBF16,
                          .trainability = Trainability::kTrainable,
                          .data_parallel_degree = 4});
  ASSERT_THAT(engine_->Seal(), IsOk());
  ASSERT_EQ(engine_->statistics().chunk_count, 4);
  ASSERT_THAT(Train(engine_.get(), {&w, 1}, 1, 1.0F), IsOk());
  ASSERT_THAT(engine_->Drain(), IsOk());
  float value = 0.0F;
  ASSERT_THAT(
      engine_->ReadState(StateKind::kMaster, w, 99, std::as_writable_bytes(std::span(&value, 1))),
      IsOk());
  EXPECT_NEAR(value, -0.01F, 1e-6);
}

TEST_F(EngineMisuseTest, AFailedSealSaysWhyAndMayBeRepeated) {
  int calls = 0;
  Make({.make_io =
            [&](const IoBackendOptions& options) -> absl::StatusOr<std::unique_ptr<IoBackend>> {
    if (calls++ == 0) return Unavailable("injected: no I/O today");
    return CreateIoBackend(options);
  }});
  const TensorId w = Add({.name = "w", .shape = {100}, .dtype = DType::kBF16});
  EXPECT_THAT(engine_->Seal(), StatusIs(Code::kUnavailable, "no I/O today"));
  EXPECT_TRUE(engine_->dry_run());
  EXPECT_THAT(Evaluate(engine_.get(), {&w, 1}, "evaluate"), IsOk());
  ASSERT_THAT(engine_->Seal(), IsOk());
  EXPECT_THAT(Train(engine_.get(), {&w, 1}, 1, 1.0F), IsOk());
}

TEST_F(EngineMisuseTest, GradientsThatDoNotExistAreErrorsInADryRunToo) {
  Make({});
  const TensorId frozen = Add(
      {.name = "f", .shape = {100}, .dtype = DType::kBF16, .trainability = Trainability::kFrozen});
  const TensorId w = Add({.name = "w", .shape = {100}, .dtype = DType::kBF16});
  const ParameterUse of_frozen{frozen, ParameterAccess::kGradient};
  const ParameterUse of_w{w, ParameterAccess::kGradient};
  for (const bool sealed : {false, true}) {
    SCOPED_TRACE(sealed ? "sealed" : "dry");
    ASSERT_THAT(engine_->BeginStep({.optimizer = Hyper(1)}), IsOk());
    ASSERT_THAT(engine_->BeginMicroBatch(), IsOk());
    EXPECT_THAT(engine_->Acquire({&of_frozen, 1}, "bad", Phase::kBackward),
                StatusIs(Code::kFailedPrecondition, "'bad' asks for the gradient of 'f'"));
    ASSERT_THAT(engine_->EndStep(), IsOk());
    ASSERT_THAT(engine_->BeginStep({.trace_key = "evaluate", .optimizer = {}}), IsOk());
    ASSERT_THAT(engine_->BeginMicroBatch(), IsOk());
    EXPECT_THAT(engine_->Acquire({&of_w, 1}, "worse", Phase::kBackward),
                StatusIs(Code::kFailedPrecondition, "'worse' asks for the gradient of 'w'"));
    ASSERT_THAT(engine_->EndStep(), IsOk());
    if (!sealed) {
      ASSERT_THAT(engine_->Seal(), IsOk());
    }
  }
}

// The plan of the key has no optimizer moments then: updates have no next use in it.
TEST_F(EngineMisuseTest, AnEvaluationAndATrainingStepMayShareATraceKey) {
  Make({.device_slots = 24});
  const std::vector<TensorId> tensors = {
      Add({.name = "a", .shape = {2 * kChunk}, .dtype = DType::kBF16}),
      Add({.name = "b", .shape = {2 * kChunk}, .dtype = DType::kBF16})};
  ASSERT_THAT(Evaluate(engine_.get(), tensors, "train"), IsOk());
  ASSERT_THAT(engine_->Seal(), IsOk());
  for (int64_t step = 1; step <= 3; ++step) {
    ASSERT_THAT(Train(engine_.get(), tensors, step, 1.0F), IsOk());
  }
  EXPECT_THAT(engine_->Drain(), IsOk());
}

TEST_F(EngineMisuseTest, EndStepUnderALeaseIsAnErrorAndTheStepGoesOn) {
  Make({});
  const TensorId w = Add({.name = "w", .shape = {100}, .dtype = DType::kBF16});
  ASSERT_THAT(engine_->Seal(), IsOk());
  ASSERT_THAT(engine_->BeginStep({.optimizer = Hyper(1)}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(), IsOk());
  {
    const ParameterUse use{w, ParameterAccess::kRead};
    const auto lease = engine_->Acquire({&use, 1}, "outer", Phase::kForward);
    ASSERT_THAT(lease, IsOk());
    EXPECT_THAT(engine_->EndStep(), StatusIs(Code::kFailedPrecondition, "1 live lease"));
  }
  ASSERT_THAT(Contribute(engine_.get(), w, 1.0F), IsOk());
  engine_->GradientReady(w);
  EXPECT_THAT(engine_->EndStep(), IsOk());
}

TEST_F(EngineMisuseTest, GradientReadyOutOfPlaceAborts) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  Make({});
  const TensorId w = Add({.name = "w", .shape = {100}, .dtype = DType::kBF16});
  const TensorId frozen = Add(
      {.name = "f", .shape = {100}, .dtype = DType::kBF16, .trainability = Trainability::kFrozen});
  ASSERT_THAT(engine_->Seal(), IsOk());
  EXPECT_DEATH(engine_->GradientReady(w), "outside a step");
  ASSERT_THAT(engine_->BeginStep({.optimizer = Hyper(1)}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(), IsOk());
  EXPECT_DEATH(engine_->GradientReady(TensorId(2)), "tensor#2");
  EXPECT_DEATH(engine_->GradientReady(frozen), "f");
  engine_->GradientReady(w);
  EXPECT_DEATH(engine_->GradientReady(w), "w");
}

TEST_F(EngineMisuseTest, StateThatDoesNotExistIsAnError) {
  Make({});
  const TensorId frozen = Add(
      {.name = "f", .shape = {100}, .dtype = DType::kF32, .trainability = Trainability::kFrozen});
  std::byte bytes[4];
  EXPECT_THAT(engine_->ReadState(StateKind::kParameter, frozen, 0, bytes),
              StatusIs(Code::kFailedPrecondition));
  ASSERT_THAT(engine_->Seal(), IsOk());
  EXPECT_THAT(engine_->ReadState(StateKind::kParameter, frozen, 0, bytes), IsOk());
  EXPECT_THAT(engine_->ReadState(StateKind::kMaster, frozen, 0, bytes),
              StatusIs(Code::kInvalidArgument, "'f' has no master"));
  EXPECT_THAT(engine_->WriteState(StateKind::kMomentum, frozen, 0, bytes),
              StatusIs(Code::kInvalidArgument, "'f' has no momentum"));
  EXPECT_THAT(engine_->ReadState(StateKind::kParameter, TensorId(1), 0, bytes),
              StatusIs(Code::kInvalidArgument, "tensor#1"));
  EXPECT_THAT(engine_->Alias("other", TensorId(0)), StatusIs(Code::kFailedPrecondition));
}

// A lease that cannot be had leaves no wish behind: the next operators get all the memory.
TEST_F(EngineMisuseTest, AfterALeaseThatCannotBeHadTheRestWorksOn) {
  Make({.device_slots = 10});
  const TensorId big = Add({.name = "big", .shape = {20 * kChunk}, .dtype = DType::kBF16});
  const TensorId w = Add({.name = "w", .shape = {2 * kChunk}, .dtype = DType::kF32});
  ASSERT_THAT(engine_->Seal(), IsOk());
  ASSERT_THAT(engine_->BeginStep({.trace_key = "evaluate", .optimizer = {}}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(), IsOk());
  EXPECT_THAT(Read(engine_.get(), big), StatusIs(Code::kResourceExhausted, "waits for"));
  ASSERT_THAT(Read(engine_.get(), w), IsOk());
  ASSERT_THAT(engine_->Drain(), IsOk());
  engine_->ResetStatistics();
  for (int i = 0; i < 10; ++i) ASSERT_THAT(Read(engine_.get(), w), IsOk());
  ASSERT_THAT(engine_->Drain(), IsOk());
  EXPECT_EQ(engine_->statistics().leases_waited, 0);
  EXPECT_EQ(engine_->statistics().lanes[static_cast<size_t>(TransferLane::kFileRead)].bytes, 0);
  EXPECT_THAT(engine_->EndStep(), IsOk());
}

// The gradient that the failed lease wished for is used up by then.
TEST_F(EngineMisuseTest, AfterALeaseThatCannotBeHadTheStepCanBeEnded) {
  Make({.device_slots = 10});
  const TensorId big = Add({.name = "big",
                            .shape = {20 * kChunk},
                            .dtype = DType::kBF16,
                            .trainability = Trainability::kFrozen});
  const TensorId w = Add({.name = "w", .shape = {100}, .dtype = DType::kBF16});
  ASSERT_THAT(engine_->Seal(), IsOk());
  ASSERT_THAT(engine_->BeginStep({.optimizer = Hyper(1)}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(), IsOk());
  ASSERT_THAT(Contribute(engine_.get(), w, 1.0F), IsOk());
  const ParameterUse uses[] = {{w, ParameterAccess::kReadAndGradient},
                               {big, ParameterAccess::kRead}};
  EXPECT_THAT(engine_->Acquire(uses, "huge", Phase::kBackward),
              StatusIs(Code::kResourceExhausted, "'huge' waits for"));
  engine_->GradientReady(w);
  ASSERT_THAT(engine_->EndStep(), IsOk());
  ASSERT_THAT(engine_->Drain(), IsOk());
  EXPECT_THAT(Train(engine_.get(), {&w, 1}, 2, 1.0F), IsOk());
}

TEST_F(EngineMisuseTest, BadStepOptionsAreErrors) {
  Make({});
  Add({.name = "w", .shape = {100}, .dtype = DType::kBF16});
  for (const bool sealed : {false, true}) {
    SCOPED_TRACE(sealed ? "sealed" : "dry");
    EXPECT_THAT(engine_->EndStep(), StatusIs(Code::kFailedPrecondition));
    EXPECT_THAT(engine_->BeginMicroBatch(), StatusIs(Code::kFailedPrecondition));
    EXPECT_THAT(engine_->BeginStep({.micro_batches = 0, .optimizer = {}}),
                StatusIs(Code::kInvalidArgument, "micro-batches"));
    const double infinity = std::numeric_limits<double>::infinity();
    OptimizerStep hyper = Hyper(1);
    hyper.loss_scale = infinity;
    EXPECT_THAT(engine_->BeginStep({.optimizer = hyper}),
                StatusIs(Code::kInvalidArgument, "loss_scale"));
    hyper = Hyper(1);
    hyper.max_gradient_norm = -1.0;
    EXPECT_THAT(engine_->BeginStep({.optimizer = hyper}),
                StatusIs(Code::kInvalidArgument, "max_gradient_norm"));
    hyper = Hyper(0);
    EXPECT_THAT(engine_->BeginStep({.optimizer = hyper}), StatusIs(Code::kInvalidArgument, "step"));
    if (!sealed) {
      ASSERT_THAT(engine_->Seal(), IsOk());
    }
  }
  EXPECT_THAT(engine_->Seal(), StatusIs(Code::kFailedPrecondition, "twice"));
}

TEST_F(EngineMisuseTest, DrainWithNothingToDoReturnsAtOnceAndMayNotInterruptAStep) {
  Make({});
  const TensorId w = Add({.name = "w", .shape = {100}, .dtype = DType::kBF16});
  EXPECT_THAT(engine_->Drain(), IsOk());
  ASSERT_THAT(engine_->Seal(), IsOk());
  EXPECT_THAT(engine_->Drain(), IsOk());
  ASSERT_THAT(engine_->BeginStep({.optimizer = Hyper(1)}), IsOk());
  ASSERT_THAT(engine_->BeginMicroBatch(), IsOk());
  ASSERT_THAT(Contribute(engine_.get(), w, 1.0F), IsOk());
  engine_->GradientReady(w);
  // Complete, but undecided before EndStep: there is nothing to wait for.
  EXPECT_THAT(engine_->Drain(), IsOk());
  ASSERT_THAT(engine_->EndStep(), IsOk());
  EXPECT_THAT(engine_->Drain(), IsOk());
}

}  // namespace
}  // namespace gantry
