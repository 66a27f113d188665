#include "transport/network/endpoint.h"

#include <fmt/format.h>

namespace gloo_bypass::network {

Endpoint endpointOf(const sockaddr& address) {
  Endpoint endpoint;
  std::memcpy(&endpoint.v6, &address, address.sa_family == AF_INET6 ? sizeof(endpoint.v6) : sizeof(endpoint.v4));
  return endpoint;
}

std::optional<Endpoint> parseIp(const std::string& text) {
  for (const sa_family_t family : {AF_INET, AF_INET6}) {
    Endpoint endpoint;
    endpoint.any.sa_family = family;
    if (::inet_pton(family, text.c_str(), endpoint.ip().data()) == 1) return endpoint;
  }
  return {};
}

std::string ipText(Endpoint endpoint) {
  char text[INET6_ADDRSTRLEN] = "?";
  (void)::inet_ntop(endpoint.any.sa_family, endpoint.ip().data(), text, sizeof(text));
  return text;
}

std::string toString(const Endpoint& endpoint) {
  return fmt::format(fmt::runtime(endpoint.isV6() ? "[{}]:{}" : "{}:{}"), ipText(endpoint), endpoint.port());
}

}  // namespace gloo_bypass::network
