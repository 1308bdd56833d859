#include "offload/transfer_engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace gantry {

std::string_view Name(TransferLane lane) {
  switch (lane) {
    case TransferLane::kHostToDevice:
      return "host to device";
    case TransferLane::kDeviceToHost:
      return "device to host";
    case TransferLane::kFileRead:
      return "file read";
    case TransferLane::kFileWrite:
      return "file write";
  }
  return "?";
}

absl::StatusOr<std::unique_ptr<TransferEngine>> TransferEngine::Create(Options options) {
  auto engine = std::unique_ptr<TransferEngine>(new TransferEngine(std::move(options)));
  Device* device = engine->options_.device;
  if (device->topology() == DeviceTopology::kDiscrete) {
    GANTRY_ASSIGN_OR_RETURN(engine->to_device_,
                            device->CreateCopyLane(CopyDirection::kHostToDevice, engine.get()));
    GANTRY_ASSIGN_OR_RETURN(engine->to_host_,
                            device->CreateCopyLane(CopyDirection::kDeviceToHost, engine.get()));
  }
  if (engine->options_.store.has_value()) {
    BlockStore::Options& store = *engine->options_.store;
    GANTRY_CHECK(store.extent_bytes == engine->options_.part_bytes);
    store.sink = engine.get();
    GANTRY_ASSIGN_OR_RETURN(engine->store_, BlockStore::Create(store));
  }
  return engine;
}

TransferEngine::~TransferEngine() {
  for (bool idle = false; !idle;) {
    {
      MutexLock lock(mutex_);
      idle = under_way_.empty();
    }
    // A fetch's pieces go from the store to a lane, so both must live until nothing is under way.
    if (!idle) WaitAndPoll();
  }
  store_.reset();
  to_host_.reset();
  to_device_.reset();
}

void TransferEngine::Enter(TransferLane lane) {
  const auto l = static_cast<size_t>(lane);
  if (active_[l]++ == 0) busy_since_[l] = options_.clock->Now();
  ++counters_[l].transfers;
}

void TransferEngine::Leave(TransferLane lane, Nanoseconds begin, std::string_view label) {
  const auto l = static_cast<size_t>(lane);
  const Nanoseconds now = options_.clock->Now();
  if (--active_[l] == 0) counters_[l].busy += now - busy_since_[l];
  if (options_.trace_sink == nullptr) return;
  options_.trace_sink->Slice(Name(lane), label.empty() ? "block" : label, begin, now);
}

TransferTicket TransferEngine::Begin(TransferLane lane, size_t requests, std::string label) {
  const TransferTicket ticket(next_ticket_++);
  under_way_.emplace(ticket.value(), Transfer{.lane = lane,
                                              .parts_left = static_cast<int>(requests),
                                              .begin = options_.clock->Now(),
                                              .status = absl::OkStatus(),
                                              .label = std::move(label)});
  Enter(lane);
  return ticket;
}

uint64_t TransferEngine::AddRequest(const Request& request) {
  const uint64_t tag = next_request_++;
  requests_.emplace(tag, request);
  under_way_.find(request.ticket.value())->second.requests.push_back(tag);
  return tag;
}

TransferTicket TransferEngine::Copy(CopyDirection direction, std::span<const CopyPart> parts,
                                    std::string label) {
  GANTRY_CHECK(!parts.empty());
  const bool down = direction == CopyDirection::kDeviceToHost;
  CopyLane* lane = down ? to_host_.get() : to_device_.get();
  GANTRY_CHECK(lane != nullptr) << "a unified device has no copy lanes";
  const TransferTicket ticket = [&] {
    MutexLock lock(mutex_);
    return Begin(down ? TransferLane::kDeviceToHost : TransferLane::kHostToDevice, parts.size(),
                 std::move(label));
  }();
  for (const CopyPart& part : parts) {
    lane->Submit({.destination = part.destination,
                  .source = part.source,
                  .bytes = options_.part_bytes,
                  .tag = static_cast<uint64_t>(ticket.value())});
  }
  return ticket;
}

TransferTicket TransferEngine::ReadFile(std::span<const FilePart> parts, IoPriority priority,
                                        std::string label) {
  GANTRY_CHECK(!parts.empty());
  GANTRY_CHECK(store_ != nullptr) << "there is no file tier";
  const int64_t bytes = options_.part_bytes.count();
  std::vector<StoreRead> reads;
  TransferTicket ticket(-1);
  {
    MutexLock lock(mutex_);
    ticket = Begin(TransferLane::kFileRead, parts.size(), std::move(label));
    for (const FilePart& part : parts) {
      reads.push_back({.extent = part.extent,
                       .buffer = {part.memory, static_cast<size_t>(bytes)},
                       .priority = priority,
                       .tag = AddRequest({.ticket = ticket, .bytes = bytes})});
    }
  }
  for (const StoreRead& read : reads) store_->Read(read);
  return ticket;
}

TransferTicket TransferEngine::WriteFile(std::span<const FilePart> parts, IoPriority priority,
                                         std::string label) {
  GANTRY_CHECK(!parts.empty());
  GANTRY_CHECK(store_ != nullptr) << "there is no file tier";
  const int64_t bytes = options_.part_bytes.count();
  std::vector<StoreWrite> writes;
  TransferTicket ticket(-1);
  {
    MutexLock lock(mutex_);
    ticket = Begin(TransferLane::kFileWrite, parts.size(), std::move(label));
    for (const FilePart& part : parts) {
      writes.push_back({.extent = part.extent,
                        .buffer = {part.memory, static_cast<size_t>(bytes)},
                        .priority = priority,
                        .tag = AddRequest({.ticket = ticket, .bytes = bytes})});
    }
  }
  for (const StoreWrite& write : writes) store_->Write(write);
  return ticket;
}

TransferTicket TransferEngine::FetchFile(std::span<const FetchPart> parts, IoPriority priority,
                                         std::string label) {
  GANTRY_CHECK(!parts.empty());
  GANTRY_CHECK(store_ != nullptr) << "there is no file tier";
  GANTRY_CHECK(to_device_ != nullptr) << "a unified device has no copy lanes";
  const int64_t bytes = options_.part_bytes.count();
  const int64_t pieces = CeilDiv(bytes, kSubBlockBytes);
  std::vector<StoreRead> reads;
  TransferTicket ticket(-1);
  {
    MutexLock lock(mutex_);
    ticket = Begin(TransferLane::kFileRead, parts.size() * static_cast<size_t>(pieces),
                   std::move(label));
    for (const FetchPart& part : parts) {
      for (int64_t offset = 0; offset < bytes; offset += kSubBlockBytes) {
        const int64_t size = std::min(kSubBlockBytes, bytes - offset);
        reads.push_back({.extent = part.extent,
                         .offset = offset,
                         .buffer = {part.host + offset, static_cast<size_t>(size)},
                         .priority = priority,
                         .tag = AddRequest({.ticket = ticket,
                                            .host = part.host + offset,
                                            .device = part.device + offset,
                                            .bytes = size})});
      }
    }
    Transfer& transfer = under_way_.find(ticket.value())->second;
    transfer.fetch = true;
    transfer.reads_left = static_cast<int>(reads.size());
  }
  for (const StoreRead& read : reads) store_->Read(read);
  return ticket;
}

void TransferEngine::Promote(TransferTicket ticket, IoPriority priority) {
  std::vector<uint64_t> requests;
  {
    MutexLock lock(mutex_);
    const auto found = under_way_.find(ticket.value());
    if (found != under_way_.end()) requests = found->second.requests;
  }
  // A tag that has completed meanwhile is unknown to the store.
  for (const uint64_t request : requests) store_->Promote(request, priority);
}

void TransferEngine::Cancel(TransferTicket ticket) {
  std::vector<uint64_t> requests;
  {
    MutexLock lock(mutex_);
    const auto found = under_way_.find(ticket.value());
    if (found != under_way_.end()) requests = found->second.requests;
  }
  for (const uint64_t request : requests) store_->Cancel(request);
}

void TransferEngine::OnCopyComplete(uint64_t tag, absl::Status status) {
  MutexLock lock(mutex_);
  const TransferTicket ticket(static_cast<int64_t>(tag));
  const Transfer& transfer = under_way_.find(ticket.value())->second;
  if (status.ok() && !transfer.fetch) Count(transfer.lane, options_.part_bytes.count());
  FinishPart(ticket, status);
}

void TransferEngine::OnStoreComplete(uint64_t tag, absl::Status status) {
  std::optional<CopyRequest> up;
  {
    MutexLock lock(mutex_);
    const auto found = requests_.find(tag);
    GANTRY_CHECK(found != requests_.end()) << "completion of unknown request " << tag;
    const Request request = found->second;
    requests_.erase(found);
    Transfer& transfer = under_way_.find(request.ticket.value())->second;
    if (transfer.reads_left > 0 && --transfer.reads_left == 0) {
      Leave(TransferLane::kFileRead, transfer.begin, transfer.label);
    }
    if (status.ok()) Count(transfer.lane, request.bytes);
    if (request.device == nullptr || !status.ok()) {
      FinishPart(request.ticket, status);
      return;
    }
    if (!std::exchange(transfer.copying, true)) {
      transfer.copy_begin = options_.clock->Now();
      Enter(TransferLane::kHostToDevice);
    }
    Count(TransferLane::kHostToDevice, request.bytes);
    up = CopyRequest{.destination = request.device,
                     .source = request.host,
                     .bytes = Bytes(request.bytes),
                     .tag = static_cast<uint64_t>(request.ticket.value())};
  }
  to_device_->Submit(*up);
}

void TransferEngine::FinishPart(TransferTicket ticket, const absl::Status& status) {
  const auto found = under_way_.find(ticket.value());
  GANTRY_CHECK(found != under_way_.end()) << "completion of unknown " << ticket;
  Transfer& transfer = found->second;
  transfer.status.Update(status);
  if (--transfer.parts_left > 0) return;
  if (!transfer.fetch) Leave(transfer.lane, transfer.begin, transfer.label);
  if (transfer.copying) {
    Leave(TransferLane::kHostToDevice, transfer.copy_begin, transfer.label);
  }
  finished_.push_back({ticket, transfer.lane, std::move(transfer.status)});
  under_way_.erase(found);
  changed_.NotifyAll();
  if (options_.on_completion) options_.event_loop->Schedule(0, options_.on_completion);
}

std::vector<TransferCompletion> TransferEngine::WaitAndPoll() {
  MutexLock lock(mutex_);
  while (finished_.empty() && !woken_) {
    if (options_.event_loop == nullptr) {
      changed_.Wait(mutex_);
      continue;
    }
    mutex_.Unlock();
    GANTRY_CHECK(options_.event_loop->RunNext()) << "a transfer will never complete";
    mutex_.Lock();
  }
  woken_ = false;
  return std::exchange(finished_, {});
}

std::vector<TransferCompletion> TransferEngine::Poll() {
  MutexLock lock(mutex_);
  return std::exchange(finished_, {});
}

void TransferEngine::Wake() {
  MutexLock lock(mutex_);
  woken_ = true;
  changed_.NotifyAll();
}

TransferCounters TransferEngine::counters(TransferLane lane) const {
  MutexLock lock(mutex_);
  const auto l = static_cast<size_t>(lane);
  TransferCounters counters = counters_[l];
  if (active_[l] > 0) counters.busy += options_.clock->Now() - busy_since_[l];
  return counters;
}

}  // namespace gantry
