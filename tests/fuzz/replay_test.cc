// The fuzz targets without a fuzzer: the corpus, and random inputs and mutations with a fixed seed. Fast,
// deterministic, any compiler. scripts/fuzz searches further.
#include "tests/fuzz/replay.h"
#include "tests/fuzz/fuzz_target.h"

namespace gloo_bypass::fuzz {
namespace {

TEST(FuzzReplay, PacketCorpus_IsHandled) { replay("packet", fuzzPacket, 1); }
TEST(FuzzReplay, SessionCorpus_IsHandled) { replay("session", fuzzSession, 1); }
TEST(FuzzReplay, RailsCorpus_IsHandled) { replay("rails", fuzzRails, 1); }
TEST(FuzzReplay, SealedCorpus_IsHandled) { replay("sealed", fuzzSealed, 1); }
TEST(FuzzReplay, PacketMutations_AreHandled) { mutate("packet", fuzzPacket, 20'000, 300); }
TEST(FuzzReplay, SessionMutations_AreHandled) { mutate("session", fuzzSession, 3'000, 2'000); }
TEST(FuzzReplay, RailsMutations_AreHandled) { mutate("rails", fuzzRails, 1'000, 2'000); }
TEST(FuzzReplay, SealedMutations_AreHandled) { mutate("sealed", fuzzSealed, 1'000, 2'000); }

}  // namespace
}  // namespace gloo_bypass::fuzz
