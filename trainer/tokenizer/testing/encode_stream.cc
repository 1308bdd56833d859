// Encodes and decodes texts for compare_with_reference.py: one request after the other on standard
// input, one answer each on standard output, all numbers 32-bit in the machine's order.
//
//   encode_stream PATH
//   request: size, bytes of a text
//   answer:  ids, that many ids, twice as many offsets, and two texts (a size and bytes each): what
//            the ids decode to with and without special tokens
//
// It checks by itself that encoding without offsets gives the same ids, and that a streaming
// decoder gives the same text.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {
namespace {

void Write(const void* data, size_t bytes) {
  GANTRY_CHECK(std::fwrite(data, 1, bytes, stdout) == bytes);
}

void WriteNumber(size_t number) {
  const auto value = static_cast<int32_t>(number);
  Write(&value, sizeof(value));
}

void WriteText(const std::string& text) {
  WriteNumber(text.size());
  Write(text.data(), text.size());
}

std::string StreamedText(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                         DecodeOptions options) {
  StreamingDecoder decoder(tokenizer, options);
  std::string text;
  for (const int32_t id : ids) text += decoder.Next(id);
  return text + decoder.Finish();
}

void Answer(const Tokenizer& tokenizer, const std::string& text) {
  const absl::StatusOr<Encoding> encoding = tokenizer.Encode(text, {.want_offsets = true});
  GANTRY_CHECK_OK(encoding.status());
  const absl::StatusOr<Encoding> plain = tokenizer.Encode(text, {});
  GANTRY_CHECK_OK(plain.status());
  GANTRY_CHECK(plain->ids == encoding->ids && plain->offsets.empty());
  GANTRY_CHECK(encoding->offsets.size() == encoding->ids.size());
  WriteNumber(encoding->ids.size());
  Write(encoding->ids.data(), encoding->ids.size() * sizeof(int32_t));
  for (const TextRange& range : encoding->offsets) {
    WriteNumber(static_cast<size_t>(range.begin));
    WriteNumber(static_cast<size_t>(range.end));
  }
  for (const bool skips : {false, true}) {
    const DecodeOptions options = {.skip_special_tokens = skips};
    const std::string decoded = tokenizer.Decode(encoding->ids, options);
    GANTRY_CHECK(decoded == StreamedText(tokenizer, encoding->ids, options));
    WriteText(decoded);
  }
}

int Run(const std::string& path) {
  PosixFileCalls files;
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(files, path);
  GANTRY_CHECK_OK(tokenizer.status());
  int32_t size = 0;
  while (std::fread(&size, sizeof(size), 1, stdin) == 1) {
    std::string text(static_cast<size_t>(size), '\0');
    GANTRY_CHECK(std::fread(text.data(), 1, text.size(), stdin) == text.size());
    Answer(**tokenizer, text);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace gantry

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: encode_stream PATH\n");
    return 2;
  }
  return gantry::Run(argv[1]);
}
