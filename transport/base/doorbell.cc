#include "transport/base/doorbell.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace gloo_bypass {
namespace {

int optionOf(int descriptor, int name) {
  int value = -1;
  socklen_t length = sizeof(value);
  return ::getsockopt(descriptor, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

}  // namespace

Doorbell::Doorbell() {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    error_ = errno;
    return;
  }
  heard_.reset(ends[0]);
  rung_.reset(ends[1]);
}

void Doorbell::quiet() const {
  std::byte ignored;
  (void)::recv(heard_.get(), &ignored, sizeof(ignored), MSG_DONTWAIT);
}

// Full: it has been heard already.
void Doorbell::ring(int descriptor) {
  const std::byte one{1};
  (void)::send(descriptor, &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool Doorbell::isOne(int descriptor) {
  return optionOf(descriptor, SO_DOMAIN) == AF_UNIX && optionOf(descriptor, SO_TYPE) == SOCK_DGRAM;
}

}  // namespace gloo_bypass
