// The fuzz target of the benchmark's store, without a fuzzer.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/replay.h"

namespace gloo_bypass::fuzz {
namespace {

TEST(FuzzStoreReplay, Corpus_IsHandled) { replay("store", fuzzStore, 3); }
TEST(FuzzStoreReplay, Mutations_AreHandled) { mutate("store", fuzzStore, 300, 200); }

}  // namespace
}  // namespace gloo_bypass::fuzz
