// Counters and histograms in Prometheus's text format, version 0.0.4. Pure: from reports to text.
#pragma once

#include <span>
#include <string>

#include "transport/channel/transport_report.h"

namespace gloo_bypass {

struct NamedReport {
  std::string transport;  // label "transport": "DPDK"
  TransportReport report;
};

// The text of all transports' metrics. `rank`: label "rank" of each sample; no label if it is empty.
//
// Metrics are named gloo_bypass_..., counters end in _total, units are seconds and bytes. Samples per channel (labels
// channel, peer, peer_rank): at most kMaxChannelsInMetrics channels; gloo_bypass_channels_left_out counts the rest.
std::string metricsText(std::span<const NamedReport> transports, const std::string& rank);
inline constexpr std::size_t kMaxChannelsInMetrics = 256;

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace gloo_bypass
