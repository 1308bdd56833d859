#include "trainer/cli/help_command.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "placement_policy/built_in_models.h"
#include "placement_policy/machine_catalog.h"
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
  inspect    show what a checkpoint, a model's folder, an adapter or a safetensors file holds
  convert    write a checkpoint or a model as a Hugging Face folder, maybe with an adapter merged
  tokenize   show what a model's tokenizer makes of a text
  preview    show how a data file becomes tokens, which of them are scored, and their packing
  clean      remove what runs that died left in their spill folders
  bench      measure files, lanes, optimizer and leases beside what bounds them; compare policies
  plan       what training a model on some machine would be like: memory, speed, upgrades
  profile    measure this machine for plans, and write a machine file
  help       this text; `gantry help COMMAND`, `gantry help config`, `gantry help machines`
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
    R"(usage: gantry inspect PATH [--verify] [--json]

PATH is a checkpoint, a Hugging Face folder with a model or a PEFT adapter, or a safetensors file.
Shows step, settings, tensors and sizes; --verify compares every byte of a checkpoint with its
checksum.
)";

constexpr std::string_view kConvert =
    R"(usage: gantry convert SOURCE FOLDER [--dtype=f32|bf16|f16] [--merge=ADAPTER]
                      [--max-shard-size=SIZE] [--base=FOLDER] [--json]

Writes SOURCE as a Hugging Face model folder that Transformers reads. SOURCE is a checkpoint (or a
folder of them, of which the newest is taken) or a model's folder of any architecture. --dtype is
that of the weights written; by default they keep theirs, and those of a checkpoint the type of its
parameters. --merge adds a PEFT adapter to a model's weights. Files hold at most --max-shard-size of
weights (5GB). --base is the folder that a checkpoint's model was first loaded from, where it has
moved: its config.json is kept and its tokenizer copied. FOLDER appears whole or not at all.

  gantry convert runs/book book-model
  gantry convert SmolLM2/ merged --merge=my-adapter --dtype=bf16
)";

constexpr std::string_view kPreview =
    R"(usage: gantry preview --model=DIR --data=FILE [--example=N] [--sequence-length=N] [--json]

Shows the tokens of the example in line N (1) of a file of JSON lines with those that are scored:
in colour on a terminal, as a list elsewhere; then how the file is packed into sequences (2048).
DIR is a model's folder with tokenizer.json, tokenizer_config.json and its chat template;
--chat-template=FILE takes another one, --last-turn scores the last answer of a conversation only,
--date=YYYY-MM-DD is what templates take for today, --skip-bad-lines counts them and goes on.
)";

constexpr std::string_view kClean =
    R"(usage: gantry clean [FOLDER ...] [--config=FILE] [--dry-run] [--json]

Removes the directories of dead runs from the folders, and from memory.spill_dirs of the config.
Runs that live are not touched, and those of another machine are named and left, as only that one
can tell whether they live. --dry-run removes nothing.

  gantry clean /nvme0 /nvme1
)";

constexpr std::string_view kTokenize =
    R"(usage: gantry tokenize --model=PATH (--text=TEXT | --file=FILE) [--no-special-tokens]
                       [--json]

PATH is a folder with a tokenizer.json, or that file. Prints each token's id, its text as the file
writes it, and the bytes of the text that it stands for.

  gantry tokenize --model=models/llama --text="It was"
)";

constexpr std::string_view kBench =
    R"(usage: gantry bench NAME [--dir=FOLDER] [--quick] [--pairs=N] [--seconds=S] [--size=BYTES]
                    [--only=CASE] [--threads=N] [--fio=PATH] [--model-parameters=N] [--drive-tbw=N]
                    [--json]

  io        the file tier beside fio: read, write, mixed, latency, processor time, checksums
  transfer  the copy lanes beside memcpy; a file streamed to the device beside its slowest lane
  adam      the optimizer beside a pass over the same memory that does nothing else
  sweep     an optimizer step with all states in files beside the file tier alone
  lease     acquire and release of resident parameters
  accumulation  training steps of several micro-batches, layer by layer beside one by one
  plan      steps that follow movement plans, beside their predictions and resident steps
  load      a model's folder into memory beside reading its files, and the memory that takes
  all       these in turn, in one report
  train     training steps of GPT-2 and SmolLM2 shapes, resident and with a tenth of the state on
            the device; takes minutes, so --only=CASE chooses by name: gpt2_bf16_4x256, smollm2, ...

FOLDER (default: the current one) is on the drive to be measured; files made there go again. Each
figure and its bound are measured in turns, --pairs of them, of about --seconds each, on --size of
data; --quick takes less of each. The wear of the drive is computed for --model-parameters and a
drive that may be written --drive-tbw terabytes. Build for speed: ./dev bench NAME does.

       gantry bench policies [--models=MODEL,...] [--trace=FILE,...] [--machine=MACHINE,...]
                    [--budgets=SHARE,...] [--tokens=N,...] [--policies=NAME,...] [--wait-for-norm]
                    [--quick] [--threads=N] [--html=FILE] [--json]

  policies  placement policies on simulated steps beside the least that any plan can take

Models and machines are as in `gantry plan`, traces those that `gantry train --trace=FILE` writes.
SHARE is device memory as a share of the training state, 16 bytes a parameter. --html writes one
page with curves. Without options it runs a suite of four models on four machines; minutes.
)";

constexpr std::string_view kPlan =
    R"(usage: gantry plan --model=MODEL --machine=MACHINE [--seq=N] [--batch=N] [--micro-batches=N]
                   [--order=auto|micro-batch-major|layer-major] [--recompute=auto|full|none]
                   [--chunk-size=auto|SIZE] [--clip=none|speculative|exact] [--lora=RANK]
                   [--ranks=N] [--zero=0|1|2|3]
                   [--device-memory=SIZE] [--host-memory=SIZE] [--drives=N] [--drive-tbw=N]
                   [--threads=N] [--report=FILE.html] [--report-trace=FILE.json] [--json]

Simulates a training step and says which bytes lie where, the least memory that would do, seconds a
step beside the least that any plan can take, how long the drives last, the largest model of the
family that fits, and what each upgrade would buy. Needs neither the weights nor the machine.

MODEL is a folder with a config.json, such a file, or a built-in name. MACHINE is a machine file
(`gantry profile machine` writes one) or a name like rtx4090+pcie4+2xgen4; `gantry help machines`
lists what names are made of. A step is --micro-batches of --batch sequences of --seq tokens, on
each of --ranks machines, which divide what --zero says. --clip=exact waits for the gradient norm
before it updates. --report writes a page with the step's timeline, --report-trace the same for
ui.perfetto.dev. docs/planning.md says what the figures are worth.

  gantry plan --model=llama3-70b --machine=rtx4090+host=256GiB+2xgen4 --batch=4
  gantry plan --model=Qwen2.5-7B/ --machine=mine.json --lora=16 --seq=4096 --json
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

constexpr std::string_view kMachines =
    R"(A machine's name is DEVICE[+PART ...], as in rtx4090+pcie4+2xgen4 or a100-80+host=256GiB: a
device, which has a link and a host of its own, and what replaces them. From one to eight drives
("gen4", "2xgen4"); without one there are no files. host=SIZE, vram=SIZE and dram=SIZE (bytes a
second of updates) set memory. Figures are data sheets' or assumed: `gantry plan` says which.

)";

std::string MachinesHelp() {
  std::string text(kMachines);
  for (const CatalogPart& part : CatalogParts()) {
    constexpr size_t kColumn = 16;
    const std::string_view name = part.name;
    text += StrCat("  ", name, std::string(kColumn - std::min(kColumn - 1, name.size()), ' '),
                   part.text, "\n");
  }
  std::string models;
  for (const std::string_view name : BuiltInModelNames()) {
    models += StrCat(models.empty() ? "" : ", ", name);
  }
  return text + "\nBuilt-in models: " + models + "\n";
}

}  // namespace

absl::StatusOr<std::string> HelpText(std::string_view command) {
  if (command.empty() || command == "help") return std::string(kOverview);
  if (command == "train") return StrCat(kTrain, ConfigHelp());
  if (command == "generate") return StrCat(kGenerate, ConfigHelp());
  if (command == "demo") return std::string(kDemo);
  if (command == "inspect") return std::string(kInspect);
  if (command == "convert") return std::string(kConvert);
  if (command == "preview") return std::string(kPreview);
  if (command == "clean") return std::string(kClean);
  if (command == "tokenize") return std::string(kTokenize);
  if (command == "bench") return std::string(kBench);
  if (command == "plan") return std::string(kPlan);
  if (command == "profile") return std::string(kProfile);
  if (command == "version") return std::string(kVersion);
  if (command == "config") return ConfigHelp();
  if (command == "machines") return MachinesHelp();
  const std::array<std::string, 15> names = {
      "preview", "train", "generate", "demo", "inspect", "convert", "tokenize", "clean",
      "bench",   "plan",  "profile",  "help", "version", "config",  "machines"};
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
