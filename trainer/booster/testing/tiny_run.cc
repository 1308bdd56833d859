#include "trainer/booster/testing/tiny_run.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/parallel_for.h"
#include "base/strings.h"
#include "gemini/testing/memory_store.h"
#include "kernels/matmul.h"
#include "trainer/autograd/execution_context.h"
#include "trainer/booster/learning_rate.h"
#include "trainer/booster/metrics.h"
#include "trainer/booster/run_config.h"

namespace gantry {

RunConfig TinyConfig(const std::string& directory) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += StrCat("line ", i % 7, " of the text; ");
  const std::string path = directory + "/tiny.txt";
  PosixFileCalls files;
  GANTRY_CHECK_OK(WriteFileAtomically(files, path, std::as_bytes(std::span(text))));

  RunConfig config;
  config.model = {.layers = 2,
                  .width = 32,
                  .heads = 2,
                  .kv_heads = 1,
                  .head_dim = 16,
                  .ffn_width = 48,
                  .vocabulary = 256,
                  .max_sequence = 64,
                  .parameter_dtype = DType::kBF16};
  config.data.files = {path};
  config.data.sequence_length = 16;
  config.data.batch_size = 4;
  config.data.validation_fraction = 0.1;
  config.schedule = {.shape = ScheduleShape::kConstant, .peak = 3e-3, .warmup_steps = 2};
  config.train.steps = 6;
  config.train.eval_every = 0;
  config.train.threads = 1;
  return config;
}

TinyMachine::TinyMachine(const RunConfig& config) : compute_dtype_(ComputeDTypeOf(config.model)) {
  auto team = ThreadTeam::Create({.threads = ThreadsOf(config.train)});
  GANTRY_CHECK_OK(team.status());
  team_ = *std::move(team);
  auto matmul = MatMul::Create({});
  GANTRY_CHECK_OK(matmul.status());
  matmul_ = *std::move(matmul);
  auto store = MemoryStore::Create({.gradient_dtype = GradientDTypeOf(config),
                                    .team = team_.get(),
                                    .optimizer = config.optimizer.kind,
                                    .state_format = config.optimizer.state_format});
  GANTRY_CHECK_OK(store.status());
  store_ = *std::move(store);
}

ExecutionContext TinyMachine::context() {
  return {.store = store_.get(),
          .kernels = {.team = team_.get(), .matmul = matmul_.get()},
          .compute_dtype = compute_dtype_};
}

std::vector<double> RecordingObserver::losses() const {
  std::vector<double> losses;
  losses.reserve(steps.size());
  for (const StepMetrics& step : steps) losses.push_back(step.loss);
  return losses;
}

}  // namespace gantry
