// The fuzz targets of puts and gets, without a fuzzer.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/replay.h"

namespace gloo_bypass::fuzz {
namespace {

TEST(FuzzRemoteReplay, RemoteMessageCorpus_IsHandled) { replay("remote_message", fuzzRemoteMessage, 3); }
TEST(FuzzRemoteReplay, RemoteMessageMutations_AreHandled) { mutate("remote_message", fuzzRemoteMessage, 20'000, 100); }
TEST(FuzzRemoteReplay, RemoteCorpus_IsHandled) { replay("remote", fuzzRemote, 3); }
TEST(FuzzRemoteReplay, RemoteMutations_AreHandled) { mutate("remote", fuzzRemote, 500, 200); }

}  // namespace
}  // namespace gloo_bypass::fuzz
