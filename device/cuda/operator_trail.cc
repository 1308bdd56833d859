#include "device/cuda/operator_trail.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/stream.h"
#include "device/host/virtual_memory.h"

namespace gantry {
namespace {

constexpr Bytes kWordBytes = 4_KiB;  // a page of its own
constexpr size_t kEntriesMax = 4096;

// Numbers begin again after 2^32.
bool IsAfter(uint32_t number, uint32_t other) { return static_cast<int32_t>(number - other) > 0; }

}  // namespace

absl::StatusOr<std::unique_ptr<OperatorTrail>> OperatorTrail::Create(CudaContext* context) {
  GANTRY_ASSIGN_OR_RETURN(AddressRange memory,
                          AddressRange::Reserve(kWordBytes, AddressRange::Access::kReadWrite));
  GANTRY_RETURN_IF_ERROR(context->Check(context->calls().RegisterHost(memory.base(), kWordBytes),
                                        "cudaHostRegister(", kWordBytes, ")"));
  return std::unique_ptr<OperatorTrail>(new OperatorTrail(context, std::move(memory)));
}

OperatorTrail::OperatorTrail(CudaContext* context, AddressRange memory)
    : context_(*context), memory_(std::move(memory)) {
  *word() = 0;
}

OperatorTrail::~OperatorTrail() {
  context_.Release(context_.calls().UnregisterHost(memory_.base()), "cudaHostUnregister()");
}

void OperatorTrail::DropDone() {
  const uint32_t done = std::atomic_ref<uint32_t>(*word()).load(std::memory_order_acquire);
  while (!entries_.empty() && !IsAfter(entries_.front().number, done)) entries_.pop_front();
}

void OperatorTrail::Begin(std::string_view name) {
  MutexLock lock(mutex_);
  if (!written_) return;
  DropDone();
  if (entries_.size() == kEntriesMax) entries_.pop_back();  // the first one is what is looked for
  entries_.push_back({.number = ++last_, .name = std::string(name)});
}

absl::Status OperatorTrail::End(CudaStream stream) {
  CudaError error = CudaError::kNone;
  {
    MutexLock lock(mutex_);
    if (!written_) return absl::OkStatus();
    error = context_.calls().WriteWord(word(), last_, stream);
    if (error == CudaError::kNotSupported || error == CudaError::kSymbolNotFound) {
      written_ = false;
      entries_.clear();
    }
  }
  if (error == CudaError::kNotSupported || error == CudaError::kSymbolNotFound) {
    context_.logger().WarnOnce(StrCat(
        context_.name(), " cannot say which operator it is at: ", context_.calls().Describe(error),
        " from cuStreamWriteValue32()"));
    return absl::OkStatus();
  }
  // Without the mutex: a failure asks for the suspect.
  return context_.Check(error, "cuStreamWriteValue32()");
}

std::string OperatorTrail::Suspect() const {
  MutexLock lock(mutex_);
  const uint32_t done = std::atomic_ref<uint32_t>(*word()).load(std::memory_order_acquire);
  const Entry* first = nullptr;
  int64_t count = 0;
  for (const Entry& entry : entries_) {
    if (!IsAfter(entry.number, done)) continue;
    if (first == nullptr) first = &entry;
    ++count;
  }
  if (first == nullptr) return "";
  return StrCat("operator ", first->name, " (the first of ", count, " that are not done)");
}

}  // namespace gantry
