// cuBLASLt's matrices are column-major. A row-major matrix is the column-major one of its
// transpose, so what is asked of the library is C^T = op(B)^T op(A)^T, in which our bias, one
// element for each column of C, is its bias, one for each row.
#include "kernels/cuda/matmul_cublaslt.h"

#include <cublasLt.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/dtype.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/cuda/stream.h"
#include "kernels/cuda/cublaslt_library.h"
#include "kernels/matmul.h"
#include "kernels/views.h"

namespace gantry::cuda {
namespace {

constexpr size_t kAlgorithmsMax = 4096;  // a model has tens of shapes

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF32:
      break;
  }
  return CUDA_R_32F;
}

// Everything that the choice of an algorithm depends on.
struct Problem {
  int64_t m, n, k;  // C is [m, n]
  int64_t a_stride, b_stride, c_stride;
  uint32_t a_alignment, b_alignment, c_alignment, bias_alignment;  // bytes
  DType type, c_type;
  Transpose a_transpose, b_transpose;
  bool has_bias;
  Activation activation;
  Accumulate accumulate;
  uint64_t workspace_bytes;

  auto Key() const {
    return std::tie(m, n, k, a_stride, b_stride, c_stride, a_alignment, b_alignment, c_alignment,
                    bias_alignment, type, c_type, a_transpose, b_transpose, has_bias, activation,
                    accumulate, workspace_bytes);
  }
  bool operator==(const Problem& other) const { return Key() == other.Key(); }
  template <typename H>
  friend H AbslHashValue(H state, const Problem& problem) {
    return H::combine(std::move(state), problem.Key());
  }
};

// The power of two, up to 256, that the address is a multiple of.
uint32_t AlignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

Problem ProblemOf(const FusedMatMulArgs& args) {
  const MatMulArgs& product = args.product;
  const ConstMatrixView& a = product.a.view;
  const ConstMatrixView& b = product.b.view;
  const bool a_turned = product.a.transpose == Transpose::kYes;
  const bool b_turned = product.b.transpose == Transpose::kYes;
  const int64_t depth = a_turned ? a.rows : a.cols;
  GANTRY_CHECK((a_turned ? a.cols : a.rows) == product.c.rows &&
               (b_turned ? b.rows : b.cols) == product.c.cols &&
               (b_turned ? b.cols : b.rows) == depth && depth > 0)
      << "shapes of a product do not agree";
  if (args.bias) {
    GANTRY_CHECK(args.bias->size == product.c.cols && args.bias->dtype == product.c.dtype);
  }
  GANTRY_CHECK(product.accumulate == Accumulate::kOverwrite ||
               (!args.bias && args.activation == Activation::kNone));
  return {.m = product.c.rows,
          .n = product.c.cols,
          .k = depth,
          .a_stride = a.row_stride,
          .b_stride = b.row_stride,
          .c_stride = product.c.row_stride,
          .a_alignment = AlignmentOf(a.data),
          .b_alignment = AlignmentOf(b.data),
          .c_alignment = AlignmentOf(product.c.data),
          .bias_alignment = args.bias ? AlignmentOf(args.bias->data) : 256,
          .type = a.dtype,
          .c_type = product.c.dtype,
          .a_transpose = product.a.transpose,
          .b_transpose = product.b.transpose,
          .has_bias = args.bias.has_value(),
          .activation = args.activation,
          .accumulate = product.accumulate,
          .workspace_bytes = args.workspace.size()};
}

cublasLtEpilogue_t EpilogueOf(const Problem& problem) {
  if (problem.activation == Activation::kGeluTanh) {
    return problem.has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  }
  return problem.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// The library's descriptions of one product, destroyed with this object.
class Descriptions {
 public:
  explicit Descriptions(const CublasLtLibrary& library) : library_(library) {}
  ~Descriptions() {
    if (preference != nullptr) library_.preference_destroy(preference);
    for (cublasLtMatrixLayout_t layout : {first, second, result}) {
      if (layout != nullptr) library_.layout_destroy(layout);
    }
    if (product != nullptr) library_.product_destroy(product);
  }
  Descriptions(const Descriptions&) = delete;
  Descriptions& operator=(const Descriptions&) = delete;

  absl::Status Describe(const Problem& problem, const void* bias) {
    GANTRY_RETURN_IF_ERROR(library_.Check(
        "product", library_.product_create(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
    const auto operation = [](Transpose transpose) {
      return transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
    };
    GANTRY_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSA, operation(problem.b_transpose)));
    GANTRY_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSB, operation(problem.a_transpose)));
    GANTRY_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(problem)));
    if (problem.has_bias) {
      GANTRY_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
      GANTRY_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(problem.c_type)));
    }
    const bool a_turned = problem.a_transpose == Transpose::kYes;
    const bool b_turned = problem.b_transpose == Transpose::kYes;
    GANTRY_RETURN_IF_ERROR(
        Layout(first, TypeOf(problem.type),
               {.rows = b_turned ? problem.n : problem.k, .cols = b_turned ? problem.k : problem.n},
               problem.b_stride));
    GANTRY_RETURN_IF_ERROR(
        Layout(second, TypeOf(problem.type),
               {.rows = a_turned ? problem.k : problem.m, .cols = a_turned ? problem.m : problem.k},
               problem.a_stride));
    return Layout(result, TypeOf(problem.c_type), {.rows = problem.m, .cols = problem.n},
                  problem.c_stride);
  }

  absl::Status Prefer(const Problem& problem) {
    GANTRY_RETURN_IF_ERROR(library_.Check("preference", library_.preference_create(&preference)));
    // Parts of a sum may be added up in the workspace, in order, but not in C by atomic additions.
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    GANTRY_RETURN_IF_ERROR(Prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
    GANTRY_RETURN_IF_ERROR(
        Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, problem.workspace_bytes));
    GANTRY_RETURN_IF_ERROR(Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.b_alignment));
    GANTRY_RETURN_IF_ERROR(Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.a_alignment));
    GANTRY_RETURN_IF_ERROR(Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.c_alignment));
    return Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.c_alignment);
  }

  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t first = nullptr;   // B
  cublasLtMatrixLayout_t second = nullptr;  // A
  cublasLtMatrixLayout_t result = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;

 private:
  template <typename Value>
  absl::Status Set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    return library_.Check("attribute of a product",
                          library_.product_set(product, attribute, &value, sizeof(value)));
  }
  template <typename Value>
  absl::Status Prefer(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    return library_.Check("attribute of a preference",
                          library_.preference_set(preference, attribute, &value, sizeof(value)));
  }
  // Of a row-major matrix in memory.
  absl::Status Layout(cublasLtMatrixLayout_t& layout, cudaDataType_t type, MatrixShape shape,
                      int64_t stride) {
    return library_.Check("layout",
                          library_.layout_create(&layout, type, static_cast<uint64_t>(shape.cols),
                                                 static_cast<uint64_t>(shape.rows), stride));
  }

  const CublasLtLibrary& library_;
};

}  // namespace

class CublasLtMatMul::Impl {
 public:
  Impl(const CublasLtLibrary& library, cublasLtHandle_t handle)
      : library_(library), handle_(handle) {}
  ~Impl() { library_.destroy(handle_); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Run(CudaStream stream, const FusedMatMulArgs& args) {
    const Problem problem = ProblemOf(args);
    if (problem.m == 0 || problem.n == 0) return absl::OkStatus();
    if (args.product.b.view.dtype != problem.type ||
        (problem.c_type != problem.type && problem.c_type != DType::kF32)) {
      return InvalidArgument("cuBLASLt multiplies operands of one type into it or into f32, not ",
                             Name(problem.type), " and ", Name(args.product.b.view.dtype), " into ",
                             Name(problem.c_type));
    }
    Descriptions descriptions(library_);
    GANTRY_RETURN_IF_ERROR(descriptions.Describe(problem, args.bias ? args.bias->data : nullptr));
    GANTRY_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t algorithm,
                            AlgorithmFor(problem, descriptions));
    const float one = 1.0F;
    const float beta = problem.accumulate == Accumulate::kAdd ? 1.0F : 0.0F;
    return library_.Check(
        "multiplication",
        library_.multiply(handle_, descriptions.product, &one, args.product.b.view.data,
                          descriptions.first, args.product.a.view.data, descriptions.second, &beta,
                          args.product.c.data, descriptions.result, args.product.c.data,
                          descriptions.result, &algorithm, args.workspace.data(),
                          args.workspace.size(), static_cast<cudaStream_t>(stream)));
  }

 private:
  absl::StatusOr<cublasLtMatmulAlgo_t> AlgorithmFor(const Problem& problem,
                                                    Descriptions& descriptions) {
    MutexLock lock(mutex_);
    if (const auto found = algorithms_.find(problem); found != algorithms_.end()) {
      return found->second;
    }
    GANTRY_RETURN_IF_ERROR(descriptions.Prefer(problem));
    cublasLtMatmulHeuristicResult_t best{};
    int count = 0;
    const cublasStatus_t status = library_.choose(
        handle_, descriptions.product, descriptions.first, descriptions.second, descriptions.result,
        descriptions.result, descriptions.preference, 1, &best, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0)) {
      return InvalidArgument("cuBLASLt has no algorithm for a product of ", problem.m, " x ",
                             problem.k, " by ", problem.k, " x ", problem.n, " of ",
                             Name(problem.type), " into ", Name(problem.c_type));
    }
    GANTRY_RETURN_IF_ERROR(library_.Check("choice of an algorithm", status));
    if (algorithms_.size() >= kAlgorithmsMax) algorithms_.clear();
    algorithms_.emplace(problem, best.algo);
    return best.algo;
  }

  const CublasLtLibrary library_;
  const cublasLtHandle_t handle_;
  Mutex mutex_;
  absl::flat_hash_map<Problem, cublasLtMatmulAlgo_t> algorithms_ GANTRY_GUARDED_BY(mutex_);
};

CublasLtMatMul::CublasLtMatMul(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CublasLtMatMul::~CublasLtMatMul() = default;

absl::StatusOr<std::unique_ptr<CublasLtMatMul>> CublasLtMatMul::Create() {
  GANTRY_ASSIGN_OR_RETURN(const CublasLtLibrary library, CublasLtLibrary::Load());
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = library.create(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return Unavailable("matrix products on GPUs: cuBLASLt finds no device: ",
                       std::string_view(library.status_name(status)));
  }
  return std::unique_ptr<CublasLtMatMul>(
      new CublasLtMatMul(std::make_unique<Impl>(library, handle)));
}

absl::Status CublasLtMatMul::Run(CudaStream stream, const FusedMatMulArgs& args) {
  return impl_->Run(stream, args);
}

}  // namespace gantry::cuda
