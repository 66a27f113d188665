// Counters and histograms as Prometheus's text format, version 0.0.4. Pure: from the JSON that transports give to text.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace gloo_bypass {

struct TransportCounters {
  std::string transport;           // label "transport": "DPDK"
  const nlohmann::json& counters;  // what Transport::countersJson gave
};

// The text of all transports' metrics. `rank`: label "rank" of each sample; none where it is empty.
//
// Metrics are named gloo_bypass_..., counters end in _total, units are seconds and bytes. Per channel (labels channel, peer, peer_rank):
// at most kMaxChannelsInMetrics channels; gloo_bypass_channels_left_out says how many there were beyond.
std::string metricsText(std::span<const TransportCounters> transports, const std::string& rank);
inline constexpr std::size_t kMaxChannelsInMetrics = 256;

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace gloo_bypass
