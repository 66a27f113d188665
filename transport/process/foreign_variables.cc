#include "transport/process/foreign_variables.h"

#include <algorithm>
#include <initializer_list>

namespace gloo_bypass {
namespace {

bool isOneOf(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "tcp://10.3.104.46:9101"
bool isPortsAddress(std::string_view value) {
  return value.starts_with("tcp://") || value.starts_with("udp://") || value.starts_with("sctp://");
}

// The text after "..._PORT_" in "GLOO_BYPASS_PORT_9101_TCP" and its _PROTO, _PORT and _ADDR.
bool isPortAndProtocol(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits == text.size() || text[digits] != '_') return false;
  const std::string_view rest = text.substr(digits + 1);
  return isOneOf(rest.substr(0, rest.find('_')), {"TCP", "UDP", "SCTP"});
}

bool isServices(std::string_view name, std::string_view value) {
  constexpr std::string_view kPort = "_PORT_";
  if (name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT")) return true;
  if (name.find("_SERVICE_PORT_") != std::string_view::npos) return true;  // of a port with a name
  for (std::size_t at = name.find(kPort); at != std::string_view::npos; at = name.find(kPort, at + 1)) {
    if (isPortAndProtocol(name.substr(at + kPort.size()))) return true;
  }
  return name.ends_with("_PORT") && isPortsAddress(value);
}

bool isLinkedContainers(std::string_view name, std::string_view value) {
  return (name.ends_with("_NAME") && value.starts_with('/')) || name.find("_ENV_") != std::string_view::npos;
}

bool isInstalledPackages(std::string_view name) {
  return isOneOf(
      name, {"GLOO_BYPASS_ROOT", "GLOO_BYPASS_HOME", "GLOO_BYPASS_DIR", "GLOO_BYPASS_PREFIX", "GLOO_BYPASS_VERSION"});
}

}  // namespace

bool isForeignVariable(std::string_view name, std::string_view value) {
  return isServices(name, value) || isLinkedContainers(name, value) || isInstalledPackages(name);
}

}  // namespace gloo_bypass
