#include "tests/transport/dpdk/port_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "transport/dpdk/dpdk_port.h"

namespace gloo_bypass::dpdk {
namespace {

// Bounds that only a hang reaches.
constexpr auto kPartnerLimit = std::chrono::seconds(100);
constexpr auto kProcessLimit = std::chrono::seconds(110);

pid_t spawn(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  try {
    body();
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
  std::fflush(nullptr);
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

void await(pid_t pid, bool killed) {
  int status = 0;
  const bool ended = waitFor([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }, kProcessLimit);
  if (!ended) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
    FAIL() << "a process did not end in time";
  }
  if (killed) {
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  } else {
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << (WIFSIGNALED(status) ? "ended by signal " + std::to_string(WTERMSIG(status))
                                : "exit status " + std::to_string(WEXITSTATUS(status)) +
                                      (WEXITSTATUS(status) == 1 ? ": expectations failed" : ": a sanitizer's, maybe"));
  }
}

}  // namespace

void Partner::send(std::span<const std::byte> bytes) const {
  ASSERT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

std::vector<std::byte> Partner::receive() const {
  pollfd poller{fd_, POLLIN, 0};
  std::vector<std::byte> bytes(4096);
  if (::poll(&poller, 1, static_cast<int>(std::chrono::milliseconds(kPartnerLimit).count())) != 1) {
    ADD_FAILURE() << "the other process did not answer";
    return {};
  }
  const ssize_t length = ::recv(fd_, bytes.data(), bytes.size(), 0);
  bytes.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
  return bytes;
}

void Partner::meet() const {
  const std::byte token{'m'};
  send(std::span(&token, 1));
  (void)receive();
}

void runProcesses(const ProcessEnd& a, const ProcessEnd& b) {
  testDirectory();  // before they part: the same directory for all
  std::array<int, 2> fds;
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds.data()), 0);
  const auto run = [&](const ProcessEnd& end, int own, int other) {
    return spawn([&] {
      ::close(other);
      Partner partner(own);
      end.body(partner);
    });
  };
  const pid_t first = run(a, fds[0], fds[1]);
  const pid_t second = run(b, fds[1], fds[0]);
  ::close(fds[0]);
  ::close(fds[1]);
  await(first, a.killed);
  await(second, b.killed);
}

void runProcess(const std::function<void()>& body) { await(spawn(body), false); }

std::string testDirectory() {
  static const std::string directory = "/tmp/gb-test-" + std::to_string(::getpid());
  return directory;
}

void removeTestDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(testDirectory(), ignored);
}

TransportConfig memifTestConfig() {
  TransportConfig config;
  config.link = LinkMode::kMemif;
  config.memifDirectory = testDirectory();
  return config;
}

std::unique_ptr<PacketPort> openPort(const TransportConfig& config) {
  auto port = makeDpdkPort(config);
  EXPECT_TRUE(port.ok()) << (port.ok() ? "" : port.error().message);
  if (!port.ok()) ::_exit(1);
  return std::move(port).value();
}

LinkId linkPorts(PacketPort& port, Partner& partner) {
  partner.send(port.localAddress());
  const auto link = port.openLink(partner.receive());
  EXPECT_TRUE(link.ok()) << (link.ok() ? "" : link.error().message);
  return link.ok() ? link.value() : 0;
}

bool otherThreadsSleep() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(::gettid())) continue;
    std::ifstream file(task.path() / "stat");
    const std::string stat(std::istreambuf_iterator<char>(file), {});
    if (stat.find(") S ") == std::string::npos) return false;
  }
  return true;
}

bool waitFor(const std::function<bool()>& condition, Duration limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return condition();
    std::this_thread::yield();
  }
  return true;
}

void CollectingSink::onDatagram(LinkId, std::span<const std::byte> datagram) noexcept {
  datagrams.emplace_back(datagram.begin(), datagram.end());
}

void CollectingSink::onLinkDown(LinkId link, const Error& error) noexcept { down.emplace_back(link, error); }

}  // namespace gloo_bypass::dpdk
