#include "trainer/hugging_face/adapter_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "base/bytes.h"
#include "base/check.h"
#include "base/files.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/temporary_directory.h"
#include "trainer/hugging_face/element_conversion.h"
#include "trainer/safetensors/header.h"
#include "trainer/safetensors/stored_dtype.h"
#include "trainer/safetensors/writer.h"

namespace gantry {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kSuffixA = ".lora_A.weight";
constexpr std::string_view kSuffixB = ".lora_B.weight";

std::string NameOf(std::string_view module, AdapterMatrix part) {
  return StrCat(kPrefix, module, part == AdapterMatrix::kA ? kSuffixA : kSuffixB);
}

absl::StatusOr<std::vector<float>> ReadFloats(const SafetensorsReader& reader,
                                              const StoredTensor& stored) {
  const std::optional<DType> dtype = LoadableForm(stored.dtype);
  GANTRY_CHECK(dtype.has_value());  // FindModules takes no other
  std::vector<std::byte> bytes(static_cast<size_t>(stored.bytes));
  GANTRY_RETURN_IF_ERROR(reader.ReadInto(stored, 0, bytes));
  std::vector<float> floats(bytes.size() / static_cast<size_t>(SizeOf(*dtype)));
  ToFloats(bytes, *dtype, floats);
  return floats;
}

}  // namespace

bool IsAdapterFolder(const std::string& path) {
  struct stat info{};
  return stat(StrCat(path, "/", kAdapterConfigFile).c_str(), &info) == 0;
}

absl::StatusOr<AdapterFolder> AdapterFolder::Open(FileCalls* files, const std::string& path) {
  const std::string config_path = StrCat(path, "/", kAdapterConfigFile);
  absl::StatusOr<std::string> text = ReadFileToString(*files, config_path, 1_MiB);
  if (text.status().code() == absl::StatusCode::kNotFound) {
    return NotFound("'", path, "' is no adapter: it has no ", kAdapterConfigFile);
  }
  GANTRY_RETURN_IF_ERROR(text.status());
  absl::StatusOr<AdapterConfig> config = ParseAdapterConfig(*text);
  if (!config.ok()) {
    return InvalidArgument(path, ": ", FromAbsl(config.status().message()));
  }
  GANTRY_ASSIGN_OR_RETURN(SafetensorsReader reader,
                          SafetensorsReader::Open(files, StrCat(path, "/", kAdapterModelFile)));
  AdapterFolder folder(path, *std::move(config), std::move(reader));
  GANTRY_RETURN_IF_ERROR(folder.FindModules());
  return folder;
}

absl::Status AdapterFolder::FindModules() {
  const std::string& file = reader_.path_of(0);
  for (const StoredTensor& stored : reader_.tensors()) {
    const std::string_view name = stored.name;
    const bool is_a = name.ends_with(kSuffixA);
    if (!name.starts_with(kPrefix) || (!is_a && !name.ends_with(kSuffixB))) {
      return InvalidArgument(file, " holds ", JsonQuoted(name), "; only ", kPrefix, "NAME",
                             kSuffixA, " and ", kSuffixB, " are supported");
    }
    if (!LoadableForm(stored.dtype).has_value() || stored.shape.size() != 2) {
      return InvalidArgument(file, ": ", JsonQuoted(name), " is ", stored.dtype, " of ",
                             stored.shape.size(), " dimensions; it must be F32, BF16 or F16 of 2");
    }
  }
  for (const StoredTensor& stored : reader_.tensors()) {
    const std::string_view name = stored.name;
    const bool is_a = name.ends_with(kSuffixA);
    const std::string_view module =
        name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffixA.size());
    const AdapterMatrix other = is_a ? AdapterMatrix::kB : AdapterMatrix::kA;
    if (reader_.Find(NameOf(module, other)) == nullptr) {
      return InvalidArgument(file, " holds ", JsonQuoted(name), " without ",
                             JsonQuoted(NameOf(module, other)));
    }
    if (is_a) modules_.emplace_back(module);
  }
  std::ranges::sort(modules_);
  for (const std::string& module : modules_) GANTRY_RETURN_IF_ERROR(CheckPair(module));
  return absl::OkStatus();
}

absl::Status AdapterFolder::CheckPair(const std::string& module) const {
  const StoredTensor& a = *reader_.Find(NameOf(module, AdapterMatrix::kA));
  const StoredTensor& b = *reader_.Find(NameOf(module, AdapterMatrix::kB));
  if (a.shape[0] == config_.rank && b.shape[1] == config_.rank) return absl::OkStatus();
  return InvalidArgument(reader_.path_of(0), ": A and B of ", JsonQuoted(module), " have ranks ",
                         a.shape[0], " and ", b.shape[1], "; ", kAdapterConfigFile, " says ",
                         config_.rank);
}

absl::StatusOr<AdapterPair> AdapterFolder::Read(std::string_view module) const {
  const StoredTensor* const a = reader_.Find(NameOf(module, AdapterMatrix::kA));
  const StoredTensor* const b = reader_.Find(NameOf(module, AdapterMatrix::kB));
  GANTRY_CHECK(a != nullptr && b != nullptr) << module;
  AdapterPair pair{.rank = a->shape[0], .in = a->shape[1], .out = b->shape[0], .a = {}, .b = {}};
  GANTRY_ASSIGN_OR_RETURN(pair.a, ReadFloats(reader_, *a));
  GANTRY_ASSIGN_OR_RETURN(pair.b, ReadFloats(reader_, *b));
  return pair;
}

absl::Status SaveAdapter(const AdapterSaving& saving, std::span<const AdapterModule> modules,
                         AdapterSource source) {
  std::vector<TensorToStore> tensors;
  for (const AdapterModule& module : modules) {
    const int64_t rank = saving.config->rank;
    const StoredDType dtype = StoredForm(saving.dtype);
    tensors.push_back({.name = NameOf(module.name, AdapterMatrix::kA),
                       .dtype = dtype,
                       .shape = {rank, module.in}});
    tensors.push_back({.name = NameOf(module.name, AdapterMatrix::kB),
                       .dtype = dtype,
                       .shape = {module.out, rank}});
  }
  GANTRY_ASSIGN_OR_RETURN(TemporaryDirectory folder,
                          TemporaryDirectory::Create(saving.files, saving.place));
  const std::string config = MakeAdapterConfigJson(*saving.config);
  GANTRY_RETURN_IF_ERROR(WriteFileAtomically(*saving.files,
                                             StrCat(folder.path(), "/", kAdapterConfigFile),
                                             std::as_bytes(std::span(config))));
  std::vector<float> floats;
  GANTRY_RETURN_IF_ERROR(WriteSafetensors(
      {.files = saving.files,
       .folder = folder.path(),
       .name = "adapter_model",
       .shard_bytes_max = Bytes(INT64_MAX)},  // PEFT reads one file
      tensors, [&](size_t tensor, int64_t first_byte, std::span<std::byte> piece) {
        const int64_t element_bytes = SizeOf(saving.dtype);
        floats.resize(piece.size() / static_cast<size_t>(element_bytes));
        GANTRY_RETURN_IF_ERROR(source(tensor / 2,
                                      tensor % 2 == 0 ? AdapterMatrix::kA : AdapterMatrix::kB,
                                      first_byte / element_bytes, floats));
        FromFloats(floats, saving.dtype, piece);
        return absl::OkStatus();
      }));
  return folder.Commit();
}

}  // namespace gantry
