#include "plugin/metrics_text.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "transport/io/json_text.h"
#include "transport/io/latency_json.h"

namespace gloo_bypass {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

// A number of the JSON and the metric it becomes.
struct Row {
  const char* key;
  const char* metric;  // without gloo_bypass_; one that ends in _total is a counter, any other a gauge
  const char* help;
  double scale = 1;  // metric's unit over the JSON's
};

constexpr Row kTransportRows[] = {
    {"messages_sent", "messages_sent_total", "Messages handed over to peers"},
    {"messages_received", "messages_received_total", "Messages that have arrived from peers"},
    {"payload_bytes_sent", "payload_sent_bytes_total", "Bytes of messages sent, first transmissions only"},
    {"payload_bytes_received", "payload_received_bytes_total", "Bytes of messages received"},
    {"packets_sent", "packets_sent_total", "Datagrams or frames sent, repetitions and acknowledgements included"},
    {"packets_received", "packets_received_total", "Datagrams or frames received"},
    {"wire_bytes_sent", "wire_sent_bytes_total", "Bytes of datagrams or frames sent, our headers included"},
    {"wire_bytes_received", "wire_received_bytes_total", "Bytes of datagrams or frames received"},
    {"bytes_sent", "port_sent_bytes_total", "Bytes the port has sent, as far out as it can count"},
    {"bytes_received", "port_received_bytes_total", "Bytes the port has received"},
    {"retransmits", "retransmits_total", "Frames sent again"},
    {"spurious_retransmits", "spurious_retransmits_total", "Of them, of frames that had arrived, as far as known"},
    {"tail_loss_probes", "tail_loss_probes_total", "Silences after which a peer was asked what it has"},
    {"retransmit_timeouts", "retransmit_timeouts_total", "Times a peer did not answer that and was asked again"},
    {"repair_frames_sent", "repair_frames_sent_total", "Frames sent for the peer to find lost ones again"},
    {"repair_frames_received", "repair_frames_received_total", "Such frames received"},
    {"frames_recovered", "frames_recovered_total", "Lost frames found again from repair frames"},
    {"frames_unrepaired", "frames_unrepaired_total", "Frames sent again although repair frames covered them"},
    {"duplicates_received", "duplicates_received_total", "Frames that had arrived before"},
    {"corrupted_received", "corrupted_received_total", "Datagrams dropped for a wrong checksum"},
    {"invalid_received", "invalid_received_total", "Datagrams dropped for impossible fields"},
    {"eager_messages", "eager_messages_total", "Messages sent without asking the receiver"},
    {"rendezvous_messages", "rendezvous_messages_total", "Messages that waited for the receiver"},
    {"buffered_sends", "buffered_sends_total", "Sends copied into the send buffer"},
    {"staged_receives", "staged_receives_total", "Messages kept until a receive asked for them"},
};
constexpr Row kPortRows[] = {
    {"packets_sent", "port_packets_sent_total", "Packets the port has sent"},
    {"packets_received", "port_packets_received_total", "Packets the port has received"},
    {"transmit_full", "port_transmit_full_total", "Times the port took no packet: sent later"},
    {"dropped_malformed", "port_dropped_malformed_total", "Packets dropped: not well-formed"},
    {"dropped_foreign", "port_dropped_foreign_total", "Packets dropped: for somebody else"},
    {"dropped_no_buffer", "port_dropped_no_buffer_total", "Packets dropped: no buffer was free"},
    {"capture_frames", "port_capture_frames_total", "Frames in the port's capture"},
    {"capture_bytes", "port_capture_bytes_total", "Bytes of these frames, as they were"},
    {"capture_lost", "port_capture_lost_total", "Frames that the capture lacks: the disk was too slow or full"},
    {"dropped_not_ours", "port_dropped_not_ours_total", "Datagrams dropped: not of this protocol"},
    {"dropped_unknown_session", "port_dropped_unknown_session_total", "Datagrams dropped: of no session here"},
    {"rails", "rdma_rails", "Verbs devices in use"},
    {"active_mtu_bytes", "rdma_mtu_bytes", "MTU of the first device's port"},
    {"slot_bytes_registered", "rdma_slots_bytes", "Registered memory for small messages"},
    {"memory_registrations", "rdma_memory_registrations_total", "Registrations of memory"},
    {"registration_hits", "rdma_registration_hits_total", "Registrations found in the cache"},
    {"registration_misses", "rdma_registration_misses_total", "Registrations not found in the cache"},
    {"registrations_not_kept", "rdma_registrations_not_kept_total", "Registrations that could not be cached"},
    {"registration_invalidations", "rdma_registration_invalidations_total", "Cached registrations dropped: unmapped"},
    {"registration_evictions", "rdma_registration_evictions_total", "Cached registrations dropped for room"},
    {"pinned_bytes", "rdma_pinned_bytes", "Memory pinned by registrations"},
    {"peak_pinned_bytes", "rdma_peak_pinned_bytes", "Most memory that registrations have pinned"},
    {"stray_completions", "rdma_stray_completions_total", "Completions of queue pairs that are gone"},
    {"port_downs", "rdma_port_downs_total", "Times a device's port went down"},
    {"refused_control_connections", "rdma_refused_control_connections_total", "Control connections refused"},
};
constexpr Row kChannelRows[] = {
    {"messages_sent", "channel_messages_sent_total", "Messages handed over to this peer"},
    {"messages_received", "channel_messages_received_total", "Messages that have arrived from this peer"},
    {"payload_bytes_sent", "channel_payload_sent_bytes_total", "Bytes of messages sent to this peer"},
    {"payload_bytes_received", "channel_payload_received_bytes_total", "Bytes of messages received from this peer"},
    {"retransmits", "channel_retransmits_total", "Frames sent to this peer again"},
    {"retransmit_timeouts", "channel_retransmit_timeouts_total", "Times a silent peer was asked again"},
    {"smoothed_rtt_us", "channel_smoothed_rtt_seconds", "Smoothed round-trip time", 1e-6},
    {"min_rtt_us", "channel_min_rtt_seconds", "Least round-trip time of the last seconds", 1e-6},
    {"congestion_window_bytes", "channel_congestion_window_bytes", "Congestion window"},
};

std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || (quotes && c == '"')) out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

// What is not UTF-8 becomes U+FFFD. Texts out of the JSON are well-formed already.
std::string wellFormed(const std::string& text) {
  using nlohmann::json;
  return json::parse(jsonText(json(text))).get<std::string>();
}

std::string inBraces(const Labels& labels) {
  std::string text;
  for (const auto& [name, value] : labels) {
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "{" : ",", name, escaped(value, true));
  }
  return text.empty() ? text : text + "}";
}

// All samples of a metric must stand together under one HELP and TYPE, though they come transport by transport.
class Families {
 public:
  void add(const std::string& metric, const char* type, const char* help, const std::string& suffix,
           const Labels& labels, const std::string& value) {
    auto found = std::find_if(families_.begin(), families_.end(), [&](const Family& f) { return f.metric == metric; });
    if (found == families_.end()) found = families_.insert(families_.end(), {metric, type, help, ""});
    found->samples += fmt::format("gloo_bypass_{}{}{} {}\n", metric, suffix, inBraces(labels), value);
  }
  std::string text() const {
    std::string all;
    for (const Family& f : families_) {
      all += fmt::format("# HELP gloo_bypass_{} {}\n# TYPE gloo_bypass_{} {}\n{}", f.metric, escaped(f.help, false),
                         f.metric, f.type, f.samples);
    }
    return all;
  }

 private:
  struct Family {
    std::string metric, type, help, samples;
  };
  std::vector<Family> families_;  // some dozens, in the order of first use
};

std::string numberText(const nlohmann::json& value, double scale) {
  if (scale == 1) return value.dump();
  // As many digits as the measurement has (nanoseconds), not those that binary fractions add.
  return fmt::format("{:.12g}", value.get<double>() * scale);
}

template <std::size_t n>
void addRows(Families& families, const Row (&rows)[n], const nlohmann::json& object, const Labels& labels) {
  for (const Row& row : rows) {
    const auto found = object.find(row.key);
    if (found == object.end() || !found->is_number()) continue;
    const bool counter = std::string_view(row.metric).ends_with("_total");
    families.add(row.metric, counter ? "counter" : "gauge", row.help, "", labels, numberText(*found, row.scale));
  }
}

Labels with(Labels labels, std::string name, std::string value) {
  labels.emplace_back(std::move(name), std::move(value));
  return labels;
}

double secondsOf(const nlohmann::json& histogram, const char* key) { return histogram.at(key).get<double>() * 1e-6; }

// Every process has the same edges, used or not. ("Below an edge" stands for Prometheus's "at most": a nanosecond's difference.)
void addHistogram(Families& families, const char* metric, const char* help, const nlohmann::json& histogram,
                  const Labels& labels) {
  const auto add = [&](const char* suffix, const Labels& all, const std::string& value) {
    families.add(metric, "histogram", help, suffix, all, value);
  };
  const nlohmann::json& buckets = histogram.at("buckets");
  const std::string count = histogram.at("count").dump();
  for (unsigned bits = kFirstEdgeBits; bits <= kLastEdgeBits; ++bits) {
    const std::size_t i = bits - kFirstEdgeBits;
    const double edge = static_cast<double>(std::uint64_t{1} << bits) / 1e9;
    add("_bucket", with(labels, "le", fmt::format("{}", edge)), i < buckets.size() ? buckets[i][1].dump() : count);
  }
  add("_bucket", with(labels, "le", "+Inf"), count);
  add("_sum", labels, fmt::format("{:.12g}", secondsOf(histogram, "sum")));
  add("_count", labels, count);
}

void addSummary(Families& families, const char* metric, const char* help, const nlohmann::json& summary,
                const Labels& labels) {
  const auto add = [&](const char* suffix, const Labels& all, const std::string& value) {
    families.add(metric, "summary", help, suffix, all, value);
  };
  for (const auto& [key, quantile] : {std::pair{"p50", "0.5"}, std::pair{"p90", "0.9"}, std::pair{"p99", "0.99"}}) {
    add("", with(labels, "quantile", quantile), fmt::format("{:.12g}", secondsOf(summary, key)));
  }
  add("_sum", labels, fmt::format("{:.12g}", secondsOf(summary, "sum")));
  add("_count", labels, summary.at("count").dump());
}

void addLatencies(Families& families, const nlohmann::json& latencies, const Labels& labels) {
  struct BySize {
    const char *key, *metric, *peerMetric, *help;
  };
  for (const BySize& d :
       {BySize{"send", "send_seconds", "peer_send_seconds", "Time from posting a send to its buffer being free"},
        BySize{"receive", "receive_seconds", "peer_receive_seconds",
               "Time from posting a receive to the message being there, the wait for the peer included"}}) {
    if (!latencies.contains(d.key)) continue;
    for (const auto& [size, histogram] : latencies.at(d.key).items()) {
      addHistogram(families, d.metric, d.help, histogram, with(labels, "size", size));
    }
    for (const auto& peer : latencies.at("peers")) {
      addSummary(families, d.peerMetric, d.help, peer.at(d.key),
                 with(labels, "peer", peer.at("peer").get<std::string>()));
    }
  }
  if (latencies.contains("connect")) {
    addHistogram(families, "connect_seconds", "Time to connect to a peer", latencies.at("connect"), labels);
  }
  if (latencies.contains("rtt")) {
    addHistogram(families, "rtt_seconds", "Round-trip times, as acknowledgements show them", latencies.at("rtt"),
                 labels);
  }
}

void addChannels(Families& families, const nlohmann::json& channels, const Labels& labels) {
  families.add("open_channels", "gauge", "Connections to peers, one for each peer of each process group", "", labels,
               std::to_string(channels.size()));
  const std::size_t shown = std::min(channels.size(), kMaxChannelsInMetrics);
  for (std::size_t i = 0; i < shown; ++i) {
    const nlohmann::json& channel = channels[i];
    Labels own = with(labels, "channel", channel.at("channel").dump());
    own = with(std::move(own), "peer", channel.at("peer").get<std::string>());
    addRows(families, kChannelRows, channel, with(std::move(own), "peer_rank", channel.at("peer_rank").dump()));
  }
  families.add("channels_left_out", "gauge",
               "Open channels that have no metrics of their own, since there are too many", "", labels,
               std::to_string(channels.size() - shown));
}

}  // namespace

std::string metricsText(std::span<const TransportCounters> transports, const std::string& rank) {
  Labels common;
  if (!rank.empty()) common.emplace_back("rank", wellFormed(rank));
  Families families;
  families.add("info", "gauge", "1; its label is the version of gloo-bypass", "",
               with(common, "version", GLOO_BYPASS_VERSION), "1");
  for (const auto& [name, counters] : transports) {
    const Labels labels = with(common, "transport", name);
    addRows(families, kTransportRows, counters, labels);
    if (counters.contains("port")) {
      const nlohmann::json& port = counters.at("port");
      addRows(families, kPortRows, port, labels);
      if (port.contains("description")) {
        families.add("port_info", "gauge", "1; its label says what the transport runs over", "",
                     with(labels, "port", port.at("description").get<std::string>()), "1");
      }
    }
    if (counters.contains("open_channels")) addChannels(families, counters.at("open_channels"), labels);
    if (counters.contains("latencies")) addLatencies(families, counters.at("latencies"), labels);
  }
  return families.text();
}

}  // namespace gloo_bypass
