// Files of examples as TokenSources, one for training and one for validation.
//
// Opening reads every line once: it checks and tokenises them all, so that a bad line is known
// before the first step, and keeps their lengths. Documents are then packed into sequences, once
// (packing.h); each epoch reads the sequences in another order (permutation.h). A sequence is made
// when it is read, from its lines.
//
// An example takes one position less than it has tokens, since its last token is a target only.
// What has more than sequence_length + 1 tokens loses its end. Memory: 8 bytes for each line, 4 for
// each example, 8 for each sequence; while opening 8 more for each example.
#ifndef GANTRY_TRAINER_DATA_EXAMPLE_TOKEN_SOURCE_H_
#define GANTRY_TRAINER_DATA_EXAMPLE_TOKEN_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/file_calls.h"
#include "base/parallel_for.h"
#include "trainer/data/example_encoder.h"
#include "trainer/data/example_lines.h"
#include "trainer/data/packing.h"
#include "trainer/data/token_source.h"

namespace gantry {

enum class Packing : uint8_t {
  kPacked,   // several documents in a sequence, which do not see each other
  kOneEach,  // one document in a sequence, padded
};

class ExampleTokenSource final : public TokenSource {
 public:
  struct Options {
    int64_t sequence_length;
    int32_t padding_token;  // any token; never scored
    uint64_t seed;
    Packing packing = Packing::kPacked;
  };

  // The documents of a source: lines, and what each takes.
  struct Documents {
    std::vector<uint32_t> lines;
    std::vector<int32_t> positions;  // 1 .. sequence_length
    int64_t scored_tokens = 0;
  };
  // REQUIRES: there are documents.
  ExampleTokenSource(std::shared_ptr<const ExampleLines> lines, const Documents& documents,
                     std::string fingerprint, Options options);

  int64_t sequence_length() const override { return options_.sequence_length; }
  int64_t sequences_per_epoch() const override { return plan_.sequences(); }
  int64_t scored_tokens_per_epoch() const override { return scored_tokens_; }
  const std::string& fingerprint() const override { return fingerprint_; }
  absl::StatusOr<SampledTokens> Read(int64_t first, int64_t count) const override;
  absl::StatusOr<SampledTokens> ReadEvenly(EvenSequences range) const override;

  int64_t examples() const { return static_cast<int64_t>(plan_.order.size()); }
  int64_t padding_positions() const { return padding_positions_; }

 private:
  absl::Status Append(int64_t sequence, SampledTokens& batch) const;

  std::shared_ptr<const ExampleLines> lines_;  // shared by the parts of a set
  Options options_;
  PackingPlan plan_;  // of lines
  int64_t scored_tokens_;
  int64_t padding_positions_;
  std::string fingerprint_;
};

struct ExampleSummary {
  int64_t lines = 0;                         // that are not blank
  int64_t skipped = 0;                       // bad ones
  std::vector<std::string> skipped_reasons;  // of the first ones
  int64_t truncated = 0;
  int64_t tokens = 0;         // of what is kept
  int64_t scored_tokens = 0;  // likewise
};

struct ExampleSet {
  std::unique_ptr<ExampleTokenSource> training;
  std::unique_ptr<ExampleTokenSource> validation;  // null: none is set aside
  ExampleSummary summary;
};

struct ExampleSetOptions {
  std::vector<std::string> files;
  const ExampleEncoder* encoder;  // outlives the sources
  ExampleTokenSource::Options source;
  double validation_fraction = 0.0;  // of the examples, drawn by their numbers; in [0, 1)
  bool skip_bad_lines = false;
  Bytes line_bytes_max = 16_MiB;
};
// `files` outlives the sources. Blocks until all is read. Errors: kInvalidArgument for the first
// bad line (unless they are skipped), with file, number and reason, for nothing left to train on,
// and for options out of range; those of reading.
absl::StatusOr<ExampleSet> OpenExamples(FileCalls& files, ThreadTeam& team,
                                        const ExampleSetOptions& options);

}  // namespace gantry

#endif  // GANTRY_TRAINER_DATA_EXAMPLE_TOKEN_SOURCE_H_
