#include "trainer/hugging_face/weight_loader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "chunk/block.h"
#include "chunk/chunk_layout.h"
#include "trainer/hugging_face/element_conversion.h"
#include "trainer/hugging_face/weight_map.h"
#include "trainer/safetensors/header.h"
#include "trainer/safetensors/stored_dtype.h"

namespace gantry {
namespace {

constexpr size_t kPiecesAhead = 8;

struct Piece {
  size_t weight;  // of the map
  int64_t first;  // element
  int64_t count;
};

DType FileType(const StoredTensor& stored) {
  const std::optional<DType> dtype = LoadableForm(stored.dtype);
  GANTRY_CHECK(dtype.has_value());  // MapWeights takes no other
  return *dtype;
}

class WeightLoader {
 public:
  WeightLoader(const WeightLoading& loading, const WeightMap& map)
      : reader_(*loading.reader),
        store_(*loading.store),
        strip_bytes_(loading.strip_bytes.count()),
        map_(map),
        raw_(static_cast<size_t>(kWeightPieceBytes.count())) {
    for (size_t i = 0; i < map.weights.size(); ++i) {
      const int64_t elements = map.weights[i].parameter.elements();
      const int64_t most = PieceElements(map.weights[i]);
      for (int64_t first = 0; first < elements; first += most) {
        pieces_.push_back({.weight = i, .first = first, .count = std::min(most, elements - first)});
      }
    }
  }

  absl::Status LoadAll() {
    for (size_t i = 0; i < std::min(kPiecesAhead, pieces_.size()); ++i) ReadAhead(pieces_[i]);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (i + kPiecesAhead < pieces_.size()) ReadAhead(pieces_[i + kPiecesAhead]);
      const Piece& piece = pieces_[i];
      const MappedWeight& weight = map_.weights[piece.weight];
      if (!weight.parameter.stored_transposed) {
        GANTRY_ASSIGN_OR_RETURN(const auto bytes, Read(*weight.stored, piece.first, piece.count));
        GANTRY_RETURN_IF_ERROR(Write(weight, piece.first, FileType(*weight.stored), bytes));
      } else if (piece.first == 0) {
        GANTRY_RETURN_IF_ERROR(LoadTransposed(weight));
      }
    }
    return absl::OkStatus();
  }

  // Whether the spare head has the embedding's values.
  absl::StatusOr<bool> HeadIsEmbedding() {
    const MappedWeight& embedding = map_.weights[map_.embedding];
    const StoredTensor& head = *map_.spare_head;
    if (head.shape != embedding.stored->shape || !LoadableForm(head.dtype).has_value()) {
      return false;
    }
    const int64_t elements = embedding.parameter.elements();
    const int64_t most = kWeightPieceBytes.count() / SizeOf(DType::kF32);
    std::vector<float> other;
    for (int64_t first = 0; first < elements; first += most) {
      const int64_t count = std::min(most, elements - first);
      other.resize(static_cast<size_t>(count));
      floats_.resize(static_cast<size_t>(count));
      GANTRY_ASSIGN_OR_RETURN(auto bytes, Read(head, first, count));
      ToFloats(bytes, FileType(head), other);
      GANTRY_ASSIGN_OR_RETURN(bytes, Read(*embedding.stored, first, count));
      ToFloats(bytes, FileType(*embedding.stored), floats_);
      if (other != floats_) return false;
    }
    return true;
  }

 private:
  static int64_t PieceElements(const MappedWeight& weight) {
    return kWeightPieceBytes.count() / SizeOf(FileType(*weight.stored));
  }

  void ReadAhead(const Piece& piece) const {
    const StoredTensor& stored = *map_.weights[piece.weight].stored;
    const int64_t element_bytes = SizeOf(FileType(stored));
    reader_.ReadAhead(stored, piece.first * element_bytes, piece.count * element_bytes);
  }

  // Into raw_. REQUIRES: no more than a piece.
  absl::StatusOr<std::span<const std::byte>> Read(const StoredTensor& stored, int64_t first,
                                                  int64_t count) {
    const int64_t element_bytes = SizeOf(FileType(stored));
    const auto bytes = std::span(raw_).first(static_cast<size_t>(count * element_bytes));
    GANTRY_RETURN_IF_ERROR(reader_.ReadInto(stored, first * element_bytes, bytes));
    return std::span<const std::byte>(bytes);
  }

  // Elements [first, first + n) of a parameter, given as `from`.
  absl::Status Write(const MappedWeight& weight, int64_t first, DType from,
                     std::span<const std::byte> bytes) {
    GANTRY_ASSIGN_OR_RETURN(const TensorId id, store_.layout().Find(weight.parameter.name));
    const TensorSpec& spec = store_.layout().tensor(id);
    // What has the precision of the parameter is its master too.
    if (from == spec.dtype) return store_.WriteState(StateKind::kParameter, id, first, bytes);
    floats_.resize(bytes.size() / static_cast<size_t>(SizeOf(from)));
    ToFloats(bytes, from, floats_);
    const auto as_floats = std::as_bytes(std::span(floats_));
    if (spec.dtype == DType::kF32) {
      return store_.WriteState(StateKind::kParameter, id, first, as_floats);
    }
    if (spec.trainability == Trainability::kTrainable) {
      return store_.WriteState(StateKind::kMaster, id, first, as_floats);
    }
    rounded_.resize(floats_.size() * static_cast<size_t>(SizeOf(spec.dtype)));
    FromFloats(floats_, spec.dtype, rounded_);
    return store_.WriteState(StateKind::kParameter, id, first, rounded_);
  }

  // The file's rows are the parameter's columns: its rows are gathered in strips, for each of which
  // the file's rows pass once.
  absl::Status LoadTransposed(const MappedWeight& weight) {
    const int64_t rows = weight.parameter.shape[0];
    const int64_t cols = weight.parameter.shape[1];
    const int64_t strip_rows =
        std::clamp<int64_t>(strip_bytes_ / (cols * SizeOf(DType::kF32)), 1, rows);
    std::vector<float> strip;
    for (int64_t row = 0; row < rows; row += strip_rows) {
      const int64_t count = std::min(strip_rows, rows - row);
      strip.resize(static_cast<size_t>(count * cols));
      GANTRY_RETURN_IF_ERROR(GatherStrip(*weight.stored, {.rows = rows, .cols = cols}, row, strip));
      const auto bytes = std::as_bytes(std::span(strip));
      GANTRY_RETURN_IF_ERROR(Write(weight, row * cols, DType::kF32, bytes));
    }
    return absl::OkStatus();
  }

  struct Extents {
    int64_t rows;  // of the parameter
    int64_t cols;
  };
  absl::Status GatherStrip(const StoredTensor& stored, Extents extents, int64_t first_row,
                           std::span<float> strip) {
    const int64_t strip_rows = std::ssize(strip) / extents.cols;
    const int64_t most = kWeightPieceBytes.count() / SizeOf(DType::kF32);
    const int64_t elements = extents.rows * extents.cols;
    std::vector<float> piece;
    for (int64_t first = 0; first < elements; first += most) {
      const int64_t count = std::min(most, elements - first);
      piece.resize(static_cast<size_t>(count));
      GANTRY_ASSIGN_OR_RETURN(const auto bytes, Read(stored, first, count));
      ToFloats(bytes, FileType(stored), piece);
      // Run by run within a row of the file, which is a column of the parameter.
      for (int64_t done = 0; done < count;) {
        const int64_t col = (first + done) / extents.rows;
        const int64_t row = (first + done) % extents.rows;
        const int64_t run = std::min(extents.rows - row, count - done);
        const int64_t begin = std::max(row, first_row);
        const int64_t end = std::min(row + run, first_row + strip_rows);
        for (int64_t r = begin; r < end; ++r) {
          strip[static_cast<size_t>((r - first_row) * extents.cols + col)] =
              piece[static_cast<size_t>(done + r - row)];
        }
        done += run;
      }
    }
    return absl::OkStatus();
  }

  const SafetensorsReader& reader_;
  ParameterStore& store_;
  const int64_t strip_bytes_;
  const WeightMap& map_;
  std::vector<Piece> pieces_;
  std::vector<std::byte> raw_;
  std::vector<float> floats_;
  std::vector<std::byte> rounded_;
};

}  // namespace

absl::Status LoadWeights(const WeightLoading& loading) {
  GANTRY_ASSIGN_OR_RETURN(const WeightMap map, MapWeights(*loading.reader, *loading.config));
  WeightLoader loader(loading, map);
  if (map.spare_head != nullptr) {
    GANTRY_ASSIGN_OR_RETURN(const bool same, loader.HeadIsEmbedding());
    if (!same) {
      loading.logger->Warning(
          StrCat(loading.reader->path_of(map.spare_head->file), " holds ",
                 JsonQuoted(map.spare_head->name),
                 ", which differs from the embedding, while config.json says that they are one "
                 "(tie_word_embeddings): the embedding is taken"));
    }
  }
  return loader.LoadAll();
}

}  // namespace gantry
