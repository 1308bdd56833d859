// Budgets: the least one works and gives the same bits, one slot less fails at once with a message
// that names what needs how much; spill directories that do not work; misuse; evicted addresses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
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
#include "gemini/testing/toy_model.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kChunk = kChunkGranularityElements;
constexpr int64_t kSlot = 2 * kChunk;

struct Budgets {
  DeviceTopology topology = DeviceTopology::kDiscrete;
  int64_t device_bytes = 400 * kSlot;
  int64_t host_bytes = 400 * kSlot;
  std::string spill = {};
  std::string policy = "auto";
  int64_t chunk_elements = kChunk;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  UpdateOrder order = UpdateOrder::kExact;
};

class EngineBudgetTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Engine>> Make(const Budgets& budgets) {
    // Kept to the end of the test: an earlier engine may still be alive.
    GANTRY_ASSIGN_OR_RETURN(auto team, ThreadTeam::Create({.threads = 2}));
    teams_.push_back(std::move(team));
    GANTRY_ASSIGN_OR_RETURN(auto device,
                            CreateHostDevice({.topology = budgets.topology, .clock = &clock_}));
    devices_.push_back(std::move(device));
    return Engine::Create({.device = devices_.back().get(),
                           .team = teams_.back().get(),
                           .clock = &clock_,
                           .logger = &logger_,
                           .files = &files_,
                           .device_memory = Bytes(budgets.device_bytes),
                           .host_memory = Bytes(budgets.host_bytes),
                           .spill_directories = budgets.spill.empty()
                                                    ? std::vector<std::string>()
                                                    : std::vector<std::string>{budgets.spill},
                           .policy = budgets.policy,
                           .static_fractions = {},
                           .chunk_elements = budgets.chunk_elements,
                           .optimizer = budgets.optimizer,
                           .update_order = budgets.order});
  }

  static OptimizerStep Hyper(int64_t step) {
    return {.learning_rate = 1e-2, .step = step, .max_gradient_norm = 1.0};
  }

  // Seals after a dry run and trains three steps; the hash of all parameters.
  absl::StatusOr<uint64_t> Train(Engine* engine) {
    ToyModel model(engine, {});
    GANTRY_RETURN_IF_ERROR(model.Register());
    GANTRY_RETURN_IF_ERROR(model.TrainStep(Hyper(1)).status());
    GANTRY_RETURN_IF_ERROR(engine->Seal());
    GANTRY_RETURN_IF_ERROR(model.Initialize());
    for (int64_t step = 1; step <= 3; ++step) {
      GANTRY_RETURN_IF_ERROR(model.TrainStep(Hyper(step)).status());
    }
    return model.Hash(StateKind::kParameter);
  }

  MonotonicClock clock_;
  MemoryLogger logger_;
  PosixFileCalls files_;
  std::vector<std::unique_ptr<ThreadTeam>> teams_;
  std::vector<std::unique_ptr<Device>> devices_;
};

TEST_F(EngineBudgetTest, TheLeastBudgetsWorkAndOneSlotLessFailsAtOnce) {
  for (const DeviceTopology topology : {DeviceTopology::kDiscrete, DeviceTopology::kUnified}) {
    SCOPED_TRACE(topology == DeviceTopology::kUnified ? "unified" : "discrete");
    auto ample = Make({.topology = topology, .spill = ::testing::TempDir()});
    ASSERT_THAT(ample, IsOk());
    auto expected = Train(ample->get());
    ASSERT_THAT(expected, IsOk());
    const BudgetReport report = (*ample)->budget_report();
    ample->reset();

    Budgets least{.topology = topology,
                  .device_bytes = report.least_device.count(),
                  .host_bytes = report.least_host.count(),
                  .spill = ::testing::TempDir()};
    {
      auto engine = Make(least);
      ASSERT_THAT(engine, IsOk());
      auto actual = Train(engine->get());
      ASSERT_THAT(actual, IsOk());
      EXPECT_EQ(*actual, *expected);
      EXPECT_LE((*engine)->statistics().device.slots_peak * kSlot, least.device_bytes);
    }
    Budgets less = least;
    less.device_bytes -= kSlot;
    auto engine = Make(less);
    ASSERT_THAT(engine, IsOk());
    const absl::Status failed = Train(engine->get()).status();
    EXPECT_THAT(failed, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("the least device budget that works")));
    EXPECT_THAT(failed.ToString(), HasSubstr(StrCat(report.least_device.count(), " bytes")));
    if (topology == DeviceTopology::kUnified) continue;
    less = least;
    less.host_bytes -= kSlot;
    engine = Make(less);
    ASSERT_THAT(engine, IsOk());
    EXPECT_THAT(Train(engine->get()).status(),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("the least host budget that works")));
  }
}

TEST_F(EngineBudgetTest, WithoutFilesTheLeastBudgetsWorkToo) {
  auto ample = Make({});
  ASSERT_THAT(ample, IsOk());
  auto expected = Train(ample->get());
  ASSERT_THAT(expected, IsOk());
  const BudgetReport report = (*ample)->budget_report();
  auto engine =
      Make({.device_bytes = report.least_device.count(), .host_bytes = report.least_host.count()});
  ASSERT_THAT(engine, IsOk());
  auto actual = Train(engine->get());
  ASSERT_THAT(actual, IsOk());
  EXPECT_EQ(*actual, *expected);
  engine = Make({.device_bytes = report.least_device.count(),
                 .host_bytes = report.least_host.count() - kSlot});
  ASSERT_THAT(engine, IsOk());
  EXPECT_THAT(Train(engine->get()).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("without a spill")));
}

TEST_F(EngineBudgetTest, TheOperatorWithTheLargestNeedIsNamed) {
  auto engine = Make({.device_bytes = 4 * kSlot, .spill = ::testing::TempDir()});
  ASSERT_THAT(engine, IsOk());
  EXPECT_THAT(Train(engine->get()).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("operator 'layer ")));
}

TEST_F(EngineBudgetTest, AutomaticChunkSizeShrinksUntilTheBudgetFits) {
  auto engine = Make({.device_bytes = 1'600'000,
                      .host_bytes = 2'000'000,
                      .spill = ::testing::TempDir(),
                      .chunk_elements = 0});
  ASSERT_THAT(engine, IsOk());
  ASSERT_THAT(Train(engine->get()), IsOk());
  EXPECT_LE((*engine)->statistics().chunk_elements, 4 * kChunk);
}

TEST_F(EngineBudgetTest, WithoutADryRunAnImpossibleLeaseIsAnErrorNotAHang) {
  auto engine = Make({.topology = DeviceTopology::kUnified,
                      .device_bytes = 10 * kSlot,
                      .spill = ::testing::TempDir()});
  ASSERT_THAT(engine, IsOk());
  auto big =
      (*engine)->Register({.name = "big", .shape = {20 * kChunk}, .dtype = DType::kBF16}, {});
  ASSERT_THAT(big, IsOk());
  ASSERT_THAT((*engine)->Seal(), IsOk());
  ASSERT_THAT((*engine)->BeginStep({.optimizer = {}}), IsOk());
  ASSERT_THAT((*engine)->BeginMicroBatch(), IsOk());
  const ParameterUse use{*big, ParameterAccess::kRead};
  EXPECT_THAT((*engine)->Acquire({&use, 1}, "huge", Phase::kForward).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("'huge' waits for")));
}

TEST_F(EngineBudgetTest, ZeroBudgetsAndUnknownPoliciesAreRefused) {
  EXPECT_THAT(Make({.device_bytes = 0}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("device budget")));
  EXPECT_THAT(Make({.host_bytes = 0}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("host budget")));
  EXPECT_THAT(Make({.policy = "atuo"}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("auto")));
}

TEST_F(EngineBudgetTest, AdafactorCannotSpeculate) {
  const Budgets budgets{.spill = ::testing::TempDir(), .optimizer = OptimizerKind::kAdafactor};
  EXPECT_THAT(Make(budgets), IsOk());
  Budgets speculative = budgets;
  speculative.order = UpdateOrder::kSpeculative;
  EXPECT_THAT(Make(speculative).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("can only be exact")));
}

TEST_F(EngineBudgetTest, ASpillDirectoryThatIsMissingOrAFileIsNamed) {
  const std::string missing = ::testing::TempDir() + "/no-such-folder";
  auto engine = Make({.spill = missing});
  ASSERT_THAT(engine, IsOk());
  EXPECT_THAT(Train(engine->get()).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(missing)));
}

TEST_F(EngineBudgetTest, ADriveWithoutTheSpaceFailsBeforeTrainingAndLeavesNothing) {
  const std::string spill = ::testing::TempDir() + "/limited";
  std::filesystem::create_directories(spill);
  const auto run = [&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    absl::Status status;
    {
      auto engine = Make({.spill = spill});
      status = engine.ok() ? Train(engine->get()).status() : engine.status();
    }
    // stderr is a pipe here, which the limit does not concern.
    const std::string text = status.ToString();
    static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
    _exit(absl::IsResourceExhausted(status) ? 7 : 8);
  };
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(7), "limited");
  EXPECT_TRUE(std::filesystem::is_empty(spill));
}

TEST_F(EngineBudgetTest, NothingIsLeftInTheSpillDirectory) {
  const std::string spill = ::testing::TempDir() + "/spill";
  std::filesystem::create_directories(spill);
  auto engine = Make({.device_bytes = 20 * kSlot, .host_bytes = 14 * kSlot, .spill = spill});
  ASSERT_THAT(engine, IsOk());
  ASSERT_THAT(Train(engine->get()), IsOk());
  EXPECT_FALSE(std::filesystem::is_empty(spill));
  engine->reset();
  EXPECT_TRUE(std::filesystem::is_empty(spill));
}

// Before Seal, of the dry step made last; and it leaves no trace.
TEST_F(EngineBudgetTest, MovementTimeComparesDrySteps) {
  auto expected_engine = Make({});
  ASSERT_THAT(expected_engine, IsOk());
  const auto expected = Train(expected_engine->get());
  ASSERT_THAT(expected, IsOk());

  auto engine = Make({.device_bytes = 12 * kSlot});
  ASSERT_THAT(engine, IsOk());
  ToyModel model(engine->get(), {});
  ASSERT_THAT(model.Register(), IsOk());
  EXPECT_THAT((*engine)->MovementTime("train"),
              StatusIs(absl::StatusCode::kInvalidArgument, "no dry run of the step 'train'"));
  ASSERT_THAT(model.TrainStep(Hyper(1)), IsOk());
  const auto time = (*engine)->MovementTime("train");
  ASSERT_THAT(time, IsOk());
  EXPECT_GT(*time, 0);
  {
    // The same step twice as often moves more.
    auto other = Make({.device_bytes = 12 * kSlot});
    ToyModel longer(other->get(), {.micro_batches = 2});
    ASSERT_THAT(longer.Register(), IsOk());
    ASSERT_THAT(longer.TrainStep(Hyper(1)), IsOk());
    const auto longer_time = (*other)->MovementTime("train");
    ASSERT_THAT(longer_time, IsOk());
    EXPECT_GT(*longer_time, *time);
  }
  EXPECT_EQ(*(*engine)->MovementTime("train"), *time);
  ASSERT_THAT((*engine)->Seal(), IsOk());
  ASSERT_THAT(model.Initialize(), IsOk());
  for (int64_t step = 1; step <= 3; ++step) ASSERT_THAT(model.TrainStep(Hyper(step)), IsOk());
  EXPECT_EQ(*model.Hash(StateKind::kParameter), *expected);
  EXPECT_DEATH(static_cast<void>((*engine)->MovementTime("train")), "after Seal");

  auto small = Make({.device_bytes = 3 * kSlot});
  ToyModel does_not_fit(small->get(), {});
  ASSERT_THAT(does_not_fit.Register(), IsOk());
  ASSERT_THAT(does_not_fit.TrainStep(Hyper(1)), IsOk());
  EXPECT_THAT((*small)->MovementTime("train"), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(EngineBudgetTest, UsingAParameterAfterItsGradientWasDeclaredReadyIsAnError) {
  auto engine = Make({});
  ASSERT_THAT(engine, IsOk());
  auto w = (*engine)->Register({.name = "w", .shape = {100}, .dtype = DType::kBF16}, {});
  ASSERT_THAT(w, IsOk());
  ASSERT_THAT((*engine)->Seal(), IsOk());
  ASSERT_THAT((*engine)->BeginStep({.optimizer = Hyper(1)}), IsOk());
  EXPECT_THAT((*engine)->BeginStep({.optimizer = Hyper(1)}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_THAT((*engine)->BeginMicroBatch(), IsOk());
  const ParameterUse use{*w, ParameterAccess::kGradient};
  {
    auto lease = (*engine)->Acquire({&use, 1}, "backward", Phase::kBackward);
    ASSERT_THAT(lease, IsOk());
    for (int64_t i = 0; i < 100; ++i) {
      StoreElement((*lease)[0].gradient_dtype, (*lease)[0].gradient, i, 1.0f);
    }
  }
  (*engine)->GradientReady(*w);
  EXPECT_THAT((*engine)->Acquire({&use, 1}, "late", Phase::kBackward).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("'late' uses 'w'")));
  auto result = (*engine)->EndStep();
  ASSERT_THAT(result, IsOk());
  EXPECT_DOUBLE_EQ(result->gradient_norm, 10.0);
  EXPECT_NEAR(result->clip_factor, 0.1, 1e-6);
  std::byte value[4];
  EXPECT_THAT((*engine)->ReadState(StateKind::kGradient, *w, 0, value),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT((*engine)->ReadState(StateKind::kParameter, *w, 99, value),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("which has 100")));
}

// A parameter's address is fixed for the life of the run, and is a fault while it is evicted.
TEST_F(EngineBudgetTest, TouchingAnEvictedParameterFaults) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto engine = Make({.topology = DeviceTopology::kUnified,
                      .device_bytes = 12 * kSlot,
                      .spill = ::testing::TempDir()});
  ASSERT_THAT(engine, IsOk());
  std::vector<TensorId> tensors;
  for (int i = 0; i < 30; ++i) {
    auto id =
        (*engine)->Register({.name = StrCat("w", i), .shape = {kChunk}, .dtype = DType::kBF16}, {});
    ASSERT_THAT(id, IsOk());
    tensors.push_back(*id);
  }
  ASSERT_THAT((*engine)->Seal(), IsOk());
  ASSERT_THAT((*engine)->BeginStep({.optimizer = {}}), IsOk());
  ASSERT_THAT((*engine)->BeginMicroBatch(), IsOk());
  const auto address_of = [&](TensorId tensor) {
    const ParameterUse use{tensor, ParameterAccess::kRead};
    auto lease = (*engine)->Acquire({&use, 1}, "read", Phase::kForward);
    GANTRY_CHECK(lease.ok()) << lease.status().ToString();
    static_cast<void>(static_cast<volatile const std::byte*>((*lease)[0].parameter)[0]);
    return (*lease)[0].parameter;
  };
  const std::byte* first = address_of(tensors[0]);
  for (const TensorId tensor : tensors) address_of(tensor);
  EXPECT_DEATH(static_cast<void>(static_cast<volatile const std::byte*>(first)[0]), "");
  EXPECT_EQ(address_of(tensors[0]), first);
}

}  // namespace
}  // namespace gantry
