#include "parallel/comm/nccl_library.h"

#include <dlfcn.h>
#include <nccl.h>

#include <cstring>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(NcclUniqueId));
static_assert(static_cast<int>(NcclResult::kRemoteError) == ncclRemoteError);
static_assert(static_cast<int>(NcclResult::kInProgress) == ncclInProgress);

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF16:
      return ncclFloat16;
  }
  return ncclFloat32;
}

ncclRedOp_t OperationOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return ncclSum;
    case Reduction::kMax:
      return ncclMax;
    case Reduction::kMin:
      return ncclMin;
  }
  return ncclSum;
}

size_t CountOf(int64_t count) {
  GANTRY_CHECK(count >= 0) << count;
  return static_cast<size_t>(count);
}

ncclComm_t CommOf(NcclHandle handle) { return static_cast<ncclComm_t>(handle); }
ncclComm_t CommOf(const NcclTarget& target) { return CommOf(target.handle); }
auto StreamOf(const NcclTarget& target) { return static_cast<cudaStream_t>(target.stream); }
NcclResult ResultOf(ncclResult_t result) { return static_cast<NcclResult>(result); }

// The library's functions, by the types of NCCL's header.
struct Functions {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommSplit) comm_split = nullptr;
  decltype(&ncclCommUserRank) comm_user_rank = nullptr;
  decltype(&ncclCommCount) comm_count = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
};

class NcclLibrary final : public NcclCalls {
 public:
  explicit NcclLibrary(const Functions& functions) : functions_(functions) {}

  NcclResult GetVersion(int* version) override { return ResultOf(functions_.get_version(version)); }
  NcclResult GetUniqueId(NcclUniqueId* id) override {
    ncclUniqueId unique;
    const ncclResult_t result = functions_.get_unique_id(&unique);
    std::memcpy(id->data(), unique.internal, id->size());
    return ResultOf(result);
  }
  NcclResult CommInitRank(NcclHandle* handle, int size, const NcclUniqueId& id, int rank) override {
    ncclUniqueId unique;
    std::memcpy(unique.internal, id.data(), id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ResultOf(functions_.comm_init_rank_config(reinterpret_cast<ncclComm_t*>(handle), size,
                                                     unique, rank, &config));
  }
  NcclResult CommSplit(NcclHandle handle, int color, int key, NcclHandle* made) override {
    return ResultOf(functions_.comm_split(CommOf(handle), color < 0 ? NCCL_SPLIT_NOCOLOR : color,
                                          key, reinterpret_cast<ncclComm_t*>(made), nullptr));
  }
  NcclResult CommPlace(NcclHandle handle, int* rank, int* size) override {
    const ncclResult_t result = functions_.comm_user_rank(CommOf(handle), rank);
    if (result != ncclSuccess) return ResultOf(result);
    return ResultOf(functions_.comm_count(CommOf(handle), size));
  }
  NcclResult CommDestroy(NcclHandle handle) override {
    return ResultOf(functions_.comm_destroy(CommOf(handle)));
  }
  NcclResult CommAbort(NcclHandle handle) override {
    return ResultOf(functions_.comm_abort(CommOf(handle)));
  }
  NcclResult AsyncError(NcclHandle handle, NcclResult* result) override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t called = functions_.comm_get_async_error(CommOf(handle), &state);
    *result = ResultOf(state);
    return ResultOf(called);
  }

  NcclResult AllReduce(const CollectiveBuffers& buffers, Reduction reduction,
                       const NcclTarget& target) override {
    return ResultOf(functions_.all_reduce(buffers.input, buffers.output, CountOf(buffers.count),
                                          TypeOf(buffers.dtype), OperationOf(reduction),
                                          CommOf(target), StreamOf(target)));
  }
  NcclResult ReduceScatter(const CollectiveBuffers& buffers, Reduction reduction,
                           const NcclTarget& target) override {
    return ResultOf(functions_.reduce_scatter(buffers.input, buffers.output, CountOf(buffers.count),
                                              TypeOf(buffers.dtype), OperationOf(reduction),
                                              CommOf(target), StreamOf(target)));
  }
  NcclResult AllGather(const CollectiveBuffers& buffers, const NcclTarget& target) override {
    return ResultOf(functions_.all_gather(buffers.input, buffers.output, CountOf(buffers.count),
                                          TypeOf(buffers.dtype), CommOf(target), StreamOf(target)));
  }
  NcclResult Broadcast(const CollectiveBuffers& buffers, int root,
                       const NcclTarget& target) override {
    return ResultOf(functions_.broadcast(buffers.input, buffers.output, CountOf(buffers.count),
                                         TypeOf(buffers.dtype), root, CommOf(target),
                                         StreamOf(target)));
  }
  NcclResult Send(const OutgoingMessage& message, DType dtype, const NcclTarget& target) override {
    return ResultOf(functions_.send(message.data, CountOf(message.count), TypeOf(dtype),
                                    message.peer, CommOf(target), StreamOf(target)));
  }
  NcclResult Receive(const IncomingMessage& message, DType dtype,
                     const NcclTarget& target) override {
    return ResultOf(functions_.receive(message.data, CountOf(message.count), TypeOf(dtype),
                                       message.peer, CommOf(target), StreamOf(target)));
  }
  NcclResult GroupStart() override { return ResultOf(functions_.group_start()); }
  NcclResult GroupEnd() override { return ResultOf(functions_.group_end()); }

  std::string ErrorString(NcclResult result) override {
    return functions_.get_error_string(static_cast<ncclResult_t>(result));
  }
  std::string LastError(NcclHandle handle) override {
    const char* text = functions_.get_last_error(CommOf(handle));
    return text == nullptr ? "" : text;
  }

 private:
  Functions functions_;
};

// Finds functions in a library until one is missing.
class Finder {
 public:
  explicit Finder(void* library) : library_(library) {}
  template <typename Function>
  void Find(const char* name, Function& function) {
    void* found = dlsym(library_, name);
    if (found == nullptr && missing_.empty()) missing_ = name;
    function = reinterpret_cast<Function>(found);
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

absl::StatusOr<Functions> FindFunctions(void* library, const std::string& name) {
  Functions functions;
  Finder finder(library);
  finder.Find("ncclGetVersion", functions.get_version);
  finder.Find("ncclGetUniqueId", functions.get_unique_id);
  finder.Find("ncclCommInitRankConfig", functions.comm_init_rank_config);
  finder.Find("ncclCommSplit", functions.comm_split);
  finder.Find("ncclCommUserRank", functions.comm_user_rank);
  finder.Find("ncclCommCount", functions.comm_count);
  finder.Find("ncclCommDestroy", functions.comm_destroy);
  finder.Find("ncclCommAbort", functions.comm_abort);
  finder.Find("ncclCommGetAsyncError", functions.comm_get_async_error);
  finder.Find("ncclAllReduce", functions.all_reduce);
  finder.Find("ncclReduceScatter", functions.reduce_scatter);
  finder.Find("ncclAllGather", functions.all_gather);
  finder.Find("ncclBroadcast", functions.broadcast);
  finder.Find("ncclSend", functions.send);
  finder.Find("ncclRecv", functions.receive);
  finder.Find("ncclGroupStart", functions.group_start);
  finder.Find("ncclGroupEnd", functions.group_end);
  finder.Find("ncclGetErrorString", functions.get_error_string);
  finder.Find("ncclGetLastError", functions.get_last_error);
  if (finder.missing().empty()) return functions;
  return NotFound(name, " has no ", finder.missing(), "; NCCL 2.18.1 or newer is needed");
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCalls>> LoadNccl(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return NotFound("NCCL was not found (", dlerror(),
                    "); install it, or name its folder in LD_LIBRARY_PATH");
  }
  GANTRY_ASSIGN_OR_RETURN(const Functions functions, FindFunctions(library, name));
  auto calls = std::make_unique<NcclLibrary>(functions);
  int version = 0;
  const NcclResult result = calls->GetVersion(&version);
  if (result != NcclResult::kSuccess || version < kNcclVersionLeast) {
    return FailedPrecondition("NCCL ", version / 10000, ".", version / 100 % 100, ".",
                              version % 100, " was found; 2.18.1 or newer is needed");
  }
  return calls;
}

}  // namespace gantry
