#include "trainer/data/example_token_source.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/hash.h"
#include "base/parallel_for.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/cross_entropy_head.h"
#include "trainer/data/example_encoder.h"
#include "trainer/data/example_lines.h"
#include "trainer/data/packing.h"
#include "trainer/data/permutation.h"
#include "trainer/data/token_source.h"

namespace gantry {
namespace {

constexpr int64_t kLinesAtOnce = 4096;
constexpr int64_t kLinesPerTask = 16;
constexpr size_t kReasonsMax = 10;
constexpr uint64_t kPackingStream = 0x7061636b696e6700;  // "packing"; epochs count from 0
constexpr uint64_t kSplitStream = 0x73706c69740000;      // "split"

// What opening keeps of a line.
struct LineFacts {
  absl::Status status;
  bool blank = false;
  bool truncated = false;
  int32_t positions = 0;
  int32_t scored = 0;
  uint64_t hash = 0;
};

uint64_t HashOf(const EncodedExample& example) {
  Hasher hasher;
  hasher.Update(std::as_bytes(std::span(example.tokens)));
  hasher.Update(std::as_bytes(std::span(example.scored)));
  return hasher.Digest64();
}

LineFacts LookAt(const ExampleLines& lines, int64_t line, int64_t sequence_length) {
  LineFacts facts;
  absl::StatusOr<std::optional<EncodedExample>> example = lines.Encode(line);
  if (!example.ok()) {
    facts.status = example.status();
    return facts;
  }
  facts.blank = !example->has_value();
  if (facts.blank) return facts;
  EncodedExample& encoded = **example;
  const int64_t scored_before = encoded.scored_tokens();
  facts.truncated = encoded.Truncate(sequence_length + 1);
  facts.positions = static_cast<int32_t>(encoded.tokens.size()) - 1;
  facts.scored = static_cast<int32_t>(encoded.scored_tokens());
  facts.hash = HashOf(encoded);
  if (facts.scored == 0) {
    facts.status = InvalidArgument("line ", line + 1, " of the data: all of its ", scored_before,
                                   " scored tokens lie behind the first ", sequence_length + 1,
                                   ", which is all that a sequence takes");
  }
  return facts;
}

// Collects what the lines are, in their order.
class SetBuilder {
 public:
  explicit SetBuilder(const ExampleSetOptions& options) : options_(options) {}

  absl::Status Add(int64_t line, const LineFacts& facts) {
    if (facts.blank) return absl::OkStatus();
    ++summary_.lines;
    if (!facts.status.ok()) {
      if (!options_.skip_bad_lines || facts.status.code() != absl::StatusCode::kInvalidArgument) {
        return facts.status;
      }
      ++summary_.skipped;
      if (summary_.skipped_reasons.size() < kReasonsMax) {
        summary_.skipped_reasons.emplace_back(FromAbsl(facts.status.message()));
      }
      return absl::OkStatus();
    }
    summary_.truncated += facts.truncated ? 1 : 0;
    summary_.tokens += facts.positions + 1;
    summary_.scored_tokens += facts.scored;
    const Random random({.seed = options_.source.seed, .stream = kSplitStream});
    const bool validates =
        random.Uniform(static_cast<uint64_t>(line)) < options_.validation_fraction;
    ExampleTokenSource::Documents& part = validates ? validation_ : training_;
    part.lines.push_back(static_cast<uint32_t>(line));
    part.positions.push_back(facts.positions);
    part.scored_tokens += facts.scored;
    hasher_.Update(std::as_bytes(std::span(&facts.hash, 1)));
    return absl::OkStatus();
  }

  absl::StatusOr<ExampleSet> Finish(std::shared_ptr<const ExampleLines> lines) {
    const ExampleTokenSource::Options& source = options_.source;
    if (training_.lines.empty() ||
        (options_.validation_fraction > 0 && validation_.lines.empty())) {
      return InvalidArgument("of ", summary_.lines, " examples ", training_.lines.size(),
                             " are left to train on and ", validation_.lines.size(),
                             " to validate with, ", summary_.skipped,
                             " skipped: name more data, or another data.validation_fraction");
    }
    hasher_.Update(StrCat("length ", source.sequence_length, " packing ",
                          static_cast<int>(source.packing), " seed ", source.seed, " validation ",
                          options_.validation_fraction));
    const std::string fingerprint = hasher_.HexDigest();
    ExampleSet set{.training = nullptr, .validation = nullptr, .summary = std::move(summary_)};
    set.training = std::make_unique<ExampleTokenSource>(lines, training_, fingerprint, source);
    if (!validation_.lines.empty()) {
      set.validation =
          std::make_unique<ExampleTokenSource>(lines, validation_, fingerprint, source);
    }
    return set;
  }

 private:
  const ExampleSetOptions& options_;
  ExampleSummary summary_;
  ExampleTokenSource::Documents training_;
  ExampleTokenSource::Documents validation_;
  Hasher hasher_;
};

absl::Status CheckOptions(const ExampleSetOptions& options) {
  if (options.source.sequence_length < 1 || options.source.sequence_length > (1 << 24)) {
    return InvalidArgument("a sequence of ", options.source.sequence_length,
                           " tokens; 1 to 16777216 are allowed");
  }
  if (!(options.validation_fraction >= 0.0 && options.validation_fraction < 1.0)) {
    return InvalidArgument("the validation fraction must be at least 0 and below 1, not ",
                           options.validation_fraction);
  }
  return absl::OkStatus();
}

}  // namespace

ExampleTokenSource::ExampleTokenSource(std::shared_ptr<const ExampleLines> lines,
                                       const Documents& documents, std::string fingerprint,
                                       Options options)
    : lines_(std::move(lines)),
      options_(options),
      scored_tokens_(documents.scored_tokens),
      fingerprint_(std::move(fingerprint)) {
  const auto count = static_cast<int64_t>(documents.lines.size());
  const Permutation shuffle({.seed = options_.seed, .stream = kPackingStream, .count = count});
  std::vector<uint32_t> lines_shuffled;
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < count; ++i) {
    const auto document = static_cast<size_t>(shuffle.At(i));
    lines_shuffled.push_back(documents.lines[document]);
    positions.push_back(documents.positions[document]);
  }
  plan_ = options_.packing == Packing::kPacked ? PackDocuments(positions, options_.sequence_length)
                                               : OneEach(count);
  for (uint32_t& document : plan_.order) document = lines_shuffled[document];
  const int64_t used = std::accumulate(positions.begin(), positions.end(), int64_t{0});
  padding_positions_ = plan_.sequences() * options_.sequence_length - used;
}

absl::Status ExampleTokenSource::Append(int64_t sequence, SampledTokens& batch) const {
  const size_t begin = batch.tokens.size();
  const size_t end = begin + static_cast<size_t>(options_.sequence_length);
  for (int64_t i = plan_.begins[static_cast<size_t>(sequence)];
       i < plan_.begins[static_cast<size_t>(sequence) + 1]; ++i) {
    const int64_t line = plan_.order[static_cast<size_t>(i)];
    GANTRY_ASSIGN_OR_RETURN(std::optional<EncodedExample> example, lines_->Encode(line));
    if (example.has_value()) example->Truncate(options_.sequence_length + 1);
    if (!example.has_value() || batch.tokens.size() + example->tokens.size() - 1 > end) {
      return DataLoss("line ", line + 1, " of the data has changed since it was opened");
    }
    batch.documents.push_back(static_cast<int32_t>(batch.tokens.size()));
    batch.tokens.insert(batch.tokens.end(), example->tokens.begin(), example->tokens.end() - 1);
    for (size_t t = 1; t < example->tokens.size(); ++t) {
      const bool scored = example->scored[t] != 0;
      batch.targets.push_back(scored ? example->tokens[t] : kIgnoreTarget);
      batch.scored_tokens += scored ? 1 : 0;
    }
  }
  if (batch.tokens.size() < end) {
    batch.documents.push_back(static_cast<int32_t>(batch.tokens.size()));
    batch.tokens.resize(end, options_.padding_token);
    batch.targets.resize(end, kIgnoreTarget);
  }
  return absl::OkStatus();
}

absl::StatusOr<SampledTokens> ExampleTokenSource::Read(int64_t first, int64_t count) const {
  GANTRY_CHECK(first >= 0 && count >= 1) << first << ", " << count;
  SampledTokens batch{.sequences = count,
                      .length = options_.sequence_length,
                      .tokens = {},
                      .targets = {},
                      .documents = {},
                      .scored_tokens = 0};
  const int64_t sequences = plan_.sequences();
  for (int64_t i = first; i < first + count; ++i) {
    const Permutation order({.seed = options_.seed,
                             .stream = static_cast<uint64_t>(i / sequences),
                             .count = sequences});
    GANTRY_RETURN_IF_ERROR(Append(order.At(i % sequences), batch));
  }
  return batch;
}

absl::StatusOr<SampledTokens> ExampleTokenSource::ReadEvenly(EvenSequences range) const {
  GANTRY_CHECK(range.first >= 0 && range.count >= 1 && range.first + range.count <= range.total)
      << range.first << " + " << range.count << " of " << range.total;
  SampledTokens batch{.sequences = range.count,
                      .length = options_.sequence_length,
                      .tokens = {},
                      .targets = {},
                      .documents = {},
                      .scored_tokens = 0};
  for (int64_t i = range.first; i < range.first + range.count; ++i) {
    const auto place = static_cast<__int128>(i) * plan_.sequences() / range.total;
    GANTRY_RETURN_IF_ERROR(Append(static_cast<int64_t>(place), batch));
  }
  return batch;
}

absl::StatusOr<ExampleSet> OpenExamples(FileCalls& files, ThreadTeam& team,
                                        const ExampleSetOptions& options) {
  GANTRY_RETURN_IF_ERROR(CheckOptions(options));
  GANTRY_ASSIGN_OR_RETURN(std::unique_ptr<ExampleLines> opened,
                          ExampleLines::Open(files, {.files = options.files,
                                                     .line_bytes_max = options.line_bytes_max,
                                                     .encoder = options.encoder}));
  const std::shared_ptr<const ExampleLines> lines = std::move(opened);
  SetBuilder builder(options);
  std::vector<LineFacts> facts;
  for (int64_t first = 0; first < lines->count(); first += kLinesAtOnce) {
    const int64_t count = std::min(kLinesAtOnce, lines->count() - first);
    facts.assign(static_cast<size_t>(count), LineFacts());
    team.For({.count = count, .grain = kLinesPerTask}, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        facts[static_cast<size_t>(i)] = LookAt(*lines, first + i, options.source.sequence_length);
      }
    });
    for (int64_t i = 0; i < count; ++i) {
      GANTRY_RETURN_IF_ERROR(builder.Add(first + i, facts[static_cast<size_t>(i)]));
    }
  }
  return builder.Finish(lines);
}

}  // namespace gantry
