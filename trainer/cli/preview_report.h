// What `gantry preview` shows: an example's tokens with their mask, and how a data set is packed.
#ifndef GANTRY_TRAINER_CLI_PREVIEW_REPORT_H_
#define GANTRY_TRAINER_CLI_PREVIEW_REPORT_H_

#include <cstdint>
#include <string>

#include "trainer/data/example_encoder.h"
#include "trainer/data/example_token_source.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {

struct Preview {
  int64_t example;  // the line's number, from 1
  EncodedExample encoded;
  const Tokenizer* tokenizer;
  ExampleSummary summary;
  int64_t sequence_length;
  int64_t examples;   // that are trained on
  int64_t sequences;  // of one epoch
  int64_t padding_positions;
};

enum class MaskStyle : uint8_t {
  kColour,  // scored tokens stand out
  kMarks,   // one line for each token, with "scored" behind those that are
};

std::string PreviewText(const Preview& preview, MaskStyle style);
// One line.
std::string PreviewJson(const Preview& preview);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CLI_PREVIEW_REPORT_H_
