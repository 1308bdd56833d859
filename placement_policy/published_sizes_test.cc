// The shapes count as many parameters as the published checkpoints hold.
#include "placement_policy/published_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/testing/status_matchers.h"
#include "placement_policy/model_shape.h"
#include "placement_policy/model_structure.h"

namespace gantry {
namespace {

const std::map<std::string, int64_t> kParameters = {
    {"GPT-2 124M", 124'439'808},
    {"GPT-2 355M", 354'823'168},
    {"GPT-2 774M", 774'030'080},
    {"GPT-2 1.5B", 1'557'611'200},
    {"Llama-3.2 1B", 1'235'814'400},
    {"Llama-3.2 3B", 3'212'749'824},
    {"Llama-2 7B", 6'738'415'616},
    {"Llama-3.1 8B", 8'030'261'248},
    {"Llama-2 13B", 13'015'864'320},
    {"Llama-3.1 70B", 70'553'706'496},
    {"Llama-3.1 405B", 405'853'388'800},
    {"Mistral 7B", 7'241'732'096},
    {"Mistral Nemo 12B", 12'247'782'400},
    {"Mistral Small 24B", 23'572'403'200},
    {"Mistral Large 123B", 122'610'069'504},
    {"Mixtral 8x7B", 46'702'792'704},
    {"Mixtral 8x22B", 140'620'634'112},
    {"Qwen2.5 0.5B", 494'032'768},
    {"Qwen2.5 1.5B", 1'543'714'304},
    {"Qwen2.5 3B", 3'085'938'688},
    {"Qwen2.5 7B", 7'615'616'512},
    {"Qwen2.5 14B", 14'770'033'664},
    {"Qwen2.5 32B", 32'763'876'352},
    {"Qwen2.5 72B", 72'706'203'648},
    {"Qwen3 0.6B", 596'049'920},
    {"Qwen3 1.7B", 1'720'574'976},
    {"Qwen3 4B", 4'022'468'096},
    {"Qwen3 8B", 8'190'735'360},
    {"Qwen3 14B", 14'768'307'200},
    {"Qwen3 32B", 32'762'123'264},
    {"DeepSeek-V3 671B", 671'026'419'200},
};

TEST(PublishedSizesTest, CountTheParametersOfThePublishedCheckpoints) {
  size_t all = 0;
  for (const ModelFamily family : AllModelFamilies()) {
    int64_t before = 0;
    for (const PublishedSize& size : PublishedSizes(family)) {
      SCOPED_TRACE(size.name);
      EXPECT_THAT(size.shape.Validate(), IsOk());
      EXPECT_EQ(size.shape.family, family);
      ASSERT_TRUE(kParameters.contains(size.name));
      const int64_t parameters = ParameterCount(size.shape);
      EXPECT_EQ(parameters, kParameters.at(size.name));
      EXPECT_GT(parameters, before);
      before = parameters;
      ++all;
    }
    EXPECT_GT(before, 0);
  }
  EXPECT_EQ(all, kParameters.size());
}

}  // namespace
}  // namespace gantry
