#include "device/cuda/emulation/emulated_cuda_calls.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "device/cuda/cuda_calls.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/emulation/access_log.h"
#include "device/cuda/emulation/emulated_memory.h"
#include "device/cuda/emulation/emulated_stream.h"
#include "device/cuda/emulation/stream_runner.h"
#include "device/cuda/launch_shape.h"
#include "device/cuda/stream.h"

namespace gantry {

EmulatedCudaCalls::EmulatedCudaCalls(const EmulatedGpuOptions& options)
    : options_(options),
      random_({.seed = options.seed, .stream = 0}),
      memory_({.granularity = options.granularity,
               .capacity = options.memory * std::max(options.devices, 1),
               .host_may_access = options.host_may_access,
               .misuse = &misuse_}),
      emulator_(options.kernels),
      gpus_(static_cast<size_t>(options.devices)) {
  GANTRY_CHECK(options.devices >= 0 && options.devices <= 32 && options.threads > 0);
  // thread: the emulated devices work beside the program, as real ones do.
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Work(); });
}

EmulatedCudaCalls::~EmulatedCudaCalls() {
  {
    MutexLock lock(mutex_);
    held_ = false;
    closing_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status EmulatedCudaCalls::misuse() const {
  MutexLock lock(mutex_);
  const std::vector<std::string>& lines = misuse_.lines();
  if (lines.empty()) return absl::OkStatus();
  return Internal(lines.front(), " (the first misuse of ", lines.size(), ")");
}

int64_t EmulatedCudaCalls::calls() const {
  MutexLock lock(mutex_);
  return calls_;
}

int64_t EmulatedCudaCalls::works() const {
  MutexLock lock(mutex_);
  return works_;
}

int64_t EmulatedCudaCalls::live() const {
  MutexLock lock(mutex_);
  const auto streams =
      std::ranges::count_if(streams_, [](const auto& stream) { return !stream->destroyed; });
  return memory_.live() + static_cast<int64_t>(events_.size()) + streams;
}

void EmulatedCudaCalls::Hold() {
  MutexLock lock(mutex_);
  held_ = true;
}

void EmulatedCudaCalls::Resume() {
  MutexLock lock(mutex_);
  held_ = false;
  changed_.NotifyAll();
}

void EmulatedCudaCalls::SetUsedByOthers(Bytes bytes) {
  MutexLock lock(mutex_);
  used_by_others_ = bytes;
}

CudaError EmulatedCudaCalls::EnterAnywhere() {
  if (calls_++ == options_.failing_call) return options_.call_error;
  if (options_.driver_version < options_.runtime_version) return CudaError::kInsufficientDriver;
  return options_.devices == 0 ? CudaError::kNoDevice : CudaError::kNone;
}

CudaError EmulatedCudaCalls::Enter(int device) {
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  if (!Has(device)) return CudaError::kInvalidDevice;
  return gpus_[static_cast<size_t>(device)].sticky;
}

int EmulatedCudaCalls::CurrentDevice() const {
  const auto found = current_.find(std::this_thread::get_id());
  return found == current_.end() ? 0 : found->second;
}

EmulatedStream* EmulatedCudaCalls::FindStream(CudaStream stream, std::string_view what) {
  for (const auto& known : streams_) {
    if (static_cast<StreamRunner*>(known.get()) != stream) continue;
    if (!known->destroyed) return known.get();
    misuse_.Add(what, " on a stream that was destroyed");
    return nullptr;
  }
  misuse_.Add(what, " on a stream that is none");
  return nullptr;
}

EmulatedCudaCalls::Event* EmulatedCudaCalls::FindEvent(CudaEvent event, std::string_view what) {
  const auto found = events_.find(reinterpret_cast<uintptr_t>(event.value));
  if (found != events_.end()) return &found->second;
  misuse_.Add(what, " with an event that is none, or was destroyed");
  return nullptr;
}

Bytes EmulatedCudaCalls::FreeMemory(int device) const {
  return std::max(Bytes(0), options_.memory - memory_.used(device) - used_by_others_);
}

void EmulatedCudaCalls::CheckUnused(int64_t place, std::string_view what) {
  const auto work = accesses_.Unfinished(place, host_);
  if (work == nullptr) return;
  misuse_.Add(what, " although nobody waited for ", work->what, ", which uses it");
}

std::string EmulatedCudaCalls::Describe(CudaError error) {
  switch (error) {
    case CudaError::kNone:
      return "cudaSuccess (no error)";
    case CudaError::kInvalidValue:
      return "cudaErrorInvalidValue (invalid argument)";
    case CudaError::kOutOfMemory:
      return "cudaErrorMemoryAllocation (out of memory)";
    case CudaError::kLaunchFailure:
      return "cudaErrorLaunchFailure (unspecified launch failure)";
    case CudaError::kIllegalAddress:
      return "cudaErrorIllegalAddress (an illegal memory access was encountered)";
    default:
      return StrCat("cudaError ", static_cast<int>(error));
  }
}

CudaError EmulatedCudaCalls::DriverVersion(int* version) {
  *version = options_.driver_version;
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::RuntimeVersion(int* version) {
  *version = options_.runtime_version;
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::DeviceCount(int* count) {
  if (options_.driver_version < options_.runtime_version) return CudaError::kInsufficientDriver;
  if (options_.devices == 0) return CudaError::kNoDevice;
  *count = options_.devices;
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::Properties(int device, CudaProperties* properties) {
  if (!Has(device)) return CudaError::kInvalidDevice;
  *properties = {.name = "Emulated GPU",
                 .compute_major = options_.compute_major,
                 .compute_minor = options_.compute_minor,
                 .multiprocessors = 1,
                 .virtual_memory = options_.virtual_memory,
                 .prohibited = options_.prohibited};
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::SetDevice(int device) {
  MutexLock lock(mutex_);
  if (const CudaError error = Enter(device); error != CudaError::kNone) return error;
  if (options_.taken || options_.prohibited) return CudaError::kDevicesUnavailable;
  current_[std::this_thread::get_id()] = device;
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::MemoryInfo(CudaMemoryInfo* info) {
  MutexLock lock(mutex_);
  const int device = CurrentDevice();
  if (const CudaError error = Enter(device); error != CudaError::kNone) return error;
  *info = {.free = FreeMemory(device), .total = options_.memory};
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::AllocationGranularity(int device, Bytes* granularity) {
  MutexLock lock(mutex_);
  if (const CudaError error = Enter(device); error != CudaError::kNone) return error;
  if (!options_.virtual_memory) return CudaError::kNotSupported;
  *granularity = options_.granularity;
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::CreatePhysical(int device, Bytes bytes, CudaPhysicalMemory* memory) {
  MutexLock lock(mutex_);
  if (const CudaError error = Enter(device); error != CudaError::kNone) return error;
  if (!options_.virtual_memory) return CudaError::kNotSupported;
  if (bytes > FreeMemory(device)) return CudaError::kOutOfMemory;
  return memory_.CreatePhysical(device, bytes, &memory->value);
}

CudaError EmulatedCudaCalls::ReleasePhysical(CudaPhysicalMemory memory) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  return memory_.ReleasePhysical(memory.value);
}

CudaError EmulatedCudaCalls::ReserveAddresses(Bytes bytes, std::byte** address) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  if (!options_.virtual_memory) return CudaError::kNotSupported;
  return memory_.Reserve(bytes, address);
}

CudaError EmulatedCudaCalls::FreeAddresses(std::byte* address, Bytes bytes) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  return memory_.Free(address, bytes);
}

CudaError EmulatedCudaCalls::Map(std::byte* address, Bytes bytes, CudaPhysicalMemory memory) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  return memory_.Map(address, bytes, memory.value);
}

CudaError EmulatedCudaCalls::SetAccess(int device, std::byte* address, Bytes bytes) {
  MutexLock lock(mutex_);
  if (const CudaError error = Enter(device); error != CudaError::kNone) return error;
  return memory_.SetAccess(device, address, bytes);
}

CudaError EmulatedCudaCalls::Unmap(std::byte* address, Bytes bytes) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  if (const EmulatedMemory::Mapping* mapping = memory_.MappingAt(address); mapping != nullptr) {
    CheckUnused(mapping->place, StrCat(bytes, " of memory are unmapped"));
  }
  return memory_.Unmap(address, bytes);
}

CudaError EmulatedCudaCalls::Allocate(Bytes bytes, std::byte** address) {
  MutexLock lock(mutex_);
  const int device = CurrentDevice();
  if (const CudaError error = Enter(device); error != CudaError::kNone) return error;
  if (bytes > FreeMemory(device)) return CudaError::kOutOfMemory;
  return memory_.Allocate(device, bytes, address);
}

CudaError EmulatedCudaCalls::Free(std::byte* address) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  if (const EmulatedMemory::Mapping* mapping = memory_.MappingAt(address); mapping != nullptr) {
    CheckUnused(mapping->place, "memory is freed");
  }
  return memory_.FreeAllocation(address);
}

CudaError EmulatedCudaCalls::RegisterHost(std::byte* address, Bytes bytes) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  return memory_.Register(address, bytes);
}

CudaError EmulatedCudaCalls::UnregisterHost(std::byte* address) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  if (const auto place = memory_.RegistrationAt(address); place.has_value()) {
    CheckUnused(*place, "host memory is unregistered");
  }
  return memory_.Unregister(address);
}

CudaError EmulatedCudaCalls::CreateStream(CudaStream* stream) {
  MutexLock lock(mutex_);
  const int device = CurrentDevice();
  if (const CudaError error = Enter(device); error != CudaError::kNone) return error;
  const auto launch = [this](EmulatedStream& on, std::string_view kernel, const LaunchShape& shape,
                             std::function<void()> thread) {
    return static_cast<int>(LaunchOn(on, kernel, shape, std::move(thread)));
  };
  streams_.push_back(std::make_unique<EmulatedStream>(
      EmulatedStream::Options{.number = streams_.size() + 1, .device = device, .launch = launch}));
  *stream = static_cast<StreamRunner*>(streams_.back().get());
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::DestroyStream(CudaStream stream) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  EmulatedStream* found = FindStream(stream, "the destruction of a stream");
  if (found == nullptr) return CudaError::kInvalidHandle;
  found->destroyed = true;  // what was submitted is still done
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::SynchronizeStream(CudaStream stream) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  EmulatedStream* found = FindStream(stream, "waiting");
  if (found == nullptr) return CudaError::kInvalidHandle;
  const VectorClock clock = found->clock;
  const CudaError error = Wait(found->device(), "SynchronizeStream",
                               [found] { return found->queue.empty() && !found->busy; });
  if (error == CudaError::kNone) Learn(clock);
  return error;
}

CudaError EmulatedCudaCalls::CreateEvent(EventKind kind, CudaEvent* event) {
  MutexLock lock(mutex_);
  const int device = CurrentDevice();
  if (const CudaError error = Enter(device); error != CudaError::kNone) return error;
  const uintptr_t handle = next_event_++;
  events_[handle] = {.kind = kind, .device = device, .record = nullptr};
  *event = {.value = reinterpret_cast<void*>(handle)};
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::DestroyEvent(CudaEvent event) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  if (FindEvent(event, "the destruction of an event") == nullptr) return CudaError::kInvalidHandle;
  events_.erase(reinterpret_cast<uintptr_t>(event.value));
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::RecordEvent(CudaEvent event, CudaStream stream) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  Event* found = FindEvent(event, "a recording");
  EmulatedStream* on = FindStream(stream, "the recording of an event");
  if (found == nullptr || on == nullptr) return CudaError::kInvalidHandle;
  if (found->device != on->device()) {
    misuse_.Add("an event of device ", found->device, " is recorded on a stream of device ",
                on->device());
    return CudaError::kInvalidHandle;
  }
  if (const CudaError error = gpus_[static_cast<size_t>(on->device())].sticky;
      error != CudaError::kNone) {
    return error;
  }
  found->record = std::make_shared<EmulatedRecord>();
  Submit(*on, {.record = found->record}, "an event");
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::WaitEvent(CudaStream stream, CudaEvent event) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  Event* found = FindEvent(event, "a stream's wait");
  EmulatedStream* on = FindStream(stream, "the wait for an event");
  if (found == nullptr || on == nullptr) return CudaError::kInvalidHandle;
  if (found->record == nullptr) {
    misuse_.Add("stream ", on->number(), " waits for an event that was never recorded");
    return CudaError::kNone;  // as CUDA: it waits for nothing
  }
  Submit(*on, {.wait = found->record}, "a wait for an event");
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::QueryEvent(CudaEvent event) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  Event* found = FindEvent(event, "a query");
  if (found == nullptr) return CudaError::kInvalidHandle;
  if (found->record == nullptr) {
    misuse_.Add("an event is asked for that was never recorded");
    return CudaError::kNone;
  }
  const CudaError sticky = gpus_[static_cast<size_t>(found->device)].sticky;
  if (sticky != CudaError::kNone) return sticky;
  if (!found->record->done) return CudaError::kNotReady;
  Learn(found->record->clock);
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::SynchronizeEvent(CudaEvent event) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  Event* found = FindEvent(event, "waiting");
  if (found == nullptr) return CudaError::kInvalidHandle;
  if (found->record == nullptr) {
    misuse_.Add("an event is waited for that was never recorded");
    return CudaError::kNone;
  }
  const std::shared_ptr<EmulatedRecord> record = found->record;
  const CudaError error =
      Wait(found->device, "SynchronizeEvent", [&record] { return record->done; });
  if (error == CudaError::kNone) Learn(record->clock);
  return error;
}

CudaError EmulatedCudaCalls::ElapsedTime(CudaEvent begin, CudaEvent end, float* milliseconds) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  const Event* first = FindEvent(begin, "a time");
  const Event* last = FindEvent(end, "a time");
  if (first == nullptr || last == nullptr) return CudaError::kInvalidHandle;
  for (const Event* event : {first, last}) {
    if (event->kind == EventKind::kTiming && event->record != nullptr) continue;
    misuse_.Add("a time is asked of an event without timing, or never recorded");
    return CudaError::kInvalidHandle;
  }
  if (!first->record->done || !last->record->done) return CudaError::kNotReady;
  *milliseconds = static_cast<float>(last->record->nanoseconds - first->record->nanoseconds) / 1e6F;
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::CopyBetween(const Copy& copy, CudaStream stream, Direction direction) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  const bool up = direction == Direction::kToDevice;
  const std::string what = StrCat("copy of ", copy.bytes, up ? " to the device" : " to the host");
  EmulatedStream* on = FindStream(stream, what);
  if (on == nullptr) return CudaError::kInvalidHandle;
  if (const CudaError error = gpus_[static_cast<size_t>(on->device())].sticky;
      error != CudaError::kNone) {
    return error;
  }
  const std::optional<Pieces> device =
      memory_.Resolve(on->device(), up ? copy.destination : copy.source, copy.bytes, what);
  const std::optional<EmulatedMemory::Piece> host =
      memory_.ResolveHost(up ? copy.source : copy.destination, copy.bytes, what);
  if (!device.has_value() || !host.has_value()) return CudaError::kInvalidValue;
  EmulatedWork work;
  int64_t offset = 0;
  for (const EmulatedMemory::Piece& piece : *device) {
    work.spans.push_back({.destination = up ? piece.memory : copy.destination + offset,
                          .source = up ? copy.source + offset : piece.memory,
                          .bytes = piece.bytes});
    offset += piece.bytes;
  }
  Submit(*on, std::move(work), what);
  const auto order = on->queue.back().order;
  for (const EmulatedMemory::Piece& piece : *device) NoteAccess(piece, up, order);
  NoteAccess(*host, !up, order);
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::CopyToDevice(const Copy& copy, CudaStream stream) {
  return CopyBetween(copy, stream, Direction::kToDevice);
}

CudaError EmulatedCudaCalls::CopyToHost(const Copy& copy, CudaStream stream) {
  return CopyBetween(copy, stream, Direction::kToHost);
}

CudaError EmulatedCudaCalls::FillWithZeros(std::byte* address, Bytes bytes, CudaStream stream) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  const std::string what = StrCat("filling of ", bytes, " with zeros");
  EmulatedStream* on = FindStream(stream, what);
  if (on == nullptr || !IsCurrent(*on, what)) return CudaError::kInvalidHandle;
  const std::optional<Pieces> pieces = memory_.Resolve(on->device(), address, bytes, what);
  if (!pieces.has_value()) return CudaError::kInvalidValue;
  EmulatedWork work;
  for (const EmulatedMemory::Piece& piece : *pieces) {
    work.spans.push_back({.destination = piece.memory, .source = nullptr, .bytes = piece.bytes});
  }
  Submit(*on, std::move(work), what);
  const auto order = on->queue.back().order;
  for (const EmulatedMemory::Piece& piece : *pieces) NoteAccess(piece, /*write=*/true, order);
  return CudaError::kNone;
}

CudaError EmulatedCudaCalls::WriteWord(uint32_t* address, uint32_t value, CudaStream stream) {
  MutexLock lock(mutex_);
  if (const CudaError error = EnterAnywhere(); error != CudaError::kNone) return error;
  EmulatedStream* on = FindStream(stream, "the writing of a word");
  if (on == nullptr) return CudaError::kInvalidHandle;
  const auto piece = memory_.ResolveHost(reinterpret_cast<const std::byte*>(address), Bytes(4),
                                         "the writing of a word");
  if (!piece.has_value()) return CudaError::kInvalidValue;
  Submit(*on, {.word = address, .value = value}, "the writing of a word");
  NoteAccess(*piece, /*write=*/true, on->queue.back().order);
  return CudaError::kNone;
}

}  // namespace gantry
