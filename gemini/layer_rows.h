// What the layers of a recorded step leave for their backward passes, found event by event: what
// each kept layer saves, and each layer's output, which is the next one's input.
//
// A micro-batch needs what it saved last first, so what is alive of it are its first so many; each
// gets what it adds to their sum rounded down to slots. So many small ones do not vanish, and no
// sum exceeds what the moments hold. Thread-compatible.
#ifndef GANTRY_GEMINI_LAYER_ROWS_H_
#define GANTRY_GEMINI_LAYER_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "gemini/step_record.h"

namespace gantry {

class LayerRows {
 public:
  struct Row {
    int32_t micro_batch;
    int32_t created;    // moment
    int32_t first;      // moment from which on it is made again
    int32_t used = -1;  // moment; -1: it is not freed
    int64_t bytes;
    int64_t slots = 0;
    int64_t pass = -1;    // that saves it; -1: an output
    int64_t output = -1;  // where it is, of an output
    // An input is needed no later than here.
    int32_t used_before = std::numeric_limits<int32_t>::max();
    bool alive = true;
  };

  // Keeps nothing of `record` but the pointer.
  LayerRows(const StepRecord& record, int64_t slot_bytes)
      : record_(record), slot_bytes_(slot_bytes), inside_(record.layers.size(), -1) {}

  // In the order of the record's events. `moment` is the last lease so far.
  void OnBeginLayer(int64_t pass, int32_t micro_batch, int32_t moment);
  void OnEndLayer(int64_t pass, int32_t micro_batch, int32_t moment);
  void OnBeginLayerBackward(int64_t pass, int32_t moment);
  void OnAllocate(int64_t offset, int64_t bytes);
  void OnFree(int64_t offset, int64_t bytes, int32_t moment);

  std::span<const Row> rows() const { return rows_; }

 private:
  void Add(Row row);
  void End(Row& row, int32_t moment);

  const StepRecord& record_;
  const int64_t slot_bytes_;
  std::vector<int64_t> inside_;  // by pass: its row; -1
  std::vector<Row> rows_;
  absl::flat_hash_map<int64_t, size_t> output_at_;     // offset -> row that is alive
  absl::flat_hash_map<int64_t, size_t> input_of_;      // pass -> row
  absl::flat_hash_map<int32_t, int64_t> alive_bytes_;  // by micro-batch
  int64_t pass_ = -1;                                  // whose forward pass it is
  int32_t first_ = 0;
  int64_t layer_bytes_ = 0;                         // alive, of this forward pass
  absl::flat_hash_set<int64_t> in_layer_;           // their offsets
  absl::flat_hash_map<int64_t, int64_t> bytes_at_;  // by offset
};

}  // namespace gantry

#endif  // GANTRY_GEMINI_LAYER_ROWS_H_
