// oneDNN's C interface behind our types: single-threaded matrix products on raw pointers. Used by
// matmul.cc only.
//
// oneDNN (Debian's build) parallelises with OpenMP, whose spinning workers would fight our thread
// team for the cores; ScopedSingleThread holds it to the calling thread.
#ifndef GANTRY_KERNELS_ONEDNN_H_
#define GANTRY_KERNELS_ONEDNN_H_

#include <oneapi/dnnl/dnnl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/mutex.h"
#include "kernels/views.h"

namespace gantry::onednn {

// While alive, parallel regions that the calling thread starts in OpenMP have one thread.
class ScopedSingleThread {
 public:
  ScopedSingleThread();
  ~ScopedSingleThread();
  ScopedSingleThread(const ScopedSingleThread&) = delete;
  ScopedSingleThread& operator=(const ScopedSingleThread&) = delete;

 private:
  int threads_before_;
};

// True when bf16 products run on bf16 instructions.
bool HasNativeBF16();

// kResourceExhausted for dnnl_out_of_memory, else kInternal naming the status; OK for success.
absl::Status ToStatus(dnnl_status_t status, const char* what);

struct EngineDeleter {
  void operator()(dnnl_engine_t engine) const { dnnl_engine_destroy(engine); }
};
struct StreamDeleter {
  void operator()(dnnl_stream_t stream) const { dnnl_stream_destroy(stream); }
};
struct PrimitiveDeleter {
  void operator()(dnnl_primitive_t primitive) const { dnnl_primitive_destroy(primitive); }
};
using Engine = std::unique_ptr<std::remove_pointer_t<dnnl_engine_t>, EngineDeleter>;
using Stream = std::unique_ptr<std::remove_pointer_t<dnnl_stream_t>, StreamDeleter>;
using Primitive = std::unique_ptr<std::remove_pointer_t<dnnl_primitive_t>, PrimitiveDeleter>;

absl::StatusOr<Engine> CreateCpuEngine();
absl::StatusOr<Stream> CreateStream(dnnl_engine_t engine);

// A product of bf16 A[m, k] and B[k, n]; strides in elements, of which one per operand is 1.
struct ProductShape {
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t a_row_stride;
  int64_t a_column_stride;
  int64_t b_row_stride;
  int64_t b_column_stride;
  int64_t c_row_stride;
  DType c_dtype;
  Accumulate accumulate;
};

// A compiled bf16 product. Immutable; Execute may run on several threads with their own streams
// and scratch.
class BF16Product {
 public:
  struct Pointers {
    const std::byte* a;
    const std::byte* b;
    std::byte* c;
    std::byte* scratch;  // scratch_bytes()
  };
  static absl::StatusOr<std::shared_ptr<const BF16Product>> Create(dnnl_engine_t engine,
                                                                   const ProductShape& shape);
  Bytes scratch_bytes() const { return scratch_bytes_; }
  absl::Status Execute(dnnl_stream_t stream, const Pointers& pointers) const;

 private:
  BF16Product() = default;

  dnnl_engine_t engine_ = nullptr;
  Primitive primitive_;
  dnnl_memory_desc_t a_ = {};
  dnnl_memory_desc_t b_ = {};
  dnnl_memory_desc_t c_ = {};
  dnnl_memory_desc_t scratch_ = {};
  Bytes scratch_bytes_ = Bytes::Zero();
};

// Compiled products by shape, least recently used ones dropped above a bound. Thread-safe.
class BF16ProductCache {
 public:
  // `engine` must outlive the cache.
  BF16ProductCache(dnnl_engine_t engine, int64_t products_max)
      : engine_(engine), products_max_(products_max) {}
  absl::StatusOr<std::shared_ptr<const BF16Product>> Get(const ProductShape& shape);

 private:
  using Key = std::array<int64_t, 10>;
  struct Entry {
    std::shared_ptr<const BF16Product> product;  // shared with running products
    int64_t last_use;
  };
  void DropLeastRecentlyUsed() GANTRY_REQUIRES(mutex_);

  const dnnl_engine_t engine_;
  const int64_t products_max_;
  Mutex mutex_;
  int64_t uses_ GANTRY_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<Key, Entry> products_ GANTRY_GUARDED_BY(mutex_);
};

}  // namespace gantry::onednn

#endif  // GANTRY_KERNELS_ONEDNN_H_
