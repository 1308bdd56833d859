#include "placement_policy/trace_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

constexpr std::string_view kFormatName = "gantry-trace";
constexpr int kDepthMax = 8;
constexpr int64_t kValuesMax = int64_t{1} << 24;
constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

constexpr std::array<std::string_view, 9> kKeys = {"format", "version",     "slot_bytes",
                                                   "tokens", "names",       "block_slots",
                                                   "chunks", "activations", "moments"};
constexpr std::array<std::string_view, 5> kChunkFields = {"parameter", "gradient", "states[0]",
                                                          "states[1]", "states[2]"};
constexpr std::array<std::string_view, 4> kActivationFields = {"created", "used", "slots",
                                                               "recompute"};
constexpr std::array<std::string_view, 7> kMomentFields = {
    "phase", "name", "compute", "activation_slots", "micro_batch", "layer", "uses"};
// By the enumerators' numbers.
constexpr std::array<std::string_view, 3> kPhaseNames = {"f", "b", "o"};
constexpr std::array<std::string_view, 4> kAccessNames = {"r", "w", "c", "x"};

// ---- Writing

// A list with `per_line` of its elements in a line.
template <typename List, typename Write>
void AppendList(std::string& text, const List& list, size_t per_line, const Write& write) {
  text += '[';
  size_t index = 0;
  for (const auto& element : list) {
    if (index > 0) text += ',';
    if (index++ % per_line == 0) text += "\n ";
    write(element);
  }
  text += list.empty() ? "]" : "\n]";
}

void AppendNumbers(std::string& text, std::span<const int64_t> numbers) {
  text += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(numbers[i]);
  }
  text += ']';
}

void AppendMoment(std::string& text, const Trace& trace, const Moment& moment) {
  text += "[\"";
  text += kPhaseNames[static_cast<size_t>(moment.phase)];
  text += '"';
  for (const int64_t number : {int64_t{moment.name}, moment.compute, moment.activation_slots,
                               int64_t{moment.micro_batch}, int64_t{moment.layer}}) {
    text += ',';
    text += std::to_string(number);
  }
  text += ",[";
  bool first = true;
  for (const BlockUse& use : trace.uses_of(moment)) {
    if (!std::exchange(first, false)) text += ',';
    text += std::to_string(use.block);
    text += ",\"";
    text += kAccessNames[static_cast<size_t>(use.access)];
    text += '"';
  }
  text += "]]";
}

// ---- Reading. Ranges that need only the value are checked here; Trace::Validate does the others.

constexpr IntegerRange kIndexRange = {.least = 0, .most = kInt32Max};
constexpr IntegerRange kIndexOrNone = {.least = -1, .most = kInt32Max};

absl::StatusOr<int32_t> Index(const JsonNode& node, IntegerRange range) {
  GANTRY_ASSIGN_OR_RETURN(const int64_t number, node.Integer(range));
  return static_cast<int32_t>(number);
}

// The place of a text in `names`.
absl::StatusOr<size_t> Choice(const JsonNode& node, std::span<const std::string_view> names) {
  GANTRY_ASSIGN_OR_RETURN(const std::string_view text, node.Text());
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  std::string all;
  for (const std::string_view name : names) all += StrCat(all.empty() ? "" : ", ", name);
  return node.Error(StrCat("none of ", all));
}

// Calls `read` with every element of the list behind `key`.
template <typename Read>
absl::Status ForEach(const JsonNode& root, std::string_view key, const Read& read) {
  GANTRY_ASSIGN_OR_RETURN(const JsonNode list, root.Member(key));
  GANTRY_ASSIGN_OR_RETURN(const size_t size, list.ListSize());
  for (size_t i = 0; i < size; ++i) GANTRY_RETURN_IF_ERROR(read(list.At(i)));
  return absl::OkStatus();
}

absl::Status ReadChunk(const JsonNode& row, Trace& trace) {
  GANTRY_RETURN_IF_ERROR(row.ExpectListOf(kChunkFields.size()));
  TraceChunk& chunk = trace.chunks.emplace_back();
  const std::array<int32_t*, kChunkFields.size()> fields = {
      &chunk.parameter, &chunk.gradient, &chunk.states[0], &chunk.states[1], &chunk.states[2]};
  for (size_t i = 0; i < fields.size(); ++i) {
    GANTRY_ASSIGN_OR_RETURN(*fields[i], Index(row.Field(i, kChunkFields[i]), kIndexOrNone));
  }
  return absl::OkStatus();
}

absl::Status ReadActivation(const JsonNode& row, Trace& trace) {
  GANTRY_RETURN_IF_ERROR(row.ExpectListOf(kActivationFields.size()));
  SavedActivation& saved = trace.activations.emplace_back();
  GANTRY_ASSIGN_OR_RETURN(saved.created, Index(row.Field(0, kActivationFields[0]), kIndexRange));
  GANTRY_ASSIGN_OR_RETURN(saved.used, Index(row.Field(1, kActivationFields[1]), kIndexRange));
  GANTRY_ASSIGN_OR_RETURN(saved.slots, row.Field(2, kActivationFields[2]).Integer({}));
  GANTRY_ASSIGN_OR_RETURN(saved.recompute, row.Field(3, kActivationFields[3]).Integer({}));
  return absl::OkStatus();
}

// Blocks and accesses by turns.
absl::Status ReadUses(const JsonNode& list, Trace& trace) {
  GANTRY_ASSIGN_OR_RETURN(const size_t size, list.ListSize());
  if (size % 2 != 0) return list.Error("but blocks and accesses come in pairs");
  for (size_t i = 0; i < size; i += 2) {
    GANTRY_ASSIGN_OR_RETURN(const int32_t block, Index(list.At(i), kIndexRange));
    GANTRY_ASSIGN_OR_RETURN(const size_t access, Choice(list.At(i + 1), kAccessNames));
    trace.uses.push_back({.block = block, .access = static_cast<BlockAccess>(access)});
  }
  return absl::OkStatus();
}

absl::Status ReadMoment(const JsonNode& row, Trace& trace) {
  GANTRY_RETURN_IF_ERROR(row.ExpectListOf(kMomentFields.size()));
  const auto field = [&row](size_t i) { return row.Field(i, kMomentFields[i]); };
  Moment moment{};
  GANTRY_ASSIGN_OR_RETURN(const size_t phase, Choice(field(0), kPhaseNames));
  moment.phase = static_cast<Phase>(phase);
  GANTRY_ASSIGN_OR_RETURN(moment.name, Index(field(1), kIndexRange));
  GANTRY_ASSIGN_OR_RETURN(moment.compute, field(2).Integer({}));
  GANTRY_ASSIGN_OR_RETURN(moment.activation_slots, field(3).Integer({}));
  GANTRY_ASSIGN_OR_RETURN(moment.micro_batch, Index(field(4), kIndexRange));
  GANTRY_ASSIGN_OR_RETURN(moment.layer, Index(field(5), kIndexOrNone));
  moment.first_use = static_cast<int64_t>(trace.uses.size());
  GANTRY_RETURN_IF_ERROR(ReadUses(field(6), trace));
  moment.use_count = static_cast<int64_t>(trace.uses.size()) - moment.first_use;
  trace.moments.push_back(moment);
  return absl::OkStatus();
}

absl::Status ReadLists(const JsonNode& root, Trace& trace) {
  GANTRY_RETURN_IF_ERROR(ForEach(root, "names", [&](const JsonNode& node) -> absl::Status {
    GANTRY_ASSIGN_OR_RETURN(const std::string_view name, node.Text());
    trace.names.emplace_back(name);
    return absl::OkStatus();
  }));
  GANTRY_RETURN_IF_ERROR(ForEach(root, "block_slots", [&](const JsonNode& node) -> absl::Status {
    GANTRY_ASSIGN_OR_RETURN(const int64_t slots, node.Integer({.least = 0, .most = 2}));
    trace.block_slots.push_back(static_cast<int8_t>(slots));
    return absl::OkStatus();
  }));
  GANTRY_RETURN_IF_ERROR(
      ForEach(root, "chunks", [&](const JsonNode& row) { return ReadChunk(row, trace); }));
  GANTRY_RETURN_IF_ERROR(ForEach(root, "activations",
                                 [&](const JsonNode& row) { return ReadActivation(row, trace); }));
  return ForEach(root, "moments", [&](const JsonNode& row) { return ReadMoment(row, trace); });
}

}  // namespace

std::string FormatTrace(const Trace& trace, const TraceFileOptions& options) {
  GANTRY_CHECK_OK(trace.Validate());
  std::string text = StrCat("{\"format\": \"", kFormatName, "\", \"version\": ", kTraceFileVersion,
                            ",\n\"slot_bytes\": ", trace.slot_bytes.count(),
                            ", \"tokens\": ", trace.tokens, ",\n\"names\": ");
  size_t number = 0;
  AppendList(text, trace.names, 1, [&](const std::string& name) {
    const bool keep = options.names == TraceNames::kKeep;
    text += JsonQuoted(keep ? name : StrCat("operator ", number));
    ++number;
  });
  text += ",\n\"block_slots\": ";
  AppendList(text, trace.block_slots, 48, [&](int8_t slots) { text += std::to_string(slots); });
  text += ",\n\"chunks\": ";
  AppendList(text, trace.chunks, 4, [&](const TraceChunk& chunk) {
    AppendNumbers(text, std::array<int64_t, 5>{chunk.parameter, chunk.gradient, chunk.states[0],
                                               chunk.states[1], chunk.states[2]});
  });
  text += ",\n\"activations\": ";
  AppendList(text, trace.activations, 4, [&](const SavedActivation& saved) {
    AppendNumbers(text,
                  std::array<int64_t, 4>{saved.created, saved.used, saved.slots, saved.recompute});
  });
  text += ",\n\"moments\": ";
  AppendList(text, trace.moments, 1,
             [&](const Moment& moment) { AppendMoment(text, trace, moment); });
  text += "}\n";
  return text;
}

absl::StatusOr<Trace> ParseTrace(std::string_view text) {
  GANTRY_ASSIGN_OR_RETURN(const JsonDocument document,
                          JsonDocument::Parse(text, {.what = "trace file",
                                                     .text_bytes_max = kTraceFileBytesMax,
                                                     .depth_max = kDepthMax,
                                                     .values_max = kValuesMax}));
  // First, so that a later version is called that and not full of unknown keys.
  GANTRY_RETURN_IF_ERROR(document.ExpectFormat(kFormatName, kTraceFileVersion));
  const JsonNode root = document.root();
  GANTRY_RETURN_IF_ERROR(root.ExpectKeys(kKeys));
  Trace trace;
  GANTRY_ASSIGN_OR_RETURN(const JsonNode slot_bytes, root.Member("slot_bytes"));
  GANTRY_ASSIGN_OR_RETURN(const int64_t bytes, slot_bytes.Integer({}));
  trace.slot_bytes = Bytes(bytes);
  GANTRY_ASSIGN_OR_RETURN(const JsonNode tokens, root.Member("tokens"));
  GANTRY_ASSIGN_OR_RETURN(trace.tokens, tokens.Integer({}));
  GANTRY_RETURN_IF_ERROR(ReadLists(root, trace));
  GANTRY_RETURN_IF_ERROR(trace.Validate());
  return trace;
}

}  // namespace gantry
