#include "kernels/onednn.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"

// From the OpenMP runtime that oneDNN links. Declared here because <omp.h> comes with a compiler,
// and not with every one that builds this.
extern "C" void omp_set_num_threads(int threads);
extern "C" int omp_get_max_threads(void);

namespace gantry::onednn {

ScopedSingleThread::ScopedSingleThread() : threads_before_(omp_get_max_threads()) {
  omp_set_num_threads(1);
}
ScopedSingleThread::~ScopedSingleThread() { omp_set_num_threads(threads_before_); }

bool HasNativeBF16() {
  const unsigned isa = dnnl_get_effective_cpu_isa();
  return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

absl::Status ToStatus(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return absl::OkStatus();
  if (status == dnnl_out_of_memory) return ResourceExhausted("oneDNN: ", what, ": out of memory");
  return Internal("oneDNN: ", what, ": status ", static_cast<int>(status));
}

absl::StatusOr<Engine> CreateCpuEngine() {
  dnnl_engine_t engine = nullptr;
  GANTRY_RETURN_IF_ERROR(ToStatus(dnnl_engine_create(&engine, dnnl_cpu, 0), "create engine"));
  return Engine(engine);
}

absl::StatusOr<Stream> CreateStream(dnnl_engine_t engine) {
  dnnl_stream_t stream = nullptr;
  GANTRY_RETURN_IF_ERROR(
      ToStatus(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "create stream"));
  return Stream(stream);
}

namespace {

struct AttributesDeleter {
  void operator()(dnnl_primitive_attr_t attributes) const {
    dnnl_primitive_attr_destroy(attributes);
  }
};
struct PostOpsDeleter {
  void operator()(dnnl_post_ops_t post_ops) const { dnnl_post_ops_destroy(post_ops); }
};
struct DescriptionDeleter {
  void operator()(dnnl_primitive_desc_t description) const {
    dnnl_primitive_desc_destroy(description);
  }
};
struct MemoryDeleter {
  void operator()(dnnl_memory_t memory) const { dnnl_memory_destroy(memory); }
};
using Attributes = std::unique_ptr<std::remove_pointer_t<dnnl_primitive_attr_t>, AttributesDeleter>;
using Description =
    std::unique_ptr<std::remove_pointer_t<dnnl_primitive_desc_t>, DescriptionDeleter>;
using Memory = std::unique_ptr<std::remove_pointer_t<dnnl_memory_t>, MemoryDeleter>;

struct Layout {
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
  int64_t column_stride;
  DType dtype;
};

absl::Status Describe(const Layout& layout, dnnl_memory_desc_t* description) {
  const dnnl_dims_t dims = {layout.rows, layout.cols};
  const dnnl_dims_t strides = {layout.row_stride, layout.column_stride};
  const dnnl_data_type_t type = layout.dtype == DType::kF32 ? dnnl_f32 : dnnl_bf16;
  return ToStatus(dnnl_memory_desc_init_by_strides(description, 2, dims, type, strides),
                  "describe operand");
}

// Scratch comes from the caller; kAdd is a sum into the destination, before its rounding.
absl::StatusOr<Attributes> MakeAttributes(Accumulate accumulate) {
  dnnl_primitive_attr_t created = nullptr;
  GANTRY_RETURN_IF_ERROR(ToStatus(dnnl_primitive_attr_create(&created), "create attributes"));
  Attributes attributes(created);
  GANTRY_RETURN_IF_ERROR(
      ToStatus(dnnl_primitive_attr_set_scratchpad_mode(created, dnnl_scratchpad_mode_user),
               "set scratchpad mode"));
  if (accumulate == Accumulate::kAdd) {
    dnnl_post_ops_t post_ops = nullptr;
    GANTRY_RETURN_IF_ERROR(ToStatus(dnnl_post_ops_create(&post_ops), "create post-operations"));
    const std::unique_ptr<std::remove_pointer_t<dnnl_post_ops_t>, PostOpsDeleter> owner(post_ops);
    GANTRY_RETURN_IF_ERROR(ToStatus(dnnl_post_ops_append_sum(post_ops, 1.0f), "append sum"));
    GANTRY_RETURN_IF_ERROR(
        ToStatus(dnnl_primitive_attr_set_post_ops(created, post_ops), "set post-operations"));
  }
  return attributes;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const BF16Product>> BF16Product::Create(dnnl_engine_t engine,
                                                                       const ProductShape& shape) {
  auto product = std::shared_ptr<BF16Product>(new BF16Product());
  product->engine_ = engine;
  GANTRY_RETURN_IF_ERROR(Describe({.rows = shape.m,
                                   .cols = shape.k,
                                   .row_stride = shape.a_row_stride,
                                   .column_stride = shape.a_column_stride,
                                   .dtype = DType::kBF16},
                                  &product->a_));
  GANTRY_RETURN_IF_ERROR(Describe({.rows = shape.k,
                                   .cols = shape.n,
                                   .row_stride = shape.b_row_stride,
                                   .column_stride = shape.b_column_stride,
                                   .dtype = DType::kBF16},
                                  &product->b_));
  GANTRY_RETURN_IF_ERROR(Describe({.rows = shape.m,
                                   .cols = shape.n,
                                   .row_stride = shape.c_row_stride,
                                   .column_stride = 1,
                                   .dtype = shape.c_dtype},
                                  &product->c_));
  dnnl_matmul_desc_t operation = {};
  GANTRY_RETURN_IF_ERROR(
      ToStatus(dnnl_matmul_desc_init(&operation, &product->a_, &product->b_, nullptr, &product->c_),
               "describe product"));
  GANTRY_ASSIGN_OR_RETURN(const Attributes attributes, MakeAttributes(shape.accumulate));
  dnnl_primitive_desc_t created = nullptr;
  GANTRY_RETURN_IF_ERROR(
      ToStatus(dnnl_primitive_desc_create(&created, &operation, attributes.get(), engine, nullptr),
               "plan product"));
  const Description description(created);
  product->scratch_ = *dnnl_primitive_desc_query_md(created, dnnl_query_scratchpad_md, 0);
  product->scratch_bytes_ =
      Bytes(static_cast<int64_t>(dnnl_memory_desc_get_size(&product->scratch_)));
  dnnl_primitive_t primitive = nullptr;
  GANTRY_RETURN_IF_ERROR(ToStatus(dnnl_primitive_create(&primitive, created), "compile product"));
  product->primitive_.reset(primitive);
  return std::shared_ptr<const BF16Product>(std::move(product));
}

absl::Status BF16Product::Execute(dnnl_stream_t stream, const Pointers& pointers) const {
  struct Argument {
    int index;
    const dnnl_memory_desc_t* description;
    const std::byte* data;
  };
  const Argument arguments[] = {{DNNL_ARG_SRC, &a_, pointers.a},
                                {DNNL_ARG_WEIGHTS, &b_, pointers.b},
                                {DNNL_ARG_DST, &c_, pointers.c},
                                {DNNL_ARG_SCRATCHPAD, &scratch_, pointers.scratch}};
  constexpr int kCount = 4;
  Memory memories[kCount];
  dnnl_exec_arg_t bound[kCount];
  for (int i = 0; i < kCount; ++i) {
    dnnl_memory_t memory = nullptr;
    // oneDNN's interface has no const; inputs are only read.
    void* data = const_cast<std::byte*>(arguments[i].data);
    GANTRY_RETURN_IF_ERROR(ToStatus(
        dnnl_memory_create(&memory, arguments[i].description, engine_, data), "bind operand"));
    memories[i].reset(memory);
    bound[i] = {arguments[i].index, memory};
  }
  return ToStatus(dnnl_primitive_execute(primitive_.get(), stream, kCount, bound), "multiply");
}

absl::StatusOr<std::shared_ptr<const BF16Product>> BF16ProductCache::Get(
    const ProductShape& shape) {
  const Key key = {shape.m,
                   shape.n,
                   shape.k,
                   shape.a_row_stride,
                   shape.a_column_stride,
                   shape.b_row_stride,
                   shape.b_column_stride,
                   shape.c_row_stride,
                   static_cast<int64_t>(shape.c_dtype),
                   static_cast<int64_t>(shape.accumulate)};
  MutexLock lock(mutex_);
  if (const auto found = products_.find(key); found != products_.end()) {
    found->second.last_use = ++uses_;
    return found->second.product;
  }
  // Compiled under the lock: milliseconds, once per shape, and never twice.
  GANTRY_ASSIGN_OR_RETURN(auto product, BF16Product::Create(engine_, shape));
  if (static_cast<int64_t>(products_.size()) >= products_max_) DropLeastRecentlyUsed();
  products_[key] = {.product = product, .last_use = ++uses_};
  return product;
}

void BF16ProductCache::DropLeastRecentlyUsed() {
  const auto oldest = std::min_element(
      products_.begin(), products_.end(),
      [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
  products_.erase(oldest);
}

}  // namespace gantry::onednn
