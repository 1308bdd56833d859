#include "benches/suite/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/strings.h"
#include "benches/suite/interleave.h"
#include "benches/suite/machine.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> RatioOf(double value, double bound, Better better) {
  if (!(value > 0.0) || !(bound > 0.0)) return std::nullopt;
  return better == Better::kHigher ? value / bound : bound / value;
}

// JSON has no infinities.
Json Number(const std::optional<double>& number) {
  return number.has_value() && std::isfinite(*number) ? Json(*number) : Json(nullptr);
}

Json RowJson(const BenchRow& row) {
  Json json = {{"name", row.name},
               {"value", Number(row.value)},
               {"unit", row.unit},
               {"bound", Number(row.bound)},
               {"ratio", Number(row.ratio)}};
  if (row.spread.has_value()) {
    json["low"] = Number(row.spread->low);
    json["high"] = Number(row.spread->high);
    json["rounds"] = row.spread->rounds;
  }
  for (const auto& [name, figure] : row.figures) json["figures"][name] = Number(figure);
  if (!row.note.empty()) json["note"] = row.note;
  return json;
}

// Four digits that count.
std::string Digits(const std::optional<double>& number) {
  if (!number.has_value()) return "-";
  const double size = std::abs(*number);
  const int decimals = size == 0.0 || size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  std::array<char, 64> buffer{};
  const bool tiny = size > 0.0 && size < 0.01;
  const bool huge = size >= 1e7;
  const int length = tiny || huge
                         ? std::snprintf(buffer.data(), buffer.size(), "%.3e", *number)
                         : std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, *number);
  return {buffer.data(), static_cast<size_t>(length)};
}

std::string Columns(std::string_view name, const std::array<std::string, 4>& cells,
                    std::string_view rest) {
  std::array<char, 200> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), "  %-34.*s %10s %-14s %10s %7s  ",
                                   static_cast<int>(name.size()), name.data(), cells[0].c_str(),
                                   cells[1].c_str(), cells[2].c_str(), cells[3].c_str());
  const auto shown = std::min(static_cast<size_t>(length), buffer.size() - 1);
  std::string line = StrCat(std::string_view(buffer.data(), shown), rest);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

BenchRow FigureRow(std::string_view name, double value, std::string_view unit) {
  BenchRow row;
  row.name = name;
  row.value = value;
  row.unit = unit;
  return row;
}

BenchRow LimitRow(const Limit& limit) {
  BenchRow row = FigureRow(limit.name, limit.value, limit.unit);
  row.bound = limit.bound;
  row.ratio = RatioOf(limit.value, limit.bound, limit.better);
  return row;
}

BenchRow ComparisonRow(const Comparison& comparison) {
  BenchRow row = FigureRow(comparison.name, Median(comparison.values), comparison.unit);
  if (comparison.bounds.empty()) return row;
  GANTRY_CHECK_EQ(comparison.values.size(), comparison.bounds.size());
  row.bound = Median(comparison.bounds);
  row.ratio = RatioOf(*row.value, *row.bound, comparison.better);
  std::vector<double> ratios;
  for (size_t i = 0; i < comparison.values.size(); ++i) {
    const auto ratio = RatioOf(comparison.values[i], comparison.bounds[i], comparison.better);
    if (ratio.has_value()) ratios.push_back(*ratio);
  }
  if (!ratios.empty()) {
    row.spread = Spread{.low = *std::min_element(ratios.begin(), ratios.end()),
                        .high = *std::max_element(ratios.begin(), ratios.end()),
                        .rounds = static_cast<int>(ratios.size())};
  }
  return row;
}

BenchRow SkippedRow(std::string_view name, std::string_view unit, std::string_view reason) {
  BenchRow row;
  row.name = name;
  row.unit = unit;
  row.note = reason;
  return row;
}

std::string BenchJson(const BenchReport& report) {
  Json machine = Json::object();
  for (const auto& [key, value] : report.machine.facts) {
    std::visit([&machine, &key = key](const auto& fact) { machine[key] = fact; }, value);
  }
  Json rows = Json::array();
  for (const BenchRow& row : report.rows) rows.push_back(RowJson(row));
  const Json json = {
      {"bench", report.bench}, {"machine", std::move(machine)}, {"rows", std::move(rows)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string BenchText(const BenchReport& report) {
  std::string text = StrCat("\n", report.bench, "\n\n");
  text += Columns("", {"value", "", "bound", "ratio"}, "ratios of single rounds; notes");
  for (const BenchRow& row : report.rows) {
    std::string rest;
    if (row.spread.has_value()) {
      rest = StrCat(Digits(row.spread->low), " to ", Digits(row.spread->high));
    }
    if (!row.note.empty()) rest += StrCat(rest.empty() ? "" : "; ", row.note);
    text += Columns(row.name, {Digits(row.value), row.unit, Digits(row.bound), Digits(row.ratio)},
                    rest);
  }
  text += "\n  on\n";
  for (const auto& [key, value] : report.machine.facts) {
    std::visit(
        [&text, &key = key](const auto& fact) { text += StrCat("  ", key, ": ", fact, "\n"); },
        value);
  }
  return text + "\n";
}

}  // namespace gantry
