// Where --step-markers sends to.
#pragma once

#include <netinet/in.h>

#include <optional>
#include <string>

namespace gloo_bypass::trainer {

// "10.32.0.1" or "10.32.0.1:9999"; nullopt: neither.
std::optional<sockaddr_in> parseMarkerAddress(const std::string& text);

}  // namespace gloo_bypass::trainer
