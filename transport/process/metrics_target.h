// The target of metrics while the process runs: parses GLOO_BYPASS_METRICS.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gloo_bypass {

struct MetricsTarget {
  enum class Kind { kFile, kSocket, kPort };  // HTTP over a Unix socket, or at a TCP port
  Kind kind = Kind::kPort;
  std::string path;        // of the file or socket
  std::string address;     // numeric IPv4; default 127.0.0.1
  std::uint16_t port = 0;  // 0: any free one
};

inline constexpr const char* kMetricsTargetForms =
    "file:/PATH, unix:/PATH, or http://ADDRESS:PORT with PORT a number, NUMBER+%r or auto";

// "file:/run/x_%p.prom", "unix:/run/x_%p.sock" (%p stays); "http://127.0.0.1:9400", "http://:9400" (loopback),
// "http://localhost:auto", "http://0.0.0.0:9400+3" (port 9403). Nothing: not of these forms.
std::optional<MetricsTarget> parseMetricsTarget(std::string_view text);

}  // namespace gloo_bypass
