#include "offload/transfer_engine.h"

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

absl::StatusOr<std::unique_ptr<TransferEngine>> TransferEngine::Create(const Options& options) {
  auto engine = std::unique_ptr<TransferEngine>(new TransferEngine(options));
  if (options.device->topology() == DeviceTopology::kDiscrete) {
    GANTRY_ASSIGN_OR_RETURN(engine->to_device_, options.device->CreateCopyLane(
                                                    CopyDirection::kHostToDevice, engine.get()));
    GANTRY_ASSIGN_OR_RETURN(engine->to_host_, options.device->CreateCopyLane(
                                                  CopyDirection::kDeviceToHost, engine.get()));
  }
  if (options.file != nullptr) {
    const IoBackendOptions io{.sink = engine.get(),
                              .preference = options.io,
                              .directory = options.io_directory,
                              .logger = options.logger,
                              .files = &engine->file_calls_};
    GANTRY_ASSIGN_OR_RETURN(engine->io_,
                            options.make_io ? options.make_io(io) : CreateIoBackend(io));
  }
  return engine;
}

TransferEngine::~TransferEngine() {
  for (bool idle = false; !idle;) {
    {
      MutexLock lock(mutex_);
      idle = under_way_.empty();
    }
    if (!idle) WaitAndPoll();  // not the backends' own wait: only this one runs the event loop
  }
  io_.reset();
  to_host_.reset();
  to_device_.reset();
}

TransferTicket TransferEngine::Begin(TransferLane lane, size_t parts) {
  const auto l = static_cast<size_t>(lane);
  const TransferTicket ticket(next_ticket_++);
  const Nanoseconds now = options_.clock->Now();
  under_way_.emplace(static_cast<uint64_t>(ticket.value()),
                     Transfer{lane, static_cast<int>(parts), now, absl::OkStatus()});
  if (active_[l]++ == 0) busy_since_[l] = now;
  ++counters_[l].transfers;
  counters_[l].bytes += options_.part_bytes.count() * static_cast<int64_t>(parts);
  return ticket;
}

TransferTicket TransferEngine::Copy(CopyDirection direction, std::span<const CopyPart> parts) {
  GANTRY_CHECK(!parts.empty());
  const bool down = direction == CopyDirection::kDeviceToHost;
  CopyLane* lane = down ? to_host_.get() : to_device_.get();
  GANTRY_CHECK(lane != nullptr) << "a unified device has no copy lanes";
  const TransferTicket ticket = [&] {
    MutexLock lock(mutex_);
    return Begin(down ? TransferLane::kDeviceToHost : TransferLane::kHostToDevice, parts.size());
  }();
  for (const CopyPart& part : parts) {
    lane->Submit({.destination = part.destination,
                  .source = part.source,
                  .bytes = options_.part_bytes,
                  .tag = static_cast<uint64_t>(ticket.value())});
  }
  return ticket;
}

TransferTicket TransferEngine::ReadFile(std::span<const FilePart> parts) {
  return SubmitFile(TransferLane::kFileRead, parts);
}

TransferTicket TransferEngine::WriteFile(std::span<const FilePart> parts) {
  return SubmitFile(TransferLane::kFileWrite, parts);
}

TransferTicket TransferEngine::SubmitFile(TransferLane lane, std::span<const FilePart> parts) {
  GANTRY_CHECK(!parts.empty());
  GANTRY_CHECK(io_ != nullptr) << "there is no file tier";
  const auto bytes = static_cast<size_t>(options_.part_bytes.count());
  MutexLock lock(mutex_);
  const TransferTicket ticket = Begin(lane, parts.size());
  for (const FilePart& part : parts) {
    const BlockFile::Part request{.extent = part.extent,
                                  .offset = 0,
                                  .buffer = {part.memory, bytes},
                                  .tag = next_file_part_++};
    file_parts_.emplace(request.tag, static_cast<uint64_t>(ticket.value()));
    io_->Submit(lane == TransferLane::kFileRead ? options_.file->ReadRequest(request)
                                                : options_.file->WriteRequest(request));
  }
  return ticket;
}

void TransferEngine::OnCopyComplete(uint64_t tag, absl::Status status) {
  MutexLock lock(mutex_);
  OnPartComplete(tag, std::move(status));
}

void TransferEngine::OnIoComplete(uint64_t tag, absl::Status status) {
  MutexLock lock(mutex_);
  const auto part = file_parts_.find(tag);
  GANTRY_CHECK(part != file_parts_.end()) << "completion of unknown file part " << tag;
  const uint64_t ticket = part->second;
  file_parts_.erase(part);
  OnPartComplete(ticket, std::move(status));
}

void TransferEngine::OnPartComplete(uint64_t ticket, absl::Status status) {
  const auto found = under_way_.find(ticket);
  GANTRY_CHECK(found != under_way_.end()) << "completion of unknown transfer " << ticket;
  Transfer& transfer = found->second;
  transfer.status.Update(status);
  if (--transfer.parts_left > 0) return;
  Transfer done = std::move(transfer);
  under_way_.erase(found);
  Finish(ticket, std::move(done));
}

void TransferEngine::Finish(uint64_t ticket, Transfer transfer) {
  const auto l = static_cast<size_t>(transfer.lane);
  const Nanoseconds now = options_.clock->Now();
  if (--active_[l] == 0) counters_[l].busy += now - busy_since_[l];
  if (options_.trace_sink != nullptr) {
    options_.trace_sink->Slice(Name(transfer.lane), "block", transfer.begin, now);
  }
  finished_.push_back(
      {TransferTicket(static_cast<int64_t>(ticket)), transfer.lane, std::move(transfer.status)});
  changed_.NotifyAll();
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
  return counters_[static_cast<size_t>(lane)];
}

std::string_view TransferEngine::io_name() const { return io_ == nullptr ? "none" : io_->name(); }

}  // namespace gantry
