// The fuzz targets of files that others made, without a fuzzer.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/replay.h"

namespace gloo_bypass::fuzz {
namespace {

TEST(FuzzFilesReplay, SafetensorsCorpus_IsHandled) { replay("safetensors", fuzzSafetensors, 3); }
TEST(FuzzFilesReplay, SafetensorsMutations_AreHandled) { mutate("safetensors", fuzzSafetensors, 5'000, 300); }

}  // namespace
}  // namespace gloo_bypass::fuzz
