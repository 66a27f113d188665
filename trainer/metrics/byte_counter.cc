#include "trainer/metrics/byte_counter.h"

#include <dlfcn.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace gloo_bypass::trainer {
namespace {

std::optional<tcp_info> tcpInfo(int fd) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  // A kernel before 4.19 returns a shorter structure, without the bytes sent.
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      length < offsetof(tcp_info, tcpi_bytes_sent) + sizeof(info.tcpi_bytes_sent)) {
    return std::nullopt;
  }
  return info;
}

class TcpCounter : public ByteCounter {
 public:
  explicit TcpCounter(std::vector<int> sockets) : sockets_(std::move(sockets)) {}

  std::optional<ByteCounts> read() override {
    ByteCounts counts;
    for (const int fd : sockets_) {
      const auto info = tcpInfo(fd);
      if (!info) {
        return std::nullopt;
      }
      counts.sent += info->tcpi_bytes_sent;
      counts.received += info->tcpi_bytes_received;
    }
    return counts;
  }
  const char* source() const override { return "tcp_info"; }

 private:
  std::vector<int> sockets_;
};

using StatsFunction = int (*)(char*, size_t);

StatsFunction statsFunction() {
  return reinterpret_cast<StatsFunction>(::dlsym(RTLD_DEFAULT, "gloo_bypass_stats_json"));
}

// What the function writes, in `buffer`. The text may grow between two calls: a few tries, then none.
std::optional<std::string_view> countersIn(StatsFunction stats, std::string& buffer) {
  for (int attempt = 0; stats != nullptr && attempt < 4; ++attempt) {
    const int needed = stats(buffer.data(), buffer.size());
    if (needed < 0) {
      return std::nullopt;
    }
    if (static_cast<size_t>(needed) < buffer.size()) {
      return buffer.c_str();
    }
    buffer.resize(static_cast<size_t>(needed) + 1024);
  }
  return std::nullopt;
}

std::optional<ByteCounts> countsIn(const nlohmann::json& counters) {
  if (!counters.is_object() || !counters.contains("bytes_sent") || !counters["bytes_sent"].is_number_unsigned() ||
      !counters.contains("bytes_received") || !counters["bytes_received"].is_number_unsigned()) {
    return std::nullopt;
  }
  return ByteCounts{counters["bytes_sent"].get<uint64_t>(), counters["bytes_received"].get<uint64_t>()};
}

class PluginCounter : public ByteCounter {
 public:
  explicit PluginCounter(StatsFunction stats) : stats_(stats) {}

  std::optional<ByteCounts> read() override {
    const auto text = countersIn(stats_, buffer_);
    const auto json = text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
    if (!json.is_object() || json.contains("transport")) {
      return countsIn(json);
    }
    ByteCounts all;  // of several transports, each under its name
    for (const auto& counters : json) {
      const auto counts = countsIn(counters);
      if (!counts) return std::nullopt;
      all.sent += counts->sent;
      all.received += counts->received;
    }
    return json.empty() ? std::nullopt : std::optional(all);
  }
  const char* source() const override { return stats_ != nullptr ? "gloo_bypass_stats_json" : "none"; }

 private:
  StatsFunction stats_;
  std::string buffer_ = std::string(4096, '\0');
};

}  // namespace

std::set<int> openTcpSockets() {
  std::set<int> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string name = entry.path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    int protocol = 0;
    socklen_t length = sizeof(protocol);
    if (fd >= 0 && ::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 && protocol == IPPROTO_TCP) {
      sockets.insert(fd);
    }
  }
  return sockets;
}

std::unique_ptr<ByteCounter> makeTcpCounter(const std::set<int>& before) {
  constexpr uint8_t kEstablished = 1;  // TCP_ESTABLISHED, which linux/tcp.h does not define
  std::vector<int> sockets;
  for (const int fd : openTcpSockets()) {
    const auto info = tcpInfo(fd);
    if (!before.contains(fd) && info && info->tcpi_state == kEstablished) {
      sockets.push_back(fd);
    }
  }
  return std::make_unique<TcpCounter>(std::move(sockets));
}

std::unique_ptr<ByteCounter> makePluginCounter() { return std::make_unique<PluginCounter>(statsFunction()); }

std::optional<std::string> pluginCounters() {
  std::string buffer(4096, '\0');
  const auto text = countersIn(statsFunction(), buffer);
  return text ? std::optional<std::string>(*text) : std::nullopt;
}

}  // namespace gloo_bypass::trainer
