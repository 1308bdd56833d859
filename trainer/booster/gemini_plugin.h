// The gemini strategy: everything that a model needs to run over the heterogeneous memory engine,
// from a MemoryConfig: thread team, device, engine, matrix multiplication. Other strategies come
// beside it.
//
// Owns what it creates; nothing from it outlives it. Thread-compatible.
#ifndef GANTRY_TRAINER_BOOSTER_GEMINI_PLUGIN_H_
#define GANTRY_TRAINER_BOOSTER_GEMINI_PLUGIN_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/trace_sink.h"
#include "chunk/optimizer_states.h"
#include "device/device.h"
#include "gemini/engine.h"
#include "kernels/kernel_context.h"
#include "kernels/matmul.h"
#include "trainer/autograd/execution_context.h"
#include "trainer/booster/run_config.h"

namespace gantry {

class GeminiPlugin {
 public:
  struct Options {
    const MemoryConfig* memory;  // read during Create only
    int threads;
    DType compute_dtype;
    DType gradient_dtype;
    OptimizerKind optimizer = OptimizerKind::kAdamW;
    StateFormat state_format = StateFormat::kF32;
    // Outlive the plugin.
    Clock* clock;
    Logger* logger;
    FileCalls* files;
    TraceSink* trace_sink = nullptr;  // null: off
  };
  // Says so, in one line, where dead runs left their directories. Errors: those of the parts, among
  // them one line for a spill directory that is missing, full or not writable.
  static absl::StatusOr<std::unique_ptr<GeminiPlugin>> Create(const Options& options);

  Engine& engine() { return *engine_; }
  ExecutionContext context() {
    return {.store = engine_.get(),
            .kernels = {.team = team_.get(), .matmul = matmul_.get()},
            .compute_dtype = compute_dtype_};
  }

 private:
  GeminiPlugin() = default;

  // In the order of creation: the engine goes first.
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<MatMul> matmul_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  DType compute_dtype_ = DType::kBF16;
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_BOOSTER_GEMINI_PLUGIN_H_
