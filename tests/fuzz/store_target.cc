// Clients and strangers of the benchmark's key/value store, over loopback: what they send, in what pieces, and when
// they hang up. The server has a thread of its own, so an input need not give the same order each time.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tools/all_reduce_perf/key_value_store.h"
#include "transport/base/check.h"
#include "transport/base/file_descriptor.h"

namespace gloo_bypass::fuzz {
namespace {

constexpr std::size_t kConnections = 3;
constexpr std::size_t kMostSteps = 64;
constexpr int kPatienceMs = 15'000;  // for an answer that must come, on a machine of any load
constexpr std::uint8_t kSet = 1, kGet = 2;

FileDescriptor connectTo(std::uint16_t port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  GLOO_BYPASS_CHECK(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return socket;
}

void appendU32(std::string& bytes, std::uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<char>(value >> shift));
}

std::string request(std::uint8_t operation, const std::string& key, const std::string& value) {
  std::string bytes(1, static_cast<char>(operation));
  appendU32(bytes, static_cast<std::uint32_t>(key.size()));
  appendU32(bytes, operation == kSet ? static_cast<std::uint32_t>(value.size()) : 0);
  return bytes + key + (operation == kSet ? value : "");
}

class Client {
 public:
  void open(std::uint16_t port) {
    socket_ = connectTo(port);
    honest_ = true;
  }
  bool isOpen() const { return socket_.get() >= 0; }
  void close() { socket_ = FileDescriptor(); }
  void send(const std::string& bytes) {
    (void)::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // From here on the server may hang up, or wait for more.
  void sendAnything(const std::string& bytes) {
    honest_ = false;
    send(bytes);
  }
  bool honest() const { return honest_; }

  // The value, if it was found; the server must answer. Nothing: the kernel has reset the connection, as it may where
  // thousands a minute come and go.
  std::optional<std::pair<bool, std::string>> ask(const std::string& bytes) {
    send(bytes);
    const std::string head = receive(5);
    if (head.size() < 5) return std::nullopt;
    GLOO_BYPASS_CHECK(head[0] == 0 || head[0] == 1);
    std::uint32_t length = 0;
    for (int i = 1; i < 5; ++i) length = length << 8 | static_cast<unsigned char>(head[static_cast<std::size_t>(i)]);
    GLOO_BYPASS_CHECK(length <= 1 << 20);
    const std::string value = receive(length);
    if (value.size() < length) return std::nullopt;
    return std::pair(head[0] == 1, value);
  }

 private:
  std::string receive(std::size_t bytes) {
    std::string all;
    while (all.size() < bytes) {
      pollfd polled{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      GLOO_BYPASS_CHECK(::poll(&polled, 1, kPatienceMs) == 1);
      std::array<char, 4096> part;
      const ssize_t got = ::recv(socket_.get(), part.data(), std::min(part.size(), bytes - all.size()), 0);
      if (got <= 0) return all;
      all.append(part.data(), static_cast<std::size_t>(got));
    }
    return all;
  }

  FileDescriptor socket_;
  bool honest_ = false;
};

}  // namespace

void fuzzStore(std::span<const std::uint8_t> input) {
  // libFuzzer's clock interrupts calls, and a request that is not sent is not answered.
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  GLOO_BYPASS_CHECK(::pthread_sigmask(SIG_BLOCK, &alarm, nullptr) == 0);
  KeyValueServer server(Reach::kThisMachine, 0);
  server.start();
  std::array<Client, kConnections> clients;
  // No stranger's request, handled a moment later, sets such a key.
  const std::string ours = std::to_string(std::chrono::steady_clock::now().time_since_epoch().count());
  std::size_t at = 0;
  const auto byte = [&] { return at < input.size() ? input[at++] : std::uint8_t{0}; };
  const auto bytes = [&](std::size_t most) {
    std::string taken;
    for (std::size_t count = byte() % (most + 1); count > 0 && at < input.size(); --count) {
      taken.push_back(static_cast<char>(byte()));
    }
    return taken;
  };
  for (std::size_t step = 0; step < kMostSteps && at < input.size(); ++step) {
    const std::uint8_t code = byte();
    Client& client = clients[(code >> 4) % kConnections];
    if (!client.isOpen()) {
      client.open(server.port());
      // A client's first request is a get.
      if (!client.ask(request(kGet, "", ""))) client.close();
      continue;
    }
    switch (code & 3) {
      case 0: {
        if (!client.honest()) break;
        const std::string key = ours + bytes(3), value = bytes(60);
        const auto kept = client.ask(request(kSet, key, value));
        const auto got = kept ? client.ask(request(kGet, key, "")) : std::nullopt;
        GLOO_BYPASS_CHECK(!kept || kept->first);
        GLOO_BYPASS_CHECK(!got || *got == std::pair(true, value));
        if (!got) client.close();
        break;
      }
      case 1:
        client.sendAnything(bytes(200));
        break;
      case 2: {  // a request with lengths of any size
        std::string head(1, static_cast<char>(byte() % 4));
        for (int i = 0; i < 8; ++i) head.push_back(static_cast<char>(byte()));
        client.sendAnything(head + bytes(40));
        break;
      }
      case 3:
        client.close();
        break;
    }
  }
}

}  // namespace gloo_bypass::fuzz
