// A transport's report as JSON, the one form for files, the C API and Python; and as text for users.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "transport/channel/transport_report.h"

namespace gloo_bypass {

// Of a histogram's "buckets": 2^10 ns (1 us) to 2^36 ns (69 s), each edge twice the one before. The same in every
// process, so that the figures of several ranks can be added up.
inline constexpr unsigned kFirstEdgeBits = 10, kLastEdgeBits = 36;

// {"transport": `name`, counters of all channels, "bytes_sent", "bytes_received", "port": {"description", ...},
// "open_channels": [{"channel", "peer", "local_rank", "peer_rank", counters, figures of the path}], "latencies":
// {"send": {size class: histogram}, "receive": the same, "connect", "peers": [{"peer", "send", "receive"}], "rtt"}};
// what the report lacks is left out.
nlohmann::json reportJson(const std::string& name, const TransportReport& report);

// The same, one "name value" a line, nested names joined by dots; a histogram as its summary.
std::string asText(const nlohmann::json& report);

}  // namespace gloo_bypass
