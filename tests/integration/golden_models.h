// What Transformers computed with tiny models, in trainer/models/testdata, and how far from it a
// result is. Aborts where a file is not as expected.
#ifndef GANTRY_TESTS_INTEGRATION_GOLDEN_MODELS_H_
#define GANTRY_TESTS_INTEGRATION_GOLDEN_MODELS_H_

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"
#include "base/file_calls.h"
#include "base/ids.h"
#include "gemini/parameter_store.h"
#include "trainer/models/decoder_config.h"
#include "trainer/models/families.h"
#include "trainer/safetensors/reader.h"

namespace gantry {

inline constexpr int64_t kGoldenSequences = 2;
inline constexpr int64_t kGoldenLength = 13;
inline constexpr int64_t kGoldenVocabulary = 41;
inline constexpr int64_t kGoldenSteps = 5;

// The optimizer of make_goldens.py.
OptimizerStep GoldenOptimizer(int64_t step);

struct GoldenModel {
  std::string name;
  DecoderConfig config;
};
inline std::ostream& operator<<(std::ostream& out, const GoldenModel& model) {
  return out << model.name;
}

// The settings of the config.json in each file's metadata.
std::vector<GoldenModel> GoldenModels();
// One of them. REQUIRES: it is there.
GoldenModel GoldenModelOf(const std::string& name);

using Values = std::vector<double>;

// The L2 norm of a - b.
double Difference(const Values& a, const Values& b);
// That over the norm of the golden one.
double Distance(const Values& actual, const Values& golden);

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name);

  template <typename T>
  std::vector<T> Read(const std::string& name) const {
    const StoredTensor* tensor = reader_.Find(name);
    GANTRY_CHECK(tensor != nullptr) << name;
    std::vector<T> values(static_cast<size_t>(tensor->bytes) / sizeof(T));
    GANTRY_CHECK_OK(reader_.ReadInto(*tensor, 0, std::as_writable_bytes(std::span(values))));
    return values;
  }
  Values Floats(const std::string& name) const {
    const std::vector<float> values = Read<float>(name);
    return {values.begin(), values.end()};
  }
  // A parameter's values as they are in memory.
  Values OfParameter(const std::string& kind, const DecoderTensor& tensor) const;
  // How many tensors' names begin so.
  int64_t CountOf(const std::string& kind) const;

 private:
  PosixFileCalls files_;
  SafetensorsReader reader_;
};

// Writes a parameter. Between steps.
struct ParameterToWrite {
  TensorId id;
  DType dtype;
};
void WriteValues(ParameterStore& store, const ParameterToWrite& to, const Values& values);

}  // namespace gantry

#endif  // GANTRY_TESTS_INTEGRATION_GOLDEN_MODELS_H_
