#include "gemini/layer_rows.h"

#include <algorithm>
#include <cstddef>

#include "gemini/layer_activations.h"

namespace gantry {

void LayerRows::OnBeginLayer(int64_t pass, int32_t micro_batch, int32_t moment) {
  pass_ = pass;
  first_ = moment + 1;
  layer_bytes_ = 0;
  // The newest output of the micro-batch is this layer's input.
  for (size_t i = rows_.size(); i-- > 0;) {
    if (!rows_[i].alive || rows_[i].micro_batch != micro_batch || rows_[i].output < 0) continue;
    input_of_[pass] = i;
    break;
  }
}

void LayerRows::OnAllocate(int64_t offset, int64_t bytes) {
  if (pass_ < 0) return;
  bytes_at_[offset] = bytes;
  in_layer_.insert(offset);
  layer_bytes_ += bytes;
}

void LayerRows::OnFree(int64_t offset, int64_t bytes, int32_t moment) {
  if (in_layer_.erase(offset) > 0) layer_bytes_ -= bytes;
  const auto output = output_at_.find(offset);
  if (output == output_at_.end()) return;
  End(rows_[output->second], moment);
  output_at_.erase(output);
}

void LayerRows::OnEndLayer(int64_t pass, int32_t micro_batch, int32_t moment) {
  const StepRecord::Layer& layer = record_.layers[static_cast<size_t>(pass)];
  const bool made_here = in_layer_.contains(layer.output);
  const int64_t output_bytes = made_here ? bytes_at_[layer.output] : 0;
  if (layer.saving == LayerSaving::kKeep && layer_bytes_ > output_bytes) {
    inside_[static_cast<size_t>(pass)] = std::ssize(rows_);
    Add({.micro_batch = micro_batch,
         .created = moment,
         .first = first_,
         .bytes = layer_bytes_ - output_bytes,
         .pass = pass});
  }
  if (made_here) {
    output_at_[layer.output] = rows_.size();
    Add({.micro_batch = micro_batch,
         .created = moment,
         .first = 0,
         .bytes = output_bytes,
         .output = layer.output});
  }
  in_layer_.clear();
  pass_ = -1;
}

void LayerRows::OnBeginLayerBackward(int64_t pass, int32_t moment) {
  const int64_t inside = inside_[static_cast<size_t>(pass)];
  if (inside >= 0) End(rows_[static_cast<size_t>(inside)], moment + 1);
  if (record_.layers[static_cast<size_t>(pass)].saving != LayerSaving::kRecompute) return;
  // Its input is the first thing that a layer that runs again needs.
  const auto input = input_of_.find(pass);
  if (input != input_of_.end()) rows_[input->second].used_before = moment + 1;
}

void LayerRows::Add(Row row) {
  int64_t& alive = alive_bytes_[row.micro_batch];
  const int64_t before = alive;
  alive += row.bytes;
  row.slots = (before + row.bytes) / slot_bytes_ - before / slot_bytes_;
  rows_.push_back(row);
}

void LayerRows::End(Row& row, int32_t moment) {
  row.alive = false;
  alive_bytes_[row.micro_batch] -= row.bytes;
  row.used = std::min(moment, row.used_before);
}

}  // namespace gantry
