// Ranks in sandboxes: the kernel refuses each system call that the transports make, in turn, as in containers and
// gVisor. The ranks then work without the call, or making the device fails at once with one line that names it. None of
// them waits for a peer.
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/gloo_notes.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace gloo_bypass {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Far more than two ranks need, far less than a wait for a peer.
constexpr std::chrono::seconds kAtOnce{20}, kHang{50};
constexpr const char* kConnectTimeoutMs = "40000";

enum class Outcome { kNothingSaid, kOverTheNetwork, kOneLineNamesIt };
using enum Outcome;

struct Call {
  const char* name;
  long number;
  Outcome overUdp, overDpdk;
};

const std::vector<Call> kCalls{
    {"sendmmsg", SYS_sendmmsg, kNothingSaid, kNothingSaid},
    {"recvmmsg", SYS_recvmmsg, kNothingSaid, kNothingSaid},
    {"ppoll", SYS_ppoll, kNothingSaid, kNothingSaid},
    {"ioctl", SYS_ioctl, kNothingSaid, kNothingSaid},
    {"connect", SYS_connect, kNothingSaid, kOverTheNetwork},
    {"getsockopt", SYS_getsockopt, kNothingSaid, kOverTheNetwork},
    {"sched_setattr", SYS_sched_setattr, kNothingSaid, kNothingSaid},
    {"sched_getattr", SYS_sched_getattr, kNothingSaid, kNothingSaid},
    {"prlimit64", SYS_prlimit64, kNothingSaid, kNothingSaid},
    {"unlink", SYS_unlink, kNothingSaid, kNothingSaid},
    {"setsockopt", SYS_setsockopt, kOneLineNamesIt, kOneLineNamesIt},
    {"socket", SYS_socket, kOneLineNamesIt, kOneLineNamesIt},
    {"bind", SYS_bind, kOneLineNamesIt, kOneLineNamesIt},
    {"getsockname", SYS_getsockname, kOneLineNamesIt, kOneLineNamesIt},
    {"socketpair", SYS_socketpair, kOneLineNamesIt, kOneLineNamesIt},
    {"sendto", SYS_sendto, kOneLineNamesIt, kOneLineNamesIt},
    {"recvfrom", SYS_recvfrom, kOneLineNamesIt, kOneLineNamesIt},
    {"poll", SYS_poll, kNothingSaid, kNothingSaid},
    {"eventfd2", SYS_eventfd2, kNothingSaid, kOverTheNetwork},
    {"fcntl", SYS_fcntl, kNothingSaid, kOneLineNamesIt},
    {"sendmsg", SYS_sendmsg, kNothingSaid, kOverTheNetwork},
    {"recvmsg", SYS_recvmsg, kNothingSaid, kOverTheNetwork},
    {"accept4", SYS_accept4, kNothingSaid, kOverTheNetwork},
    {"listen", SYS_listen, kNothingSaid, kOverTheNetwork},
    {"epoll_create1", SYS_epoll_create1, kNothingSaid, kOverTheNetwork},
    {"epoll_ctl", SYS_epoll_ctl, kNothingSaid, kOverTheNetwork},
    {"epoll_wait", SYS_epoll_wait, kNothingSaid, kOverTheNetwork},
    {"memfd_create", SYS_memfd_create, kNothingSaid, kOverTheNetwork},
    {"ftruncate", SYS_ftruncate, kNothingSaid, kOverTheNetwork},
    {"getrandom", SYS_getrandom, kNothingSaid, kOverTheNetwork},
};

struct Sandbox {
  Call call;
  int error;
  std::string transport;
};

std::vector<Sandbox> sandboxes() {
  std::vector<Sandbox> all;
  for (const std::string transport : {"UDP", "DPDK"}) {
    for (std::size_t i = 0; i < kCalls.size(); ++i) all.push_back({kCalls[i], i % 2 == 0 ? EPERM : ENOSYS, transport});
  }
  return all;
}

class RefusedCall : public ::testing::TestWithParam<Sandbox> {};

// Selected by file, so that only the transports' calls are refused.
TEST_P(RefusedCall, TwoRanks_DoWithoutItOrSayAtOnceWhichItIs) {
  const auto& [call, error, transport] = GetParam();
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<Program>> ranks;
  for (const char* const rank : {"0", "1"}) {
    ranks.push_back(std::make_unique<Program>(
        WITH_REFUSED_CALL_PATH,
        std::vector<std::string>{std::to_string(call.number), std::to_string(error), ALL_REDUCE_PERF_PATH,
                                 "--transports", transport, "--hostname", "127.0.0.1", "-b", "4", "-e", "1M", "-f",
                                 "512", "-n", "3", "-c", "1", "--store-dir", folder.path},
        std::map<std::string, std::string>{{"RANK", rank},
                                           {"WORLD_SIZE", "2"},
                                           {"XDG_RUNTIME_DIR", folder.path},
                                           {"GLOO_BYPASS_CONNECT_TIMEOUT_MS", kConnectTimeoutMs}}));
  }
  const Outcome expected = transport == "UDP" ? call.overUdp : call.overDpdk;
  for (const auto& rank : ranks) {
    const ProgramResult result = rank->finish(kHang);
    const std::string said = test::withoutGloosNotes(result.err);
    ASSERT_FALSE(result.timedOut) << said;
    if (result.exitStatus == 77) GTEST_SKIP() << said;
    EXPECT_LT(result.elapsed, kAtOnce);
    EXPECT_EQ(result.exitStatus, expected == kOneLineNamesIt ? 1 : 0) << said;
    switch (expected) {
      case kNothingSaid:
        EXPECT_EQ(said, "");
        break;
      case kOverTheNetwork:
        EXPECT_THAT(said,
                    AllOf(HasSubstr("over the network: "), HasSubstr(call.name), HasSubstr(std::strerror(error))));
        break;
      case kOneLineNamesIt:
        EXPECT_THAT(
            said, AllOf(HasSubstr(transport + " transport: "), HasSubstr(call.name), HasSubstr(std::strerror(error))));
        break;
    }
    EXPECT_LE(std::count(said.begin(), said.end(), '\n'), 1) << said;
  }
}

INSTANTIATE_TEST_SUITE_P(, RefusedCall, testing::ValuesIn(sandboxes()), [](const auto& info) {
  return std::string(info.param.transport) + "_" + info.param.call.name;
});

}  // namespace
}  // namespace gloo_bypass
