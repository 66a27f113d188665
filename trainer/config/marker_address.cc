#include "trainer/config/marker_address.h"

#include <arpa/inet.h>

#include <charconv>

#include "transport/wire/step_marker.h"

namespace gloo_bypass::trainer {

std::optional<sockaddr_in> parseMarkerAddress(const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const size_t colon = text.find(':');
  uint16_t port = wire::kStepMarkerPort;
  if (colon != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
    if (parsed.ec != std::errc() || parsed.ptr != end || port == 0) {
      return {};
    }
  }
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1) {
    return {};
  }
  return address;
}

}  // namespace gloo_bypass::trainer
