// One of this machine's network interfaces, and what has become of it since. Asked through a socket, whose network
// namespace it is in, whichever thread asks. Never waits.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <optional>
#include <string>

namespace gloo_bypass::network {

struct NetworkInterface {
  int index = 0;
  std::string name;  // when it was found

  // That has `address`; nothing: none has. In the calling thread's namespace.
  static std::optional<NetworkInterface> withAddress(const sockaddr& address);

  bool isDeleted(int socket) const;
  std::size_t mtu(int socket) const;  // 0: it cannot be asked any more
  // "interface 'eth0' was deleted", "... is down", "... has no carrier"; empty: it is up.
  std::string trouble(int socket) const;
};

}  // namespace gloo_bypass::network
