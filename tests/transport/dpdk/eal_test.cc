// Starting DPDK inside an application: arguments, affinity, signals, fork, huge pages; and configurations without it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/transport/dpdk/port_process.h"
#include "transport/base/file_descriptor.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/dpdk/eal.h"
#include "transport/dpdk/eal_arguments.h"

namespace gloo_bypass::dpdk {
namespace {

class EalTest : public ::testing::Test {
 protected:
  void SetUp() override { (void)testDirectory(); }
  void TearDown() override { removeTestDirectory(); }
};

std::string startErrorOf(const TransportConfig& config) {
  const Status started = Eal::start(config);
  EXPECT_FALSE(started.ok());
  return started.ok() ? std::string() : started.error().message;
}

std::string errorOf(const TransportConfig& config) {
  const auto port = makeDpdkPort(config);
  EXPECT_FALSE(port.ok());
  return port.ok() ? std::string() : port.error().message;
}

bool isOneLine(const std::string& text) { return !text.empty() && text.find('\n') == std::string::npos; }

TEST(SplitShellWords, QuotesAndBackslashes_AsAShell) {
  const auto words = splitShellWords(R"(  --a 'b c' "d \"e" f\ g --x='1 2'"3" '' )");
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(words.value(), (std::vector<std::string>{"--a", "b c", "d \"e", "f g", "--x=1 23", ""}));
  EXPECT_EQ(splitShellWords("$(touch /tmp/x) `id` $HOME").value(),
            (std::vector<std::string>{"$(touch", "/tmp/x)", "`id`", "$HOME"}));
  EXPECT_TRUE(splitShellWords("").value().empty());
  EXPECT_FALSE(splitShellWords("'open").ok());
  EXPECT_FALSE(splitShellWords("end\\").ok());
}

TEST(CheckEalArguments, WhatWouldEndTheProcess_IsRefused) {
  for (const char* word : {"--help", "-h", "--version", "-v", "--lcores=0-3", "-l", "--proc-type=secondary",
                           "--nonsense", "-x", "stray", "--no-huge=1", "--socket-mem", "-d"}) {
    const Status status = checkEalArguments({word});
    EXPECT_FALSE(status.ok()) << word;
    EXPECT_TRUE(status.ok() || isOneLine(status.error().message)) << word;
  }
  EXPECT_TRUE(
      checkEalArguments({"--socket-mem", "64", "-n", "4", "-a0000:00:04.0", "--vdev=net_null0", "--in-memory"}).ok());
}

TEST(BuildEalArguments, WithHugePagesOrWithout_FilesHaveOurPrefix) {
  for (const bool hugePages : {false, true}) {
    const auto words = buildEalArguments({}, {}, hugePages, "0");
    EXPECT_EQ(std::count(words.begin(), words.end(), "--file-prefix=gloo-bypass"), 1) << hugePages;
  }
}

TEST(BuildEalArguments, MemoryBySocket_GoesWithoutOurSize) {
  const auto own = buildEalArguments({}, {}, true, "0"),
             bySocket = buildEalArguments({}, {"--socket-mem=64"}, true, "0");
  EXPECT_EQ(std::count(own.begin(), own.end(), "-m"), 1);
  EXPECT_EQ(std::count(bySocket.begin(), bySocket.end(), "-m"), 0) << "DPDK refuses both together";
}

// As in a root without /sys, such as a plain chroot.
TEST_F(EalTest, NoSysfs_OneLineThatSaysSoAndNothingOnStdout) {
  const std::string output = testDirectory() + ".out";
  runProcess([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/sys", "tmpfs", 0, nullptr) != 0) {
      std::ofstream(output) << "no right";
      return;
    }
    ASSERT_NE(std::freopen(output.c_str(), "w", stdout), nullptr);
    const std::string error = startErrorOf(memifTestConfig());
    EXPECT_TRUE(isOneLine(error)) << error;
    EXPECT_NE(error.find("/sys"), std::string::npos) << error;
    EXPECT_NE(error.find("mount"), std::string::npos) << error;
    std::fflush(stdout);
    struct stat status{};
    ASSERT_EQ(::stat(output.c_str(), &status), 0);
    EXPECT_EQ(status.st_size, 0);
  });
  const bool possible = std::filesystem::file_size(output) == 0;
  std::filesystem::remove(output);
  if (!possible) GTEST_SKIP() << "no right to mount, which the test does in a namespace of its own";
}

TEST_F(EalTest, BadArguments_OneClearLineAndNothingOnStdout) {
  const std::string output = testDirectory() + ".out";
  for (const std::string arguments :
       {"--nonsense", "--socket-mem=abc", "--vdev=net_nonesuch0", "--iova-mode=xx", "'"}) {
    runProcess([&] {
      ASSERT_NE(std::freopen(output.c_str(), "w", stdout), nullptr);
      TransportConfig config = memifTestConfig();
      config.ealArguments = arguments;
      const std::string error = startErrorOf(config);
      EXPECT_TRUE(isOneLine(error)) << arguments << ": " << error;
      // The same answer again, without a second start.
      EXPECT_EQ(startErrorOf(config), error);
      std::fflush(stdout);
      struct stat status{};
      ASSERT_EQ(::stat(output.c_str(), &status), 0);
      EXPECT_EQ(status.st_size, 0) << arguments;
    });
  }
  std::filesystem::remove(output);
}

TEST_F(EalTest, LogLevelAmongTheArguments_WhatDpdkLogsIsShownAndElseNothing) {
  const std::string output = testDirectory() + ".err";
  for (const std::string arguments : {"", "--log-level=lib.eal:debug"}) {
    runProcess([&] {
      ASSERT_NE(std::freopen(output.c_str(), "w", stderr), nullptr);
      TransportConfig config = memifTestConfig();
      config.ealArguments = arguments;
      const Status started = Eal::start(config);
      ASSERT_TRUE(started.ok()) << started.error().message;
      std::fflush(stderr);
      std::ifstream lines(output);
      std::string first;
      std::getline(lines, first);
      EXPECT_EQ(first.starts_with("gloo-bypass: DPDK: EAL: "), !arguments.empty()) << arguments << ": " << first;
      EXPECT_EQ(first.empty(), arguments.empty()) << first;
    });
  }
  std::filesystem::remove(output);
}

TEST_F(EalTest, Start_LeavesAffinityAndSignalsAlone) {
  runProcess([] {
    cpu_set_t before, after;
    ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
    sigset_t maskBefore, maskAfter;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &maskBefore);
    std::array<sighandler_t, 64> handlers{};
    for (int signal = 1; signal < SIGRTMIN; ++signal) {
      struct sigaction action{};
      (void)::sigaction(signal, nullptr, &action);
      handlers[static_cast<std::size_t>(signal)] = action.sa_handler;
    }
    const Status started = Eal::start(memifTestConfig());
    ASSERT_TRUE(started.ok()) << started.error().message;
    ASSERT_EQ(::sched_getaffinity(0, sizeof(after), &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
    ::pthread_sigmask(SIG_SETMASK, nullptr, &maskAfter);
    for (int signal = 1; signal < SIGRTMIN; ++signal) {
      EXPECT_EQ(sigismember(&maskBefore, signal), sigismember(&maskAfter, signal)) << signal;
      struct sigaction action{};
      (void)::sigaction(signal, nullptr, &action);
      EXPECT_EQ(action.sa_handler, handlers[static_cast<std::size_t>(signal)]) << signal;
    }
    // Its threads may run on our CPUs, and take no signals.
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      const auto tid = static_cast<pid_t>(std::stoi(task.path().filename().string()));
      cpu_set_t cpus;
      ASSERT_EQ(::sched_getaffinity(tid, sizeof(cpus), &cpus), 0);
      EXPECT_TRUE(CPU_EQUAL(&before, &cpus)) << tid;
    }
  });
}

TEST_F(EalTest, ForkAfterStart_ChildIsToldWhatToDo) {
  runProcess([] {
    const Status started = Eal::start(memifTestConfig());
    ASSERT_TRUE(started.ok()) << started.error().message;
    runProcess([] {
      const std::string error = startErrorOf(memifTestConfig());
      EXPECT_NE(error.find("fork"), std::string::npos);
      EXPECT_NE(error.find("spawn"), std::string::npos);
    });
  });
}

// Not started, it costs nothing and cannot fail.
TEST_F(EalTest, MemoryLinksAndUdpBetweenHosts_DoWithout) {
  runProcess([] {
    TransportConfig config = memifTestConfig();
    config.ealArguments = "--nonsense";
    config.hugePages = HugePages::kOn;
    const auto memory = makeDpdkPort(config);
    ASSERT_TRUE(memory.ok()) << memory.error().message;
    config.link = LinkMode::kAuto;
    config.interface = "127.0.0.1";
    const auto both = makeDpdkPort(config);
    ASSERT_TRUE(both.ok()) << both.error().message;
    EXPECT_FALSE(Eal::decided());
    config.telemetry = true;
    EXPECT_NE(errorOf(config).find("--nonsense"), std::string::npos);
    EXPECT_TRUE(Eal::decided());
  });
}

TEST_F(EalTest, ForkAfterAMemifPort_ChildMakesItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer allows no thread in a child of a threaded program";
#endif
  runProcess([] {
    auto parents = makeDpdkPort(memifTestConfig());
    ASSERT_TRUE(parents.ok()) << parents.error().message;
    ASSERT_TRUE(waitFor(otherThreadsSleep));
    runProcess([] {
      const auto childs = makeDpdkPort(memifTestConfig());
      ASSERT_TRUE(childs.ok()) << childs.error().message;
    });
    EXPECT_TRUE(parents.value()->openLink(parents.value()->localAddress()).ok());
  });
}

TEST_F(EalTest, ForkAfterAMemifPort_ParentsPortDestroyedInChildHarmsNothing) {
  runProcess([] {
    auto port = makeDpdkPort(memifTestConfig());
    ASSERT_TRUE(port.ok()) << port.error().message;
    ASSERT_TRUE(waitFor(otherThreadsSleep));
    runProcess([&] { std::move(port).value().reset(); });
    const auto link = port.value()->openLink(port.value()->localAddress());
    EXPECT_TRUE(link.ok());
    EXPECT_FALSE(std::filesystem::is_empty(testDirectory()));
  });
}

TEST_F(EalTest, HugePagesAskedForButMissing_OneClearLine) {
  runProcess([] {
    TransportConfig config = memifTestConfig();
    config.hugePages = HugePages::kOn;
    config.memoryMiB = 1u << 20;
    EXPECT_NE(startErrorOf(config).find("huge pages"), std::string::npos);
  });
}

TEST_F(EalTest, MemifDirectory_UnusableOnesAreRefusedByName) {
  runProcess([] {
    TransportConfig config = memifTestConfig();
    const auto expectRefused = [&](const std::string& directory, const char* why) {
      config.memifDirectory = directory;
      const std::string error = errorOf(config);
      EXPECT_TRUE(isOneLine(error));
      EXPECT_NE(error.find(why), std::string::npos) << error;
    };
    expectRefused("relative/path", "absolute");
    expectRefused("/nonesuch/deeper", "cannot be made");
    expectRefused("/tmp/" + std::string(90, 'x'), "longer");
    expectRefused("/proc/version", "not a directory");
    const std::string open = testDirectory() + "-open";
    std::filesystem::create_directory(open);
    ::chmod(open.c_str(), 0777);
    expectRefused(open, "open to other users");
    std::filesystem::remove(open);
  });
}

TEST_F(EalTest, MemifDirectory_WhatDeadProcessesLeftIsSwept) {
  runProcesses({[](Partner&) {
                  const auto port = makeDpdkPort(memifTestConfig());
                  ASSERT_TRUE(port.ok());
                  ::kill(::getpid(), SIGKILL);
                },
                true},
               {[](Partner&) {}});
  ASSERT_FALSE(std::filesystem::is_empty(testDirectory()));
  runProcess([] {
    auto port = makeDpdkPort(memifTestConfig());
    ASSERT_TRUE(port.ok());
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(testDirectory())) {
      (void)entry;
      ++files;
    }
    EXPECT_EQ(files, 1U);
  });
  // The last port was destroyed in its process, before the end.
  EXPECT_TRUE(std::filesystem::is_empty(testDirectory()));
}

// systemd-tmpfiles removes what is old in /tmp, but tries to lock each directory first.
TEST_F(EalTest, MemifDirectory_IsLockedAgainstAgingWhileThePortLives) {
  runProcess([] {
    auto port = makeDpdkPort(memifTestConfig());
    ASSERT_TRUE(port.ok());
    const FileDescriptor folder(::open(testDirectory().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    EXPECT_NE(::flock(folder.get(), LOCK_EX | LOCK_NB), 0);
    EXPECT_TRUE(makeDpdkPort(memifTestConfig()).ok()) << "others' ports are no matter";
    std::move(port).value().reset();
    EXPECT_EQ(::flock(folder.get(), LOCK_EX | LOCK_NB), 0);
  });
}

TEST_F(EalTest, HostileAddresses_AreErrorsNotCrashes) {
  runProcess([] {
    const auto port = makeDpdkPort(memifTestConfig());
    ASSERT_TRUE(port.ok());
    const auto good = port.value()->localAddress();
    unsigned seed = 1;
    for (int i = 0; i < 3000; ++i) {
      auto bytes = good;
      bytes.resize(static_cast<std::size_t>(rand_r(&seed)) % (good.size() + 200), std::byte{'/'});
      for (int flips = rand_r(&seed) % 4; flips > 0 && !bytes.empty(); --flips) {
        bytes[static_cast<std::size_t>(rand_r(&seed)) % std::min<std::size_t>(bytes.size(), 5)] =
            static_cast<std::byte>(rand_r(&seed));
      }
      // The directory's text, for messages only, follows after this many bytes; its id precedes it.
      constexpr std::ptrdiff_t kBeforeDirectory = 76;
      if (bytes.size() > kBeforeDirectory && std::equal(good.begin(), good.begin() + kBeforeDirectory, bytes.begin()))
        continue;
      const auto link = port.value()->openLink(bytes);
      EXPECT_FALSE(link.ok());
    }
    auto otherMachine = good;
    otherMachine[40] ^= std::byte{1};
    EXPECT_NE(port.value()->openLink(otherMachine).error().message.find("another machine"), std::string::npos);
    auto otherKind = good;
    otherKind[3] = std::byte{'U'};
    const std::string mismatch = port.value()->openLink(otherKind).error().message;
    EXPECT_NE(mismatch.find("memif"), std::string::npos);
    EXPECT_NE(mismatch.find("netdev"), std::string::npos);
  });
}

}  // namespace
}  // namespace gloo_bypass::dpdk
