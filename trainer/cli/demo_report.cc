#include "trainer/cli/demo_report.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/strings.h"
#include "device/slot_pool.h"
#include "gemini/engine.h"
#include "offload/transfer_engine.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

Bytes BudgetOf(const PoolUsage& usage) { return usage.slot_bytes * usage.slots_total; }
Bytes PeakOf(const PoolUsage& usage) { return usage.slot_bytes * usage.slots_peak; }

Bytes LaneBytes(const EngineStatistics& statistics, TransferLane lane) {
  return Bytes(statistics.lanes[static_cast<size_t>(lane)].bytes);
}

std::string Fixed(double value, int digits) {
  std::array<char, 64> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, value);
  return {buffer.data(), static_cast<size_t>(length)};
}

std::string Row(std::string_view name, std::string_view budgeted, std::string_view resident) {
  std::array<char, 160> buffer{};
  const int length =
      std::snprintf(buffer.data(), buffer.size(), "  %-24.*s %22.*s %22.*s\n",
                    static_cast<int>(name.size()), name.data(), static_cast<int>(budgeted.size()),
                    budgeted.data(), static_cast<int>(resident.size()), resident.data());
  return {buffer.data(), static_cast<size_t>(length)};
}

std::string PeakAndBudget(const PoolUsage& usage) {
  return StrCat(PeakOf(usage), " of ", BudgetOf(usage));
}

std::string LossText(const DemoRun& run) {
  return StrCat(Fixed(run.losses.front(), 4), " -> ", Fixed(run.losses.back(), 4));
}

// Bytes of text that a terminal can show.
std::string Printable(std::string_view text) {
  std::string printable;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    printable += (byte >= 0x20 && byte < 0x7f) || c == '\n' ? c : '.';
  }
  return printable;
}

std::string FileText(const EngineStatistics& statistics) {
  if (statistics.file_bytes() == Bytes::Zero()) return "none";
  return StrCat(LaneBytes(statistics, TransferLane::kFileRead), " / ",
                LaneBytes(statistics, TransferLane::kFileWrite));
}

}  // namespace

bool DemoResult::bitwise_equal() const {
  if (budgeted.losses.size() != resident.losses.size()) return false;
  for (size_t i = 0; i < budgeted.losses.size(); ++i) {
    if (std::bit_cast<uint64_t>(budgeted.losses[i]) !=
        std::bit_cast<uint64_t>(resident.losses[i])) {
      return false;
    }
  }
  return budgeted.parameter_hash == resident.parameter_hash;
}

double DemoResult::practicality() const {
  if (resident.tokens_per_second == 0.0) return 0.0;
  return budgeted.tokens_per_second / resident.tokens_per_second;
}

std::string DemoJson(const DemoResult& result) {
  const DemoRun& run = result.budgeted;
  const Json json = {
      {"model_parameters", result.parameters},
      {"model_state_bytes", run.budget.model_state.count()},
      {"device_budget_bytes", BudgetOf(run.statistics.device).count()},
      {"device_peak_bytes", PeakOf(run.statistics.device).count()},
      {"host_budget_bytes", BudgetOf(run.statistics.host).count()},
      {"host_peak_bytes", PeakOf(run.statistics.host).count()},
      {"nvme_read_bytes", LaneBytes(run.statistics, TransferLane::kFileRead).count()},
      {"nvme_written_bytes", LaneBytes(run.statistics, TransferLane::kFileWrite).count()},
      {"steps", std::ssize(run.losses)},
      {"loss_first", run.losses.front()},
      {"loss_last", run.losses.back()},
      {"tokens_per_second", run.tokens_per_second},
      {"resident_tokens_per_second", result.resident.tokens_per_second},
      {"practicality", result.practicality()},
      {"bitwise_equal", result.bitwise_equal()},
      {"stall_seconds", run.stall_seconds},
      {"io_backend", run.statistics.io_backend()},
      {"left_behind", result.left_behind}};
  return json.dump(2) + "\n";
}

std::string DemoTable(const DemoResult& result) {
  const DemoRun& a = result.budgeted;
  const DemoRun& b = result.resident;
  std::string text =
      StrCat("\n", Fixed(static_cast<double>(result.parameters) * 1e-6, 1), " million parameters, ",
             a.budget.model_state, " of training state, padding ",
             Fixed(100.0 * a.statistics.padding_fraction, 3), "%, ", a.statistics.chunk_count,
             " chunks of ", a.statistics.chunk_elements, " elements\n\n");
  text += Row("", "under the budget", "all resident");
  text += Row("device, peak of budget", PeakAndBudget(a.statistics.device),
              PeakAndBudget(b.statistics.device));
  text += Row("host, peak of budget", PeakAndBudget(a.statistics.host),
              PeakAndBudget(b.statistics.host));
  text += Row("files, read / written", FileText(a.statistics), FileText(b.statistics));
  text += Row("file access", a.statistics.io_backend(), b.statistics.io_backend());
  text += Row("steps", StrCat(a.losses.size()), StrCat(b.losses.size()));
  text += Row("loss", LossText(a), LossText(b));
  text += Row("tokens/s", Fixed(a.tokens_per_second, 0), Fixed(b.tokens_per_second, 0));
  text += Row("waiting for memory", StrCat(Fixed(a.stall_seconds, 1), " s"),
              StrCat(Fixed(b.stall_seconds, 1), " s"));
  text += StrCat("\n  speed under the budget: ", Fixed(100.0 * result.practicality(), 0),
                 "% of all resident\n  losses and parameters: ",
                 result.bitwise_equal() ? "the same to the bit" : "DIFFERENT", "\n\n");
  text += StrCat("A sample of what it writes after ", a.losses.size(), " steps:\n",
                 Printable(result.sample), "\n\n");
  return text;
}

}  // namespace gantry
