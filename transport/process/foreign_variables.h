// Variables that begin as our settings do and that somebody else has set: Kubernetes makes some for each Service of a
// namespace ("gloo-bypass", or "gloo-bypass-metrics", which people choose for what scrapes the ranks), Docker for each
// linked container, and module systems for an installed package. Their shape tells them from a misspelt setting.
//
// Thread: any. Reads no environment.
#pragma once

#include <string_view>

namespace gloo_bypass {

// True for such a variable, even if it has a setting's name: a Service "gloo-bypass-udp" makes GLOO_BYPASS_UDP_PORT.
bool isForeignVariable(std::string_view name, std::string_view value);

}  // namespace gloo_bypass
