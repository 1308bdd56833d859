#include "trainer/safetensors/shard_index.h"

#include <nlohmann/json.hpp>
#include <set>

#include "absl/status/status.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/safetensors/header.h"

namespace gantry {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr size_t kFileNameBytesMax = 255;  // NAME_MAX
constexpr int kIndent = 2;

// Not in another folder, and nothing that the system reads otherwise than it is written.
bool IsPlainName(std::string_view name) {
  return name.size() > kSuffix.size() && name.size() <= kFileNameBytesMax &&
         name.ends_with(kSuffix) && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace

absl::StatusOr<ShardIndex> ParseShardIndex(std::string_view json) {
  constexpr int64_t kOthersMax = 10'000;  // metadata may hold anything
  GANTRY_ASSIGN_OR_RETURN(
      const JsonDocument document,
      JsonDocument::Parse(json, {.what = "index",
                                 .text_bytes_max = static_cast<size_t>(kShardIndexBytesMax.count()),
                                 .depth_max = 8,
                                 .values_max = kStoredTensorsMax + kOthersMax}));
  const JsonNode root = document.root();
  GANTRY_RETURN_IF_ERROR(root.ExpectObject());
  GANTRY_ASSIGN_OR_RETURN(const JsonNode map, root.Member("weight_map"));
  GANTRY_RETURN_IF_ERROR(map.ExpectObject());
  ShardIndex index;
  std::set<std::string_view> files;
  for (const auto& [name, value] : map.value().items()) {
    const JsonNode node = *map.Find(name);
    GANTRY_ASSIGN_OR_RETURN(const std::string_view file, node.Text());
    if (!IsPlainName(file)) {
      return node.Error("not the name of a .safetensors file in the same folder");
    }
    if (name.size() > kStoredNameBytesMax) {
      return InvalidArgument("index: weight_map has a name of ", name.size(),
                             " bytes; the most is ", kStoredNameBytesMax);
    }
    files.insert(file);
    index.emplace(name, file);
  }
  if (index.empty()) return map.Error("and names no tensor");
  if (files.size() > kShardFilesMax) {
    return InvalidArgument("index: weight_map names ", files.size(), " files; the most is ",
                           kShardFilesMax);
  }
  return index;
}

std::string SerializeShardIndex(const ShardIndex& index, int64_t total_bytes) {
  const nlohmann::ordered_json json = {{"metadata", {{"total_size", total_bytes}}},
                                       {"weight_map", index}};
  return json.dump(kIndent, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace gantry
