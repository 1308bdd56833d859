#include "trainer/cli/run_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/tier.h"
#include "trainer/booster/metrics.h"

namespace gantry {
namespace {

constexpr size_t kNameWidth = 18;
constexpr size_t kCellWidth = 12;

std::string Padded(std::string text, size_t width) {
  text.insert(0, width - std::min(width, text.size()), ' ');
  return text;
}

std::string Cell(double value) {
  std::array<char, 32> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), "%.5g", value);
  return Padded({buffer.data(), static_cast<size_t>(length)}, kCellWidth);
}

std::string NameCell(std::string_view name) {
  std::string cell(name);
  cell.resize(std::max(cell.size(), kNameWidth), ' ');
  return cell;
}

}  // namespace

void RunTable::Add(std::string_view name, double value) {
  auto row = std::find_if(rows_.begin(), rows_.end(),
                          [&](const Row& candidate) { return candidate.name == name; });
  if (row == rows_.end()) {
    row = rows_.insert(rows_.end(), {.name = name,
                                     .first = value,
                                     .last = value,
                                     .lowest = value,
                                     .highest = value,
                                     .sum = 0.0,
                                     .finite = 0});
  }
  row->last = value;
  if (!std::isfinite(value)) return;
  row->lowest = row->finite == 0 ? value : std::min(row->lowest, value);
  row->highest = row->finite == 0 ? value : std::max(row->highest, value);
  row->sum += value;
  ++row->finite;
}

void RunTable::OnStart(const RunDescription&) { rows_.clear(); }

void RunTable::OnStep(const StepMetrics& metrics) {
  Add("loss", metrics.loss);
  Add("gradient norm", metrics.gradient_norm);
  Add("learning rate", metrics.learning_rate);
  if (metrics.loss_scale.has_value()) Add("loss scale", *metrics.loss_scale);
  Add("tokens/s", metrics.tokens_per_second());
  Add("waiting, %", 100.0 * metrics.stall_share());
  constexpr std::array<std::string_view, kTierCount> kNames = {"device, MiB", "host, MiB",
                                                               "files, MiB"};
  for (size_t tier = 0; tier < kNames.size(); ++tier) {
    const Bytes bytes = metrics.tier_bytes[tier];
    if (bytes == Bytes::Zero()) continue;
    Add(kNames[tier], static_cast<double>(bytes.count()) / static_cast<double>((1_MiB).count()));
  }
}

void RunTable::OnEvaluation(const EvaluationMetrics& metrics) {
  Add("validation loss", metrics.loss);
  Add("perplexity", metrics.perplexity());
}

void RunTable::OnCheckpoint(const CheckpointMetrics&) {}

std::string RunTable::Text() const {
  if (rows_.empty()) return "";
  std::string text = NameCell("");
  for (const char* column : {"first", "last", "lowest", "highest", "mean"}) {
    text += Padded(column, kCellWidth);
  }
  text += '\n';
  for (const Row& row : rows_) {
    text += NameCell(row.name) + Cell(row.first) + Cell(row.last);
    if (row.finite > 0) {
      text +=
          Cell(row.lowest) + Cell(row.highest) + Cell(row.sum / static_cast<double>(row.finite));
    }
    text += '\n';
  }
  return text;
}

}  // namespace gantry
