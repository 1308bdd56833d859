#include "trainer/cli/help_command.h"

#include <array>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "trainer/cli/arguments.h"
#include "trainer/cli/command.h"
#include "trainer/cli/config.h"
#include "trainer/cli/console.h"

namespace gantry {
namespace {

constexpr std::string_view kOverview =
    R"(usage: gantry COMMAND [CONFIG.yaml] [--key=value ...] [--json]

  train      train a model under a memory budget; Ctrl-C saves, the same command resumes
  generate   continue a text with the model of a checkpoint
  demo       train 100 million parameters in 128 MiB of device memory and compare with all resident
  inspect    show what a checkpoint holds
  clean      remove what runs that died left in their spill folders
  bench      measure files, lanes, optimizer and leases beside what bounds them
  profile    measure this machine for plans, and write a machine file
  help       this text; `gantry help COMMAND`, `gantry help config`
  version    the version

--json prints one JSON object on standard output at the end; progress goes to standard error.
Exit codes: 0 done, 1 something failed on the way, 2 the command line or the config is wrong,
130 interrupted.
)";

constexpr std::string_view kTrain =
    R"(usage: gantry train [CONFIG.yaml] [--key=value ...] [--json]

Trains on the bytes of data.files, within memory.device_memory and memory.host_memory; what fits
neither lies in memory.spill_dirs. With train.checkpoint_dir set it saves every
train.checkpoint_every steps, at the end, and on Ctrl-C, and continues from there when run again.

  gantry train --files=book.txt --steps=500 --checkpoint_dir=runs/book
  gantry train small.yaml --device=emulated --device_memory=128MiB --spill_dirs=/nvme0

)";

constexpr std::string_view kGenerate =
    R"(usage: gantry generate --checkpoint=PATH [--prompt=TEXT] [--key=value ...] [--json]

PATH is a checkpoint or a folder of them, of which the newest is taken. The model's shape comes from
the checkpoint; the generate and memory sections of the config count.

  gantry generate --checkpoint=runs/book --prompt="It was " --tokens=400 --temperature=0.7

)";

constexpr std::string_view kDemo =
    R"(usage: gantry demo [--quick] [--text=FILE[,FILE...]] [--out=FOLDER] [--spill_dirs=FOLDER]
                   [--key=value ...] [--json]

Trains a decoder of 100 million parameters on text (Debian's package fortunes, or --text) with
128 MiB on an emulated device, 512 MiB on the host and the rest in files, then once more with
everything resident, and compares losses and parameters bit for bit. Writes FOLDER/summary.json,
with out/demo as FOLDER. --quick takes fewer steps.
)";

constexpr std::string_view kInspect =
    R"(usage: gantry inspect CHECKPOINT [--verify] [--json]

Shows step, settings, tensors and sizes; --verify compares every byte with its checksum.
)";

constexpr std::string_view kClean =
    R"(usage: gantry clean [FOLDER ...] [--config=FILE] [--dry-run] [--json]

Removes the directories of dead runs from the folders, and from memory.spill_dirs of the config.
Runs that live are not touched, and those of another machine are named and left, as only that one
can tell whether they live. --dry-run removes nothing.

  gantry clean /nvme0 /nvme1
)";

constexpr std::string_view kBench =
    R"(usage: gantry bench NAME [--dir=FOLDER] [--quick] [--pairs=N] [--seconds=S] [--size=BYTES]
                    [--threads=N] [--fio=PATH] [--model-parameters=N] [--drive-tbw=N] [--json]

  io        the file tier beside fio: read, write, mixed, latency, processor time, checksums
  transfer  the copy lanes beside memcpy; a file streamed to the device beside its slowest lane
  adam      the optimizer beside a pass over the same memory that does nothing else
  sweep     an optimizer step with all states in files beside the file tier alone
  lease     acquire and release of resident parameters
  all       these in turn, in one report

FOLDER (default: the current one) is on the drive to be measured; files made there go again. Each
figure and its bound are measured in turns, --pairs of them, of about --seconds each, on --size of
data; --quick takes less of each. The wear of the drive is computed for --model-parameters and a
drive that may be written --drive-tbw terabytes. Build for speed: ./dev bench NAME does.
)";

constexpr std::string_view kProfile =
    R"(usage: gantry profile machine [--dir=FOLDER ...] [--out=FILE] [--quick] [--threads=N]
                      [--dtype=bf16|f32] [--device-memory=SIZE] [--host-memory=SIZE] [--json]

Measures copies between host and device, optimizer updates, matrix products and, in the FOLDERs, all
at once, reads and writes of files, which are gone afterwards. --out writes a machine file
(docs/formats/machine.md), --json prints it; each figure says where it comes from. The device is the
CPU: its memory is set aside from the machine's, by default a quarter for the device and half for
the host. --quick shows that it works, not how fast the machine is. Build for speed:
bazel build --config=release //trainer/cli:gantry does.

  gantry profile machine --dir=/nvme0 --dir=/nvme1 --out=machine.json
)";

constexpr std::string_view kVersion = "usage: gantry version [--json]\n";

}  // namespace

absl::StatusOr<std::string> HelpText(std::string_view command) {
  if (command.empty() || command == "help") return std::string(kOverview);
  if (command == "train") return StrCat(kTrain, ConfigHelp());
  if (command == "generate") return StrCat(kGenerate, ConfigHelp());
  if (command == "demo") return std::string(kDemo);
  if (command == "inspect") return std::string(kInspect);
  if (command == "clean") return std::string(kClean);
  if (command == "bench") return std::string(kBench);
  if (command == "profile") return std::string(kProfile);
  if (command == "version") return std::string(kVersion);
  if (command == "config") return ConfigHelp();
  const std::array<std::string, 10> names = {"train", "generate", "demo", "inspect", "clean",
                                             "bench", "profile",  "help", "version", "config"};
  const std::string nearest = NearestName(command, names.data(), names.size());
  if (nearest.empty()) {
    return InvalidArgument("unknown command '", command, "'; `gantry help` lists all");
  }
  return InvalidArgument("unknown command '", command, "', did you mean '", nearest, "'?");
}

CommandResult HelpCommand(const Arguments& arguments, const CommandContext& context) {
  const absl::StatusOr<std::string> text =
      HelpText(arguments.words.empty() ? "" : arguments.words[0]);
  if (!text.ok()) return UsageError(text.status());
  context.console->Out(*text);
  return {};
}

CommandResult VersionCommand(Arguments arguments, const CommandContext& context) {
  const absl::StatusOr<OutputFormat> format = TakeOutputFormat(arguments);
  if (!format.ok()) return UsageError(format.status());
  const absl::Status rest = ExpectNothingElse(arguments);
  if (!rest.ok()) return UsageError(rest);
  context.console->Out(*format == OutputFormat::kJson
                           ? StrCat("{\"version\":\"", kGantryVersion, "\"}\n")
                           : StrCat("gantry ", kGantryVersion, "\n"));
  return {};
}

}  // namespace gantry
