// The links' parsers without a fuzzer: the corpus, and random inputs and mutations with a fixed seed. scripts/fuzz
// searches further.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/replay.h"

namespace gloo_bypass::fuzz {
namespace {

TEST(FuzzReplay, FrameCorpus_IsHandled) { replay("frame", fuzzFrame, 4); }
TEST(FuzzReplay, FrameMutations_AreHandled) { mutate("frame", fuzzFrame, 20'000, 100); }
TEST(FuzzReplay, RdmaFrameCorpus_IsHandled) { replay("rdma_frame", fuzzRdmaFrame, 3); }
TEST(FuzzReplay, RdmaFrameMutations_AreHandled) { mutate("rdma_frame", fuzzRdmaFrame, 20'000, 100); }
TEST(FuzzReplay, AddressCorpus_IsHandled) { replay("address", fuzzAddress, 4); }
TEST(FuzzReplay, AddressMutations_AreHandled) { mutate("address", fuzzAddress, 20'000, 200); }
TEST(FuzzReplay, MemifCorpus_IsHandled) { replay("memif", fuzzMemif, 4); }
TEST(FuzzReplay, MemifMutations_AreHandled) { mutate("memif", fuzzMemif, 3'000, 100); }
TEST(FuzzReplay, ControlCorpus_IsHandled) { replay("control", fuzzControl, 3); }
TEST(FuzzReplay, ControlMutations_AreHandled) { mutate("control", fuzzControl, 500, 200); }

}  // namespace
}  // namespace gloo_bypass::fuzz
