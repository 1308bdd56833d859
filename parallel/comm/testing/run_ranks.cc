#include "parallel/comm/testing/run_ranks.h"

#include <memory>
#include <thread>

#include "parallel/comm/in_process.h"

namespace gantry {

std::vector<absl::Status> RunRanks(int size,
                                   const std::function<absl::Status(Communicator&)>& body) {
  std::vector<std::unique_ptr<Communicator>> ranks = InProcessRanks(size);
  std::vector<absl::Status> results(static_cast<size_t>(size));
  // thread: every rank needs one of its own, as collectives block.
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] = body(*ranks[rank]);
      ranks[rank].reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace gantry
