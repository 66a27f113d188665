#include "transport/base/doorbell.h"

#include <sys/socket.h>

#include <array>
#include <cstddef>

#include "transport/base/exhausted.h"

namespace gloo_bypass {
namespace {

// The kernel holds 6 rings in the smallest buffer (net.unix.max_dgram_qlen does not bound a socket pair). A peer that
// enlarges the buffer again, or rings without end, must not keep the owner here.
constexpr int kSmallestBuffer = 1, kMostRings = 16;

int optionOf(int descriptor, int name) {
  int value = -1;
  socklen_t length = sizeof(value);
  return ::getsockopt(descriptor, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

bool sendOne(int descriptor) {
  const std::byte one{1};
  return ::send(descriptor, &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

bool takeOne(int descriptor) {
  std::byte ignored;
  return ::recv(descriptor, &ignored, sizeof(ignored), MSG_DONTWAIT) >= 0;
}

Status refused(const char* call) {
  const auto [code, text] = failedCall(call);
  return Status(ErrorScope::kDevice, code, text);
}

}  // namespace

Doorbell::Doorbell() {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    made_ = refused("socketpair");
    return;
  }
  heard_.reset(ends[0]);
  rung_.reset(ends[1]);
  (void)::setsockopt(rung_.get(), SOL_SOCKET, SO_SNDBUF, &kSmallestBuffer, sizeof(kSmallestBuffer));
  if (!sendOne(rung_.get())) {
    made_ = refused("sendto");
  } else if (!takeOne(heard_.get())) {
    made_ = refused("recvfrom");
  }
}

void Doorbell::quiet() const {
  for (int taken = 0; taken < kMostRings && takeOne(heard_.get()); ++taken) continue;
}

// If the buffer is full, a ring is waiting already.
void Doorbell::ring(int descriptor) { (void)sendOne(descriptor); }

bool Doorbell::isOne(int descriptor) {
  return optionOf(descriptor, SO_DOMAIN) == AF_UNIX && optionOf(descriptor, SO_TYPE) == SOCK_DGRAM;
}

}  // namespace gloo_bypass
