#include "trainer/booster/gemini_plugin.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/host/host_device.h"
#include "gemini/engine.h"
#include "kernels/matmul.h"
#include "nvme/run_directory.h"
#include "trainer/booster/run_config.h"

namespace gantry {
namespace {

// Names the folders where dead runs left their directories, and what removes them.
void TellOfDeadRuns(const GeminiPlugin::Options& options) {
  int64_t dead = 0;
  std::string folders;
  for (const std::string& folder : options.memory->spill_dirs) {
    const absl::StatusOr<std::vector<StaleRun>> runs =
        RunDirectory::FindStale(*options.files, *options.clock, folder);
    // A folder that cannot be used is an error when this run makes its own directory there.
    if (!runs.ok()) continue;
    const int64_t here = std::count_if(runs->begin(), runs->end(), [](const StaleRun& run) {
      return run.kind == StaleRun::Kind::kDead;
    });
    dead += here;
    if (here > 0) folders += StrCat(" ", folder);
  }
  if (dead > 0) {
    options.logger->Info(StrCat("runs that died left ", dead,
                                dead == 1 ? " directory" : " directories", " behind: `gantry clean",
                                folders, "` removes ", dead == 1 ? "it" : "them"));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<GeminiPlugin>> GeminiPlugin::Create(const Options& options) {
  TellOfDeadRuns(options);
  auto plugin = std::unique_ptr<GeminiPlugin>(new GeminiPlugin());
  const MemoryConfig& memory = *options.memory;
  plugin->compute_dtype_ = options.compute_dtype;
  GANTRY_ASSIGN_OR_RETURN(plugin->team_, ThreadTeam::Create({.threads = options.threads}));
  GANTRY_ASSIGN_OR_RETURN(plugin->matmul_, MatMul::Create({}));
  GANTRY_ASSIGN_OR_RETURN(
      plugin->device_,
      CreateHostDevice({.topology = memory.device,
                        .bandwidth_bytes_per_second = memory.lane_bandwidth.count(),
                        .latency_nanoseconds = memory.lane_latency,
                        .clock = options.clock}));
  GANTRY_ASSIGN_OR_RETURN(plugin->engine_,
                          Engine::Create({.device = plugin->device_.get(),
                                          .team = plugin->team_.get(),
                                          .clock = options.clock,
                                          .logger = options.logger,
                                          .files = options.files,
                                          .trace_sink = options.trace_sink,
                                          .device_memory = memory.device_memory,
                                          .host_memory = memory.host_memory,
                                          .spill_directories = memory.spill_dirs,
                                          .spill_shares = memory.spill_shares,
                                          .verification = memory.verification,
                                          .io = memory.io,
                                          .policy = memory.policy,
                                          .static_fractions = memory.static_fractions,
                                          .look_ahead = memory.look_ahead,
                                          .chunk_elements = memory.chunk_elements,
                                          .gradient_dtype = options.gradient_dtype,
                                          .optimizer = options.optimizer,
                                          .state_format = options.state_format,
                                          .update_order = memory.update_order}));
  return plugin;
}

}  // namespace gantry
