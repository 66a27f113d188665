// The fuzz targets of keys, without a fuzzer.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/replay.h"

namespace gloo_bypass::fuzz {
namespace {

TEST(FuzzKeysReplay, KeyFileCorpus_IsHandled) { replay("key_file", fuzzKeyFile, 3); }
TEST(FuzzKeysReplay, KeyFileMutations_AreHandled) { mutate("key_file", fuzzKeyFile, 5'000, 80); }
TEST(FuzzKeysReplay, OfferCorpus_IsHandled) { replay("offer", fuzzOffer, 3); }
TEST(FuzzKeysReplay, OfferMutations_AreHandled) { mutate("offer", fuzzOffer, 1'000, 60); }

}  // namespace
}  // namespace gloo_bypass::fuzz
