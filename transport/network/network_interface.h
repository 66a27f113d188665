// This machine's network interfaces, and the state of one of them later on. Never blocks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/status.h"
#include "transport/network/endpoint.h"

namespace gloo_bypass::network {

// As the kernel lists it.
struct ListedInterface {
  std::string name;
  unsigned flags = 0;
  std::vector<Endpoint> addresses;  // IPv4 first; no link-local ones, which mean nothing on another host

  bool isLoopback() const;
  bool leadsOut() const;
  bool has(const Endpoint& address) const;
};

// In the kernel's order. In the calling thread's namespace.
Result<std::vector<ListedInterface>> listInterfaces();

// The name of the one with `address`; empty: none has it. All of 127/8 is the loopback's.
std::string interfaceWith(const Endpoint& address);

// One interface, asked through a socket in its network namespace, whichever thread asks.
struct NetworkInterface {
  int index = 0;
  std::string name;  // when it was found

  // The interface that has `address` in the calling thread's namespace; nullopt: none.
  static std::optional<NetworkInterface> withAddress(const Endpoint& address);

  bool isDeleted(int socket) const;
  std::size_t mtu(int socket) const;  // 0: the query fails
  // "interface 'eth0' was deleted", "... is down", "... has no carrier"; empty: it is up.
  std::string trouble(int socket) const;
};

}  // namespace gloo_bypass::network
