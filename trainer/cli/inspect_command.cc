#include "trainer/cli/inspect_command.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/strings.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "chunk/optimizer_states.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"
#include "trainer/cli/console.h"
#include "trainer/cli/inspect_model.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

enum class Verified { kNo, kYes };

int64_t BytesOf(const TensorEntry& tensor) {
  int64_t bytes = 0;
  for (const StateEntry& state : tensor.states) bytes += state.bytes;
  return bytes;
}

int64_t ElementsOf(const CheckpointManifest& manifest) {
  int64_t elements = 0;
  for (const TensorEntry& tensor : manifest.tensors) elements += tensor.elements();
  return elements;
}

std::string InspectJson(const Checkpoint& checkpoint, Verified verified) {
  const CheckpointManifest& manifest = checkpoint.manifest();
  Json tensors = Json::array();
  for (const TensorEntry& tensor : manifest.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"shape", tensor.shape},
                       {"dtype", Name(tensor.dtype)},
                       {"trainable", tensor.trainability == Trainability::kTrainable},
                       {"bytes", BytesOf(tensor)}});
  }
  const Json json = {{"command", "inspect"},
                     {"path", checkpoint.path()},
                     {"step", manifest.position.step},
                     {"sequences", manifest.position.sequences},
                     {"parameters", ElementsOf(manifest)},
                     {"state_bytes", manifest.state_bytes()},
                     {"optimizer", Name(manifest.optimizer)},
                     {"verified", verified == Verified::kYes},
                     {"settings", manifest.settings},
                     {"tensors", std::move(tensors)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string TensorLine(const TensorEntry& tensor) {
  std::string shape;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    shape += StrCat(i == 0 ? "" : " x ", tensor.shape[i]);
  }
  std::string states;
  for (const StateEntry& state : tensor.states) states += StrCat(" ", Name(state.kind));
  return StrCat("  ", tensor.name, "  ", tensor.dtype, " [", shape, "]  ", Bytes(BytesOf(tensor)),
                " (", states.substr(states.empty() ? 0 : 1), ")\n");
}

std::string InspectText(const Checkpoint& checkpoint, Verified verified) {
  const CheckpointManifest& manifest = checkpoint.manifest();
  std::string text = StrCat(
      checkpoint.path(), "\nstep ", manifest.position.step, ", ", manifest.position.sequences,
      " sequences read, ", ElementsOf(manifest), " parameters, ", Bytes(manifest.state_bytes()),
      " with the states of ", manifest.optimizer,
      verified == Verified::kYes ? ", every checksum fits" : "", "\n\nsettings\n");
  for (const auto& [key, value] : manifest.settings) text += StrCat("  ", key, ": ", value, "\n");
  text += "\ntensors\n";
  for (const TensorEntry& tensor : manifest.tensors) text += TensorLine(tensor);
  return text;
}

}  // namespace

CommandResult InspectCommand(Arguments arguments, const CommandContext& context) {
  const absl::StatusOr<OutputFormat> format = TakeOutputFormat(arguments);
  if (!format.ok()) return UsageError(format.status());
  const absl::StatusOr<bool> verify = TakeFlag(arguments, "verify");
  if (!verify.ok()) return UsageError(verify.status());
  if (arguments.words.empty()) {
    return UsageError(InvalidArgument("name a checkpoint or a model: gantry inspect PATH"));
  }
  const std::string path = arguments.words[0];
  arguments.words.erase(arguments.words.begin());
  const absl::Status rest = ExpectNothingElse(arguments);
  if (!rest.ok()) return UsageError(rest);

  if (IsModelOrAdapter(path)) {
    if (*verify) {
      return UsageError(InvalidArgument("--verify is for checkpoints: models have no checksums"));
    }
    const absl::StatusOr<std::string> text = InspectModel(*context.files, path, *format);
    if (!text.ok()) return Failure(text.status());
    context.console->Out(*text);
    return {};
  }
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(context.files, path);
  if (!checkpoint.ok()) return Failure(checkpoint.status());
  if (*verify) {
    const absl::Status verified = checkpoint->Verify();
    if (!verified.ok()) return Failure(verified);
  }
  const Verified verified = *verify ? Verified::kYes : Verified::kNo;
  context.console->Out(*format == OutputFormat::kJson ? InspectJson(*checkpoint, verified)
                                                      : InspectText(*checkpoint, verified));
  return {};
}

}  // namespace gantry
