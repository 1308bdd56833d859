// NCCL's calls over communicators of this process, for tests of what lies above them: operations
// run later, on the thread of their stream; starting and splitting take their time too; the n-th
// call can fail. Using a handle that is destroyed or aborted aborts the test.
#ifndef GANTRY_PARALLEL_COMM_TESTING_EMULATED_NCCL_H_
#define GANTRY_PARALLEL_COMM_TESTING_EMULATED_NCCL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "parallel/comm/nccl_calls.h"

namespace gantry {

// A queue of work with a thread: what a CudaStream points to here.
class EmulatedStream {
 public:
  EmulatedStream();
  ~EmulatedStream();  // does what is queued
  void Enqueue(std::function<void()> work);
  bool Idle();

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::function<void()>> queue_ GANTRY_GUARDED_BY(mutex_);
  bool working_ GANTRY_GUARDED_BY(mutex_) = false;
  bool ending_ GANTRY_GUARDED_BY(mutex_) = false;
  // thread: operations are done behind the caller's back, as on a device.
  std::thread thread_;
};

// What the ranks share: who came with which id.
struct EmulatedNcclWorld {
  struct Meeting {
    std::vector<std::unique_ptr<Communicator>> ends;
    int came = 0;
  };
  Mutex mutex;
  std::map<NcclUniqueId, Meeting> meetings GANTRY_GUARDED_BY(mutex);
};

// One rank's library. Called by one thread, except CommAbort. `world` outlives it.
class EmulatedNccl final : public NcclCalls {
 public:
  explicit EmulatedNccl(EmulatedNcclWorld* world);
  ~EmulatedNccl() override;

  // The call with this number, from 0 on, fails with kSystemError; AsyncError counts too.
  void FailCall(int64_t number) { fail_call_ = number; }
  int64_t calls() const { return calls_; }

  NcclResult GetVersion(int* version) override;
  NcclResult GetUniqueId(NcclUniqueId* id) override;
  NcclResult CommInitRank(NcclHandle* handle, int size, const NcclUniqueId& id, int rank) override;
  NcclResult CommSplit(NcclHandle handle, int color, int key, NcclHandle* made) override;
  NcclResult CommPlace(NcclHandle handle, int* rank, int* size) override;
  NcclResult CommDestroy(NcclHandle handle) override;
  NcclResult CommAbort(NcclHandle handle) override;
  NcclResult AsyncError(NcclHandle handle, NcclResult* result) override;
  NcclResult AllReduce(const CollectiveBuffers& buffers, Reduction reduction,
                       const NcclTarget& target) override;
  NcclResult ReduceScatter(const CollectiveBuffers& buffers, Reduction reduction,
                           const NcclTarget& target) override;
  NcclResult AllGather(const CollectiveBuffers& buffers, const NcclTarget& target) override;
  NcclResult Broadcast(const CollectiveBuffers& buffers, int root,
                       const NcclTarget& target) override;
  NcclResult Send(const OutgoingMessage& message, DType dtype, const NcclTarget& target) override;
  NcclResult Receive(const IncomingMessage& message, DType dtype,
                     const NcclTarget& target) override;
  NcclResult GroupStart() override;
  NcclResult GroupEnd() override;
  std::string ErrorString(NcclResult result) override;
  std::string LastError(NcclHandle handle) override;

 private:
  struct Handle;
  struct Messages {
    NcclTarget target;
    DType dtype = DType::kF32;
    std::vector<OutgoingMessage> outgoing;
    std::vector<IncomingMessage> incoming;
  };

  bool Fails() { return calls_++ == fail_call_; }
  static Handle& Live(NcclHandle handle);
  NcclResult Enqueue(const NcclTarget& target,
                     std::function<absl::Status(Communicator&)> operation);
  NcclResult EnqueueMessages(Messages messages);

  EmulatedNcclWorld* world_;
  int64_t fail_call_ = -1;
  int64_t calls_ = 0;
  EmulatedStream control_;  // where splits happen
  std::vector<std::unique_ptr<Handle>> handles_;
  std::optional<Messages> group_;
};

}  // namespace gantry

#endif  // GANTRY_PARALLEL_COMM_TESTING_EMULATED_NCCL_H_
