// The fuzz target of our own collectives, without a fuzzer.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/replay.h"

namespace gloo_bypass::fuzz {
namespace {

TEST(FuzzCollectivesReplay, Corpus_IsHandled) { replay("collectives", fuzzCollectives, 4); }
TEST(FuzzCollectivesReplay, Mutations_AreHandled) { mutate("collectives", fuzzCollectives, 20'000, 300); }

}  // namespace
}  // namespace gloo_bypass::fuzz
