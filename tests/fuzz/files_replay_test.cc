// The fuzz targets of files that others made, without a fuzzer.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/replay.h"

namespace gloo_bypass::fuzz {
namespace {

TEST(FuzzFilesReplay, SafetensorsCorpus_IsHandled) { replay("safetensors", fuzzSafetensors, 3); }
TEST(FuzzFilesReplay, SafetensorsMutations_AreHandled) { mutate("safetensors", fuzzSafetensors, 5'000, 300); }
TEST(FuzzFilesReplay, ConfigCorpus_IsHandled) { replay("config", fuzzConfig, 3); }
TEST(FuzzFilesReplay, ConfigMutations_AreHandled) { mutate("config", fuzzConfig, 5'000, 300); }
TEST(FuzzFilesReplay, ShardsCorpus_IsHandled) { replay("shards", fuzzShards, 3); }
TEST(FuzzFilesReplay, ShardsMutations_AreHandled) { mutate("shards", fuzzShards, 3'000, 60); }
TEST(FuzzFilesReplay, ChoicesCorpus_IsHandled) { replay("choices", fuzzChoices, 3); }
TEST(FuzzFilesReplay, ChoicesMutations_AreHandled) { mutate("choices", fuzzChoices, 5'000, 200); }

}  // namespace
}  // namespace gloo_bypass::fuzz
