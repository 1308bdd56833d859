// A folder with a PEFT adapter: adapter_config.json and adapter_model.safetensors, which holds, for
// each linear map, base_model.model.NAME.lora_A.weight [rank, in] and ....lora_B.weight [out,
// rank].
//
//   GANTRY_ASSIGN_OR_RETURN(const AdapterFolder adapter, AdapterFolder::Open(&files, "lora/"));
//   GANTRY_ASSIGN_OR_RETURN(const AdapterPair pair, adapter.Read("model.layers.0.mlp.up_proj"));
//
// Movable; thread-safe: reads may run at the same time. Holds its file open.
#ifndef GANTRY_TRAINER_HUGGING_FACE_ADAPTER_FOLDER_H_
#define GANTRY_TRAINER_HUGGING_FACE_ADAPTER_FOLDER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "trainer/hugging_face/adapter_config.h"
#include "trainer/safetensors/reader.h"

namespace gantry {

inline constexpr char kAdapterConfigFile[] = "adapter_config.json";
inline constexpr char kAdapterModelFile[] = "adapter_model.safetensors";

// Whether `path` is a folder with an adapter_config.json.
bool IsAdapterFolder(const std::string& path);

struct AdapterPair {
  int64_t rank;
  int64_t in;
  int64_t out;
  std::vector<float> a;  // [rank, in]
  std::vector<float> b;  // [out, rank]
};

class AdapterFolder {
 public:
  // Errors: kNotFound; kInvalidArgument for a config as ParseAdapterConfig says, a tensor that is
  // no A or B, one without the other, or shapes that do not fit together; those of reading.
  static absl::StatusOr<AdapterFolder> Open(FileCalls* files, const std::string& path);

  const AdapterConfig& config() const { return config_; }
  const std::string& path() const { return path_; }
  // The maps that have a pair, by their full names without "base_model.model.", sorted.
  std::span<const std::string> modules() const { return modules_; }
  // REQUIRES: `module` is one of modules(). Blocks. Errors: those of reading.
  absl::StatusOr<AdapterPair> Read(std::string_view module) const;

 private:
  AdapterFolder(std::string path, AdapterConfig config, SafetensorsReader reader)
      : path_(std::move(path)), config_(std::move(config)), reader_(std::move(reader)) {}
  absl::Status FindModules();
  absl::Status CheckPair(const std::string& module) const;

  std::string path_;
  AdapterConfig config_;
  SafetensorsReader reader_;
  std::vector<std::string> modules_;
};

// A linear map of an adapter that is to be written.
struct AdapterModule {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  int64_t in;
  int64_t out;
};
enum class AdapterMatrix : uint8_t { kA, kB };
// Fills `values` with elements [first, first + n) of a module's A or B.
using AdapterSource = absl::FunctionRef<absl::Status(size_t module, AdapterMatrix part,
                                                     int64_t first, std::span<float> values)>;

struct AdapterSaving {
  FileCalls* files;
  std::string place;  // of the new folder; nothing is there, or an empty folder
  const AdapterConfig* config;
  DType dtype;
};

// Errors: kAlreadyExists; those of `source` and of writing, after which nothing is at the place.
absl::Status SaveAdapter(const AdapterSaving& saving, std::span<const AdapterModule> modules,
                         AdapterSource source);

}  // namespace gantry

#endif  // GANTRY_TRAINER_HUGGING_FACE_ADAPTER_FOLDER_H_
