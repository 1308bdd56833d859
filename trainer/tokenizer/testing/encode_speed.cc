// Times encoding for compare_speed.py: `encode_speed TOKENIZER TEXTS`, where TEXTS is a file of
// texts (a 32-bit size and bytes each). For each line of standard input, "offsets" or "ids",
// encodes all texts one after the other and prints the processor seconds and the number of ids.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "trainer/tokenizer/encoding.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gantry {
namespace {

std::vector<std::string> ReadTexts(FileCalls& files, const std::string& path) {
  const absl::StatusOr<std::string> bytes = ReadFileToString(files, path, Bytes(1 << 30));
  GANTRY_CHECK_OK(bytes.status());
  std::vector<std::string> texts;
  std::string_view rest = *bytes;
  while (!rest.empty()) {
    int32_t size = 0;
    GANTRY_CHECK(rest.size() >= sizeof(size));
    std::memcpy(&size, rest.data(), sizeof(size));
    rest.remove_prefix(sizeof(size));
    GANTRY_CHECK(rest.size() >= static_cast<size_t>(size));
    texts.emplace_back(rest.substr(0, static_cast<size_t>(size)));
    rest.remove_prefix(static_cast<size_t>(size));
  }
  return texts;
}

int Run(const std::string& tokenizer_path, const std::string& texts_path) {
  PosixFileCalls files;
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      Tokenizer::Load(files, tokenizer_path);
  GANTRY_CHECK_OK(tokenizer.status());
  const std::vector<std::string> texts = ReadTexts(files, texts_path);
  char line[16];
  while (std::fgets(line, sizeof(line), stdin) != nullptr) {
    const EncodeOptions options = {.want_offsets = std::string_view(line) == "offsets\n"};
    const std::clock_t begin = std::clock();
    size_t ids = 0;
    for (const std::string& text : texts) {
      const absl::StatusOr<Encoding> encoding = (*tokenizer)->Encode(text, options);
      GANTRY_CHECK_OK(encoding.status());
      ids += encoding->ids.size();
    }
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    std::printf("%.6f %zu\n", seconds, ids);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace gantry

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: encode_speed TOKENIZER TEXTS\n");
    return 2;
  }
  return gantry::Run(argv[1], argv[2]);
}
