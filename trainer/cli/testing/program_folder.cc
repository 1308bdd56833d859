#include "trainer/cli/testing/program_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file_calls.h"
#include "base/files.h"
#include "base/strings.h"
#include "trainer/cli/testing/program.h"

namespace gantry {
namespace {

constexpr std::string_view kConfig = R"(
model: {layers: 2, width: 64, heads: 2, kv_heads: 1, head_dim: 32, ffn_width: 96}
data: {files: [text.txt], sequence_length: 16, batch_size: 4, validation_fraction: 0.1}
schedule: {shape: constant, peak: 0.002, warmup_steps: 2}
memory: {device: unified, device_memory: 16MiB}
train: {steps: 12, threads: 1, checkpoint_every: 3, eval_every: 0}
)";

}  // namespace

ProgramFolder::ProgramFolder(const std::string& name) : path_(::testing::TempDir() + name) {
  std::filesystem::remove_all(path_);
  std::filesystem::create_directories(path_);
  std::string text;
  for (int i = 0; i < 300; ++i) text += StrCat("line ", i * i % 23, " of a text; ");
  Write("text.txt", text);
  Write("tiny.yaml", kConfig);
}

void ProgramFolder::Write(const std::string& name, std::string_view content) const {
  PosixFileCalls files;
  GANTRY_CHECK_OK(
      WriteFileAtomically(files, path_ + "/" + name, std::as_bytes(std::span(content))));
}

std::string ProgramFolder::Read(const std::string& name) const {
  PosixFileCalls files;
  const absl::StatusOr<std::string> content = ReadFileToString(files, path_ + "/" + name, 64_MiB);
  GANTRY_CHECK_OK(content.status());
  return *content;
}

ProgramOptions ProgramFolder::Train(std::vector<std::string> more) const {
  ProgramOptions options{.arguments = {"train", "tiny.yaml"}, .folder = path_};
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  return options;
}

ProgramResult ProgramFolder::Run(std::vector<std::string> arguments) const {
  return RunProgram({.arguments = std::move(arguments), .folder = path_});
}

std::string JsonValue(const std::string& text, const std::string& key) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  GANTRY_CHECK(json.is_object() && json.contains(key)) << key << " in " << text;
  return json[key].dump();
}

}  // namespace gantry
