// What attacks cost: two ranks over UDP in two network namespaces, and an attacker on the path between them.
//
//   attack_bench [--plain] [--only bulk | small | idle | after] [--rounds N] [--seconds N] [--after N]
//
// Needs root and `ip`. The attacker shares the machine's cores with the ranks: so each flood has a control, the same
// datagrams at the same rate to a port of that machine that is closed. What is compared takes turns in each round;
// rates and shares are medians over the rounds.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "commit.h"
#include "tests/support/icmp_unreachable.h"
#include "transport/base/file_descriptor.h"
#include "transport/channel/channel_address.h"
#include "transport/datagram/datagram_transport.h"
#include "transport/progress/progress_engine.h"
#include "transport/udp/port_address.h"
#include "transport/udp/udp_port.h"
#include "transport/wire/sealed_packet.h"

namespace gloo_bypass {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kBulkBytes = 4 << 20;
constexpr double kSmallFlood = 50'000;  // datagrams a second
constexpr double kWarmUpSeconds = 0.05;
constexpr std::uint16_t kClosedPort = 9;

bool shell(const std::string& command) { return std::system((command + " 2>/dev/null").c_str()) == 0; }
void sleepFor(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// a -- the attacker's bridge -- b. An interrupted program removes it too.
class Network {
 public:
  Network() {
    removeWhenInterrupted();
    made_ = true;
    for (const char end : {'a', 'b', 'x'}) made_ = made_ && shell("ip netns add " + name(end));
    const std::string x = "ip -n " + name('x');
    made_ = made_ && shell(x + " link add br0 type bridge") && shell(x + " addr add 10.77.0.3/24 dev br0");
    for (const std::string end : {"a", "b"}) {
      const std::string own = "ip -n " + name(end[0]);
      made_ = made_ && shell(x + " link add v" + end + " type veth peer name v0 netns " + name(end[0])) &&
              shell(own + " addr add 10.77.0." + (end == "a" ? "1" : "2") + "/24 dev v0") &&
              shell(own + " link set v0 up") && shell(x + " link set v" + end + " master br0 up");
    }
    made_ = made_ && shell(x + " link set br0 up");
  }
  ~Network() { remove(prefix_); }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  bool made() const { return made_; }
  // The calling thread, for good.
  bool enter(char end) const {
    const FileDescriptor fd(::open(("/var/run/netns/" + name(end)).c_str(), O_RDONLY | O_CLOEXEC));
    return fd && ::setns(fd.get(), CLONE_NEWNET) == 0;
  }

 private:
  // Blocks the signals in the threads and processes that start later.
  void removeWhenInterrupted() const {
    sigset_t signals;
    (void)::sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM}) (void)::sigaddset(&signals, signal);
    (void)::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::thread([signals, prefix = prefix_] {
      int signal = 0;
      if (::sigwait(&signals, &signal) != 0) return;
      remove(prefix);
      ::_exit(128 + signal);
    }).detach();
  }
  static void remove(const std::string& prefix) {
    for (const char end : {'a', 'b', 'x'}) (void)shell("ip netns del " + prefix + end);
  }
  std::string name(char end) const { return prefix_ + end; }
  const std::string prefix_ = "gbattack" + std::to_string(::getpid());
  bool made_ = false;
};

// Ranks ---------------------------------------------------------------------------------------------

enum class Work : std::uint8_t { kSmall, kBulk };

// Shared by the processes.
struct Shared {
  struct Rank {
    std::atomic<std::size_t> addressBytes{0};
    std::array<std::byte, MessageChannel::kMaxAddressBytes> address{};
    std::atomic<std::uint64_t> packetsSent{0}, packetsReceived{0};
    std::atomic<bool> failed{false};
  } ranks[2];
  std::atomic<unsigned> works{0};  // begun
  std::atomic<std::uint64_t> rounds{0};
};

class RankProcess final : public ChannelObserver {
 public:
  RankProcess(Shared& shared, int rank) : shared_(shared), rank_(rank) {}
  int run(const Network& network, Security security, int commands, int answers) {
    if (!network.enter(rank_ == 0 ? 'a' : 'b') || !open(security)) return 1;
    answer(answers);
    for (Work work{}; ::read(commands, &work, 1) == 1;) {
      exchange(work == Work::kBulk ? kBulkBytes : 4);
      answer(answers);
    }
    transport_->progress().exclusive([&] { channel_.reset(); });
    return 0;
  }

 private:
  bool open(Security security) {
    TransportConfig config;
    config.interface = "v0";
    config.security = security;
    auto port = udp::makeUdpPort(config);
    if (!port) return false;
    transport_ = makeDatagramTransport(config, std::move(port).value()).value();
    Shared::Rank &own = shared_.ranks[rank_], &other = shared_.ranks[1 - rank_];
    transport_->progress().exclusive([&] {
      channel_ = std::move(transport_->openChannel({.localRank = rank_, .peerRank = 1 - rank_}, this)).value();
      const auto address = channel_->localAddress();
      std::ranges::copy(address, own.address.begin());
      own.addressBytes = address.size();
    });
    const TimePoint end = monotonicNow() + std::chrono::seconds(10);
    for (; other.addressBytes == 0; ::usleep(1000)) {
      if (monotonicNow() >= end) return false;
    }
    transport_->progress().exclusive(
        [&] { (void)channel_->connect(std::span(other.address).first(other.addressBytes)).ok(); });
    return transport_->progress().waitUntil([&] { return state_ == ChannelState::kConnected; }, end);
  }
  static void answer(int answers) { (void)!::write(answers, "x", 1); }

  // Rank 0 sends a message, rank 1 answers it with a byte, until rank 0 says that this was the last one.
  void exchange(std::size_t bytes) {
    std::vector<std::byte> out(bytes), in(bytes);
    const unsigned begun = shared_.works;
    for (bool last = false; !last && state_ == ChannelState::kConnected;) {
      if (rank_ == 0) {
        last = shared_.works != begun;
        out[0] = std::byte{last};
        if (!pass(out, std::span(in).first(1), /*sendsFirst=*/true)) break;
      } else {
        if (!pass(std::span(out).first(1), in, /*sendsFirst=*/false)) break;
        last = in[0] != std::byte{0};
      }
      if (rank_ == 0) ++shared_.rounds;
      publish();
    }
    if (state_ != ChannelState::kConnected) shared_.ranks[rank_].failed = true;
  }
  bool pass(std::span<const std::byte> out, std::span<std::byte> in, bool sendsFirst) {
    const OperationToken token = ++token_;
    auto send = [&] {
      (void)channel_->postSend({.token = token, .key = {.tag = 1}, .data = out.data(), .length = out.size()}).ok();
    };
    transport_->progress().exclusive([&] {
      (void)channel_->postReceive({.token = token, .key = {.tag = 1}, .data = in.data(), .capacity = in.size()}).ok();
      if (sendsFirst) send();
    });
    const auto await = [&](const OperationToken& done) {
      return transport_->progress().waitUntil([&] { return done == token || state_ != ChannelState::kConnected; },
                                              monotonicNow() + std::chrono::seconds(30)) &&
             done == token;
    };
    if (!await(received_)) return false;
    if (!sendsFirst) transport_->progress().exclusive(send);
    return await(sent_);
  }
  void publish() {
    if (token_ % 64 != 1 && rank_ == 0) return;
    transport_->progress().exclusive([&] {
      const ChannelCounters counters = channel_->counters();
      shared_.ranks[rank_].packetsSent = counters.packetsSent;
      shared_.ranks[rank_].packetsReceived = counters.packetsReceived;
    });
  }

  void onSendComplete(OperationToken token) noexcept override { sent_ = token; }
  void onReceiveComplete(OperationToken token, std::size_t) noexcept override { received_ = token; }
  void onMessageAnnounced(MessageKey, std::size_t) noexcept override {}
  void onStateChange(ChannelState state) noexcept override { state_ = state; }

  Shared& shared_;
  const int rank_;
  OperationToken token_ = 0, sent_ = 0, received_ = 0;
  std::atomic<ChannelState> state_{ChannelState::kUnconnected};
  std::shared_ptr<Transport> transport_;
  std::unique_ptr<MessageChannel> channel_;
};

// The attacker --------------------------------------------------------------------------------------

// Whole IP packets, or datagrams of a socket of its own.
class Sender {
 public:
  explicit Sender(int fd) : fd_(fd) {}
  void add(const network::Endpoint& to, std::span<const std::byte> bytes) {
    packets_.push_back({to, {bytes.begin(), bytes.end()}});
  }
  // What add() gathered.
  void flush() {
    std::vector<mmsghdr> messages(packets_.size());
    std::vector<iovec> bytes(packets_.size());
    for (std::size_t i = 0; i < packets_.size(); ++i) {
      bytes[i] = {packets_[i].bytes.data(), packets_[i].bytes.size()};
      messages[i].msg_hdr = {.msg_name = &packets_[i].to,
                             .msg_namelen = sizeof(sockaddr_in),
                             .msg_iov = &bytes[i],
                             .msg_iovlen = 1,
                             .msg_control = nullptr,
                             .msg_controllen = 0,
                             .msg_flags = 0};
    }
    for (std::size_t sent = 0; sent < messages.size();) {
      const int count = ::sendmmsg(fd_.get(), &messages[sent], static_cast<unsigned>(messages.size() - sent), 0);
      sent += count > 0 ? static_cast<std::size_t>(count) : 1;  // an answer of the network to an earlier one
    }
    packets_.clear();
  }

 private:
  struct Packet {
    network::Endpoint to;
    std::vector<std::byte> bytes;
  };
  const FileDescriptor fd_;
  std::vector<Packet> packets_;
};

std::vector<std::byte> ipPacket(const network::Endpoint& from, const network::Endpoint& to, std::uint8_t protocol,
                                std::span<const std::byte> content) {
  iphdr ip{};
  ip.version = 4;
  ip.ihl = 5;
  ip.ttl = 64;
  ip.protocol = protocol;
  ip.tot_len = htons(static_cast<std::uint16_t>(sizeof(ip) + content.size()));
  ip.saddr = from.v4.sin_addr.s_addr;
  ip.daddr = to.v4.sin_addr.s_addr;
  std::vector<std::byte> packet(sizeof(ip) + content.size());
  std::memcpy(packet.data(), &ip, sizeof(ip));
  std::ranges::copy(content, packet.begin() + sizeof(ip));
  return packet;
}

// Without a checksum, as UDP over IPv4 may be.
std::vector<std::byte> udpPacket(const network::Endpoint& from, const network::Endpoint& to,
                                 std::span<const std::byte> data) {
  udphdr udp{};
  udp.source = from.v4.sin_port;
  udp.dest = to.v4.sin_port;
  udp.len = htons(static_cast<std::uint16_t>(sizeof(udp) + data.size()));
  std::vector<std::byte> content(sizeof(udp) + data.size());
  std::memcpy(content.data(), &udp, sizeof(udp));
  std::ranges::copy(data, content.begin() + sizeof(udp));
  return ipPacket(from, to, IPPROTO_UDP, content);
}

enum class Attack : std::uint8_t { kNone, kStrangerAside, kStranger, kSpoofed, kForgedAside, kForged, kIcmp };

constexpr const char* nameOf(Attack attack) {
  switch (attack) {
    case Attack::kNone:
      return "no attack";
    case Attack::kStrangerAside:
      return "a stranger's datagrams to a closed port";
    case Attack::kStranger:
      return "a stranger's datagrams";
    case Attack::kSpoofed:
      return "under the peer's address, of no session";
    case Attack::kForgedAside:
      return "the forged datagrams to a closed port";
    case Attack::kForged:
      return "forged: address, port and session are the peer's";
    case Attack::kIcmp:
      return "ICMP: port closed, and datagram too large";
  }
  return "";
}

// Sends to rank 1 while it lives.
class Attacker {
 public:
  Attacker(const Shared& shared, bool sealed, Attack attack, double rate) : shared_(shared), sealed_(sealed) {
    for (int i = 0; i < 2; ++i) {
      const auto& rank = shared.ranks[i];
      const auto address = decodeChannelAddress(std::span(rank.address).first(rank.addressBytes)).value();
      ids_[i] = address.sessionId;
      at_[i] = udp::decode(address.portAddress).value().front();
    }
    if (attack != Attack::kNone)
      thread_ = std::jthread([this, attack, rate](const std::stop_token& stop) { run(attack, rate, stop); });
  }

 private:
  void run(Attack attack, double rate, const std::stop_token& stop) {
    const bool raw = attack != Attack::kStrangerAside && attack != Attack::kStranger;
    Sender sender(raw ? ::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW)
                      : ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t sent = 0; !stop.stop_requested(); std::this_thread::sleep_for(milliseconds(1))) {
      const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      // A millisecond's; what the machine had no time for is not caught up with in one burst.
      const auto due = static_cast<std::uint64_t>(elapsed * rate);
      for (const std::uint64_t end = std::min(due, sent + static_cast<std::uint64_t>(rate / 200) + 1); sent < end;
           ++sent) {
        add(sender, attack, sent);
      }
      sender.flush();
    }
  }

  void add(Sender& sender, Attack attack, std::uint64_t number) {
    network::Endpoint to = at_[1];
    switch (attack) {
      case Attack::kNone:
        return;
      case Attack::kStrangerAside:
        to.setPort(kClosedPort);
        [[fallthrough]];
      case Attack::kStranger:
        return sender.add(to, datagram(ids_[1] + 1, 100));
      case Attack::kSpoofed:
        return sender.add(to, udpPacket(at_[0], to, datagram(ids_[1] + 1, 100)));
      case Attack::kForgedAside:
        to.setPort(kClosedPort);
        [[fallthrough]];
      case Attack::kForged:
        return sender.add(to, udpPacket(at_[0], to, datagram(ids_[1], 1400)));
      case Attack::kIcmp: {
        const auto quoted = datagram(ids_[0], 100);
        const auto message = number % 2 == 0 ? test::icmpUnreachable(to, at_[0], quoted, ICMP_PORT_UNREACH)
                                             : test::icmpUnreachable(to, at_[0], quoted, ICMP_FRAG_NEEDED, 600);
        return sender.add(to, ipPacket(at_[0], to, IPPROTO_ICMP, std::as_bytes(std::span(&message, 1))));
      }
    }
  }

  // As the peer's look; the number is one that it will use soon, so that only the tag tells that it is not the peer's.
  std::vector<std::byte> datagram(std::uint64_t receiver, std::size_t bytes) {
    std::vector<std::byte> made(bytes);
    for (std::byte& byte : made) byte = static_cast<std::byte>(random_());
    if (sealed_) {
      wire::writeSealedHeader({.type = wire::FrameType::kChunk,
                               .keyPhase = (shared_.ranks[0].packetsSent >> 20 & 1) != 0,
                               .number = static_cast<std::uint32_t>(shared_.ranks[0].packetsSent + 20'000),
                               .receiverId = receiver},
                              std::span(made).first(wire::kSealedHeaderBytes));
      return made;
    }
    wire::PacketHeader header;
    header.type = wire::FrameType::kAck;
    header.receiverId = receiver;
    wire::PacketWriter writer;
    writer.begin(header);
    std::ranges::copy(writer.finish(), made.begin());
    made[4] ^= std::byte{1};  // the checksum: it would be an acknowledgement else
    return made;
  }

  const Shared& shared_;
  const bool sealed_;
  std::array<std::uint64_t, 2> ids_{};
  std::array<network::Endpoint, 2> at_{};
  std::minstd_rand random_{1};
  std::jthread thread_;  // the last: it uses all others
};

// Measurements --------------------------------------------------------------------------------------

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench(const Network& network, Security security) : sealed_(security == Security::kEncrypt) {
    void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (memory) Shared();
    for (int rank = 0; rank < 2; ++rank) {
      int commands[2], answers[2];
      if (::pipe(commands) != 0 || ::pipe(answers) != 0) std::abort();
      pids_[rank] = ::fork();
      if (pids_[rank] == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (const int fd : {commands[1], answers[0]}) ::close(fd);
        ::_exit(RankProcess(*shared_, rank).run(network, security, commands[0], answers[1]));
      }
      for (const int fd : {commands[0], answers[1]}) ::close(fd);
      commands_[rank] = commands[1];
      answers_[rank] = answers[0];
    }
  }
  ~Bench() {
    for (const int fd : commands_) ::close(fd);
    for (const int fd : answers_) ::close(fd);
    for (const pid_t pid : pids_) {
      if (pid > 0 && ::kill(pid, SIGKILL) == 0) (void)::waitpid(pid, nullptr, 0);
    }
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  bool awaitRanks() const {
    char byte = 0;
    return std::ranges::all_of(answers_, [&](int fd) { return ::read(fd, &byte, 1) == 1; });
  }
  bool failed() const { return shared_->ranks[0].failed || shared_->ranks[1].failed; }

  // Rounds a second.
  double rate(Work work, double seconds, Attack attack = Attack::kNone, double floodRate = 0) {
    begin(work);
    const Attacker attacker(*shared_, sealed_, attack, floodRate);
    sleepFor(kWarmUpSeconds);
    const auto start = std::chrono::steady_clock::now();
    const std::uint64_t before = shared_->rounds;
    const std::uint64_t packets = shared_->ranks[1].packetsReceived;
    sleepFor(seconds);
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto rounds = static_cast<double>(shared_->rounds - before);
    packetRate_ = static_cast<double>(shared_->ranks[1].packetsReceived - packets) / elapsed;
    ++shared_->works;  // the last round
    (void)awaitRanks();
    return rounds / elapsed;
  }
  // Of rank 1, in the last rate(): datagrams a second.
  double packetRate() const { return packetRate_; }

  // The share of a core that rank 1 uses while it waits for nothing.
  double idle(double seconds, Attack attack, double floodRate) {
    const Attacker attacker(*shared_, sealed_, attack, floodRate);
    sleepFor(0.5);
    const double before = cpuSeconds();
    sleepFor(seconds);
    return (cpuSeconds() - before) / seconds;
  }
  void flood(double seconds, Attack attack, double floodRate) {
    const Attacker attacker(*shared_, sealed_, attack, floodRate);
    sleepFor(seconds);
  }

 private:
  void begin(Work work) {
    for (const int fd : commands_) (void)!::write(fd, &work, 1);
  }
  double cpuSeconds() const {
    clockid_t clock{};
    timespec used{};
    if (::clock_getcpuclockid(pids_[1], &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
    return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
  }

  const bool sealed_;
  Shared* shared_ = nullptr;
  std::array<pid_t, 2> pids_{};
  std::array<int, 2> commands_{}, answers_{};
  double packetRate_ = 0;
};

struct Options {
  bool plain = false;
  std::string only;  // empty: all
  int rounds = 15;
  double seconds = 0.25, after = 10;
};

// `attacks` in turns; prints each one's median, and the median of its shares of the first's in the same round.
void compare(Bench& bench, const Options& options, Work work, double floodRate, const std::vector<Attack>& attacks) {
  std::vector<std::vector<double>> rates(attacks.size()), shares(attacks.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < attacks.size(); ++i) {
      rates[i].push_back(bench.rate(work, options.seconds, attacks[i], floodRate));
      shares[i].push_back(rates[i].back() / rates[0].back());
    }
  }
  const double unit = work == Work::kBulk ? kBulkBytes / 1e9 : 1;
  for (std::size_t i = 0; i < attacks.size(); ++i) {
    fmt::print("  {:52} {:12.4g} {}  {:5.3f}\n", nameOf(attacks[i]), unit * median(rates[i]),
               work == Work::kBulk ? "GB/s    " : "rounds/s", median(shares[i]));
  }
}

void measureBulk(Bench& bench, const Options& options) {
  const double hundredth = bench.packetRate() / 100;
  fmt::print("messages of 4 MiB, 1 % more datagrams ({:.0f} a second)\n", hundredth);
  compare(bench, options, Work::kBulk, hundredth, {Attack::kForgedAside, Attack::kNone, Attack::kForged});
}

void measureSmall(Bench& bench, const Options& options) {
  fmt::print("messages of 4 B, {:.0f} datagrams a second\n", kSmallFlood);
  compare(bench, options, Work::kSmall, kSmallFlood,
          {Attack::kStrangerAside, Attack::kNone, Attack::kStranger, Attack::kSpoofed});
}

void measureIdle(Bench& bench, const Options& options) {
  fmt::print("share of a core that an idle rank uses under {:.0f} datagrams a second\n", kSmallFlood);
  for (const Attack attack : {Attack::kNone, Attack::kStrangerAside, Attack::kStranger, Attack::kSpoofed}) {
    fmt::print("  {:52} {:12.2f} %\n", nameOf(attack), 100 * bench.idle(8 * options.seconds, attack, kSmallFlood));
  }
}

// Rounds a second, of small and of long messages.
std::array<double, 2> bothRates(Bench& bench, const Options& options) {
  std::array<double, 2> rates{};
  for (const Work work : {Work::kSmall, Work::kBulk}) {
    std::vector<double> rounds;
    for (int i = 0; i < options.rounds; ++i) rounds.push_back(bench.rate(work, options.seconds));
    rates[work == Work::kBulk ? 1 : 0] = median(rounds);
  }
  return rates;
}

void measureAfter(Bench& bench, const Options& options) {
  fmt::print("before, and {:g} s after 2 s of {:.0f} datagrams a second: messages of 4 B, and of 4 MiB\n",
             options.after, kSmallFlood);
  for (const Attack attack : {Attack::kStranger, Attack::kSpoofed, Attack::kForged, Attack::kIcmp}) {
    if (attack == Attack::kIcmp && options.plain) continue;  // it ends the session
    const auto before = bothRates(bench, options);
    bench.flood(2, attack, kSmallFlood);
    sleepFor(options.after);
    const auto after = bothRates(bench, options);
    fmt::print("  {:52} {:8.0f} {:8.0f} rounds/s  {:5.3f}   {:5.3f} {:5.3f} GB/s  {:5.3f}\n", nameOf(attack), before[0],
               after[0], after[0] / before[0], before[1] * kBulkBytes / 1e9, after[1] * kBulkBytes / 1e9,
               after[1] / before[1]);
  }
}

void measure(Bench& bench, const Options& options) {
  // Until the path's MTU is known.
  for (int i = 0; i < 2; ++i) (void)bench.rate(Work::kBulk, 1);
  const auto wanted = [&](const char* name) { return options.only.empty() || options.only == name; };
  if (wanted("bulk")) measureBulk(bench, options);
  if (wanted("small")) measureSmall(bench, options);
  if (wanted("idle")) measureIdle(bench, options);
  if (wanted("after")) measureAfter(bench, options);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("What attacks cost: two ranks over UDP in two network namespaces, an attacker on the path between them");
  app.add_flag("--plain", options.plain, "datagrams are not sealed");
  app.add_option("--only", options.only, "one part")->check(CLI::IsMember({"bulk", "small", "idle", "after"}));
  app.add_option("--rounds", options.rounds, "rounds of which the median is taken")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds, "seconds of one measurement")->check(CLI::Range(0.05, 600.0));
  app.add_option("--after", options.after, "seconds between a flood and the measurement after it")
      ->check(CLI::Range(0.0, 600.0));
  CLI11_PARSE(app, argc, argv);
  const Network network;
  if (!network.made()) {
    fmt::print(stderr, "attack_bench: network namespaces need root and the command ip\n");
    return 1;
  }
  Bench bench(network, options.plain ? Security::kOff : Security::kEncrypt);
  if (!bench.awaitRanks() || !network.enter('x')) {
    fmt::print(stderr, "attack_bench: the ranks did not connect\n");
    return 1;
  }
  fmt::print("# commit {}, {}, MTU 1500; median of {} rounds of {:g} s\n", GLOO_BYPASS_COMMIT,
             options.plain ? "plain" : "sealed", options.rounds, options.seconds);
  measure(bench, options);
  if (!bench.failed()) return 0;
  fmt::print(stderr, "attack_bench: an attack has ended the session\n");
  return 1;
}

}  // namespace
}  // namespace gloo_bypass

int main(int argc, char** argv) { return gloo_bypass::run(argc, argv); }
