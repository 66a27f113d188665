// One rank lives on while a new process replaces its peer, again and again: in the end it must hold no more than at the
// beginning. A test with fifty peers; run it by hand with as many as you like.
//
//   this process ---fork---> the survivor: one transport
//        `----------fork---> peer 1; when that has ended peer 2, ...: each connects, sends and receives a message, ends
//
// Peers end in turn in good order, by SIGKILL, and without closing.
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tools/common/command_line.h"
#include "transport/base/file_descriptor.h"
#include "transport/channel/message_channel.h"
#include "transport/process/back_ends.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::soak {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::size_t kMessageBytes = 100'000;
// A bound that only a hang reaches.
constexpr std::chrono::seconds kStepLimit(60);
// Caches and tables grow at first.
constexpr int kWarmUp = 10;
// Memory moves a little with the order of events; a leak of 2 KiB a peer shows within a thousand.
constexpr long kAllowanceKiB = 2048;

enum class End { kGoodOrder, kKilled, kSilent };
End endOf(int peer) { return static_cast<End>(peer % 3); }

void require(bool fact, const std::string& what) {
  if (!fact) throw std::runtime_error(what);
}

// The channel between the survivor and the current peer, beside the transport.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  void send(const Bytes& bytes) const {
    require(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()),
            "the other process has gone");
  }
  Bytes receive() const {
    pollfd readable{fd_, POLLIN, 0};
    const auto limit = std::chrono::milliseconds(kStepLimit).count();
    require(::poll(&readable, 1, static_cast<int>(limit)) == 1, "the other process does not answer");
    Bytes bytes(4096);
    const ssize_t length = ::recv(fd_, bytes.data(), bytes.size(), 0);
    require(length > 0, "the other process has gone");
    bytes.resize(static_cast<std::size_t>(length));
    return bytes;
  }

 private:
  const int fd_;
};

struct Observer final : ChannelObserver {
  void onSendComplete(OperationToken) noexcept override { sent = true; }
  void onReceiveComplete(OperationToken, std::size_t) noexcept override { received = true; }
  void onMessageAnnounced(MessageKey, std::size_t) noexcept override {}
  void onStateChange(ChannelState next) noexcept override { failed = failed || next == ChannelState::kFailed; }
  bool sent = false, received = false, failed = false;
};

bool wait(Transport& transport, const std::function<bool()>& condition) {
  return transport.progress().waitUntil(condition, monotonicNow() + Duration(kStepLimit));
}

// One end of a conversation: a message each way. Closes the channel.
void converse(Transport& transport, const Line& line, const std::function<void()>& atTheEnd) {
  Observer observer;
  std::unique_ptr<MessageChannel> channel;
  const Bytes out(kMessageBytes, std::byte{7});
  Bytes in(kMessageBytes);
  const auto exclusive = [&](const std::function<void()>& f) { transport.progress().exclusive(f); };
  exclusive([&] { channel = std::move(transport.openChannel({}, &observer).value()); });
  line.send(channel->localAddress());
  const Bytes peer = line.receive();
  Status status;
  exclusive([&] {
    status = channel->connect(peer);
    if (!status) return;
    status = channel->postReceive({.token = 1, .key = {}, .data = in.data(), .capacity = in.size()});
    if (!status) return;
    status = channel->postSend({.token = 2, .key = {}, .data = out.data(), .length = out.size()});
  });
  require(status.ok(), status.ok() ? "" : status.error().message);
  const bool done = wait(transport, [&] { return (observer.sent && observer.received) || observer.failed; });
  std::string why = done ? "" : "nothing happens";
  exclusive([&] {
    if (observer.failed) why = channel->error().message;
  });
  if (why.empty() && in == out) atTheEnd();
  exclusive([&] { channel.reset(); });
  require(why.empty(), why);
  require(in == out, "another message than was sent has arrived");
}

// The survivor's resources.
struct Held {
  std::ptrdiff_t descriptors = 0, sharedMappings = 0, threads = 0;
  long heapKiB = 0;    // in use
  long pinnedKiB = 0;  // by adapters
  long sharedKiB = 0,
       privateKiB = 0;  // resident; what is private is shown only: an allocator keeps some of what is freed

  bool fits(const Held& before) const {
    return descriptors <= before.descriptors && sharedMappings <= before.sharedMappings && threads <= before.threads &&
           heapKiB <= before.heapKiB + kAllowanceKiB && pinnedKiB <= before.pinnedKiB + kAllowanceKiB &&
           sharedKiB <= before.sharedKiB + kAllowanceKiB;
  }
};

Held heldNow() {
  const auto entries = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), {});
  };
  Held held{.descriptors = entries("/proc/self/fd"), .threads = entries("/proc/self/task")};
  const struct mallinfo2 heap = ::mallinfo2();
  held.heapKiB = static_cast<long>((heap.uordblks + heap.hblkhd) / 1024);
  std::ifstream maps("/proc/self/maps");
  for (std::string text; std::getline(maps, text);) held.sharedMappings += text.find(" rw-s ") != std::string::npos;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmPin:") status >> held.pinnedKiB;
    if (word == "RssAnon:") status >> held.privateKiB;
    if (word == "RssShmem:") status >> held.sharedKiB;
  }
  return held;
}

void print(int peers, const Held& held) {
  std::printf("%8d %12td %16td %8td %11ld %13ld %13ld %14ld\n", peers, held.descriptors, held.sharedMappings,
              held.threads, held.heapKiB, held.pinnedKiB, held.sharedKiB, held.privateKiB);
  std::fflush(stdout);
}

void survive(Transport& transport, const Line& line, int peers) {
  std::printf("%8s %12s %16s %8s %11s %13s %13s %14s\n", "peers", "descriptors", "shared mappings", "threads",
              "heap (KiB)", "pinned (KiB)", "shared (KiB)", "private (KiB)");
  Held before;
  for (int peer = 1; peer <= peers; ++peer) {
    converse(transport, line, [&] { line.send({std::byte{1}}); });
    const auto idle = [&] { return transport.report().channels.empty(); };
    require(wait(transport, idle), "the channel to peer " + std::to_string(peer) + " does not end");
    if (peer == kWarmUp) before = heldNow();
    if (peer == kWarmUp || (peer > kWarmUp && peer % std::max(1, peers / 10) == 0)) print(peer, heldNow());
    if (peer <= kWarmUp) continue;
    // The engine's thread may be about to close the last link.
    const TimePoint limit = monotonicNow() + Duration(kStepLimit);
    while (!heldNow().fits(before)) {
      if (monotonicNow() >= limit) print(peer, heldNow());
      require(monotonicNow() < limit, "more is held after peer " + std::to_string(peer) + " than after the first ones");
      std::this_thread::yield();
    }
  }
}

// Ends the process.
void bePeer(Transport& transport, const Line& line, End end) {
  converse(transport, line, [&] {
    (void)line.receive();
    if (end == End::kKilled) ::raise(SIGKILL);
    if (end == End::kSilent) ::_exit(0);
  });
  transport.closeAll();
}

pid_t spawn(const std::string& name, const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  int status = 0;
  try {
    body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "replaced_peers: %s: %s\n", name.c_str(), error.what());
    status = 1;
  }
  std::fflush(nullptr);
  ::_exit(status);
}

// True: it ended as expected.
bool await(pid_t pid, bool killed) {
  const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd ended{process.get(), POLLIN, 0};
  if (::poll(&ended, 1, static_cast<int>(std::chrono::milliseconds(3 * kStepLimit).count())) != 1) ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The ranks' places: on two hosts in link mode auto, where a host is a memif directory. The survivor has peers on both,
// in turn.
struct Ranks {
  const BackEnd& backEnd;
  TransportConfig config;
  bool twoHosts = false;

  std::shared_ptr<Transport> open(int rank) const {
    TransportConfig own = config;
    own.memifDirectory += twoHosts && rank % 2 == 1 ? "/b" : "/a";
    auto made = backEnd.make(own);
    require(made.ok(), made.ok() ? "" : made.error().message);
    return std::move(made).value();
  }
};

int run(const Ranks& ranks, int peers) {
  int line[2];
  require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line) == 0, "no socket");
  FileDescriptor own(line[0]);
  const FileDescriptor others(line[1]);
  const pid_t survivor = spawn("the survivor", [&] {
    ::close(others.get());
    survive(*ranks.open(0), Line(own.get()), peers);
  });
  own.reset();  // so that a peer notices when the survivor has gone
  bool good = true;
  for (int peer = 1; peer <= peers && good; ++peer) {
    const pid_t pid =
        spawn("peer " + std::to_string(peer), [&] { bePeer(*ranks.open(peer), Line(others.get()), endOf(peer)); });
    good = await(pid, endOf(peer) == End::kKilled);
    if (!good) std::fprintf(stderr, "replaced_peers: peer %d did not end as it should\n", peer);
  }
  if (!good) ::kill(survivor, SIGKILL);
  return await(survivor, false) && good ? 0 : 1;
}

}  // namespace
}  // namespace gloo_bypass::soak

int main(int argc, char** argv) {
  using namespace gloo_bypass;
  std::string name = "DPDK";
  LinkMode link = LinkMode::kMemif;
  int peers = 1000;
  CLI::App app("Replaces the peer of a rank again and again, and watches what the rank holds.");
  app.add_option("--transport", name, "DPDK, UDP or RDMA, with the only device")->capture_default_str();
  const std::map<std::string, LinkMode> links{{"memif", LinkMode::kMemif}, {"auto", LinkMode::kAuto}};
  app.add_option("--link", link, "of DPDK: memif, or auto, with memory and the network in turn")
      ->transform(CLI::CheckedTransformer(links));
  app.add_option("--peers", peers, "how many, one after the other")
      ->check(CLI::Range(soak::kWarmUp + 1, 1'000'000))
      ->capture_default_str();
  try {
    if (const auto text = readCommandLine(app, argc, argv)) {
      std::printf("%s", text->c_str());
      return 0;
    }
    const BackEnd* const backEnd = findBackEnd(name);
    if (backEnd == nullptr) throw UsageError("there is no transport '" + name + "'");
    if (!backEnd->inThisBuild()) throw UsageError(whyMissing(*backEnd));
    const TemporaryFolder folder;
    TransportConfig config;
    config.link = link;
    config.memifDirectory = folder.path;
    if (name != "RDMA") config.interface = "127.0.0.1";
    return soak::run({*backEnd, config, link == LinkMode::kAuto}, peers);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "replaced_peers: %s\n", error.what());
    return 1;
  }
}
