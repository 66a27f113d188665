// Receives step markers on loopback.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gloo_bypass::trainer::testing {

struct ReceivedMarker {
  uint16_t sourcePort = 0;
  std::string text;
  bool operator==(const ReceivedMarker&) const = default;
};

class MarkerReceiver {
 public:
  // Port 0: any that is free.
  explicit MarkerReceiver(uint16_t port = 0, in_addr_t address = INADDR_LOOPBACK)
      : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in local{};
    local.sin_family = AF_INET;
    local.sin_port = htons(port);
    local.sin_addr.s_addr = htonl(address);
    socklen_t length = sizeof(local);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&local), length), 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&local), &length);
    port_ = ntohs(local.sin_port);
  }
  ~MarkerReceiver() { ::close(fd_); }
  MarkerReceiver(const MarkerReceiver&) = delete;
  MarkerReceiver& operator=(const MarkerReceiver&) = delete;

  uint16_t port() const { return port_; }

  // The markers that have arrived: on loopback, all that were sent.
  std::vector<ReceivedMarker> receive() {
    std::vector<ReceivedMarker> markers;
    std::array<char, 200> bytes;
    sockaddr_in from{};
    for (;;) {
      socklen_t length = sizeof(from);
      const ssize_t size =
          ::recvfrom(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&from), &length);
      if (size < 0) {
        return markers;
      }
      markers.push_back({ntohs(from.sin_port), std::string(bytes.data(), static_cast<size_t>(size))});
    }
  }

 private:
  int fd_;
  uint16_t port_ = 0;
};

}  // namespace gloo_bypass::trainer::testing
