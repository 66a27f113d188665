#include "transport/process/metrics_target.h"

#include <arpa/inet.h>

#include "transport/base/whole_number.h"
#include "transport/channel/setting.h"

namespace gloo_bypass {
namespace {

using Kind = MetricsTarget::Kind;

constexpr std::string_view kFile = "file:", kUnix = "unix:", kHttp = "http://";
constexpr std::uint32_t kMaxPort = 65535;
// PATH_MAX, with room for the temporary file's name. A socket's path is checked when it is made.
constexpr std::size_t kMaxPath = 4000;

// "9400", "9400+3", "auto"
std::optional<std::uint16_t> parsePort(std::string_view text) {
  if (text == "auto") return std::uint16_t{0};
  const std::size_t plus = text.find('+');
  const auto base = wholeNumber(text.substr(0, plus), 0U, kMaxPort);
  const auto offset =
      plus == std::string_view::npos ? std::uint32_t{0} : wholeNumber(text.substr(plus + 1), 0U, kMaxPort);
  if (!base || !offset || *base + *offset > kMaxPort) return std::nullopt;
  if (plus != std::string_view::npos && *base == 0) return std::nullopt;  // any free port plus 3 is nonsense
  return static_cast<std::uint16_t>(*base + *offset);
}

}  // namespace

std::optional<MetricsTarget> parseMetricsTarget(std::string_view text) {
  if (!isPrintable(text)) return std::nullopt;
  MetricsTarget target;
  if (text.starts_with(kFile) || text.starts_with(kUnix)) {
    static_assert(kFile.size() == kUnix.size());
    target.kind = text.starts_with(kFile) ? Kind::kFile : Kind::kSocket;
    target.path = text.substr(kFile.size());
    if (target.path.empty() || target.path.front() != '/' || target.path.back() == '/' ||
        target.path.size() > kMaxPath) {
      return std::nullopt;
    }
    return target;
  }
  if (!text.starts_with(kHttp)) return std::nullopt;
  text.remove_prefix(kHttp.size());
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto port = parsePort(text.substr(colon + 1));
  target.address = text.substr(0, colon);
  if (target.address.empty() || target.address == "localhost") target.address = "127.0.0.1";
  in_addr address{};
  if (!port || inet_pton(AF_INET, target.address.c_str(), &address) != 1) return std::nullopt;
  target.port = *port;
  return target;
}

}  // namespace gloo_bypass
