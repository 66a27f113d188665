// One of this machine's network interfaces, and its state now. It queries through a socket, and so in the socket's
// network namespace, from whichever thread. Never blocks.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <optional>
#include <string>

namespace gloo_bypass::network {

struct NetworkInterface {
  int index = 0;
  std::string name;  // when it was found

  // The interface that has `address` in the calling thread's namespace; nullopt: none.
  static std::optional<NetworkInterface> withAddress(const sockaddr& address);

  bool isDeleted(int socket) const;
  std::size_t mtu(int socket) const;  // 0: the query fails
  // "interface 'eth0' was deleted", "... is down", "... has no carrier"; empty: it is up.
  std::string trouble(int socket) const;
};

}  // namespace gloo_bypass::network
