// Where metrics go while the process runs: what GLOO_BYPASS_METRICS means, taken apart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gloo_bypass {

struct MetricsTarget {
  std::string path;        // of the file; empty: an HTTP endpoint
  std::string address;     // numeric IPv4; 127.0.0.1 where none was given
  std::uint16_t port = 0;  // 0: any free one
};

inline constexpr const char* kMetricsTargetForms =
    "file:/PATH, or http://ADDRESS:PORT with PORT a number, NUMBER+%r or auto";

// "file:/run/x_%p.prom" (%p stays); "http://127.0.0.1:9400", "http://:9400" (loopback), "http://localhost:auto",
// "http://0.0.0.0:9400+3" (port 9403). Nothing: not of these forms.
std::optional<MetricsTarget> parseMetricsTarget(std::string_view text);

}  // namespace gloo_bypass
