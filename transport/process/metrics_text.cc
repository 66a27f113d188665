#include "transport/process/metrics_text.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "transport/base/seconds.h"
#include "transport/process/json_text.h"
#include "transport/process/report_json.h"

namespace gloo_bypass {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

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

// Replaces invalid UTF-8 by U+FFFD.
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

// All samples of a metric must stand together under one HELP and TYPE, but reports arrive by transport.
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

void addNumber(Families& families, const char* metric, const char* help, const Labels& labels,
               const std::string& value) {
  families.add(metric, std::string_view(metric).ends_with("_total") ? "counter" : "gauge", help, "", labels, value);
}

Labels with(Labels labels, std::string name, std::string value) {
  labels.emplace_back(std::move(name), std::move(value));
  return labels;
}

// As many digits as the measurement has (nanoseconds), not the digits of a binary fraction.
std::string seconds(Duration duration) { return fmt::format("{:.12g}", secondsOf(duration)); }

// Every process writes the same edges, used or not. ("Below an edge" stands for Prometheus's "at most": a nanosecond's
// difference.)
void addHistogram(Families& families, const char* metric, const char* help, const DurationHistogram& histogram,
                  const Labels& labels) {
  const auto add = [&](const char* suffix, const Labels& all, const std::string& value) {
    families.add(metric, "histogram", help, suffix, all, value);
  };
  const std::string count = std::to_string(histogram.count());
  for (unsigned bits = kFirstEdgeBits; bits <= kLastEdgeBits; ++bits) {
    const double edge = static_cast<double>(std::uint64_t{1} << bits) / 1e9;
    add("_bucket", with(labels, "le", fmt::format("{}", edge)), std::to_string(histogram.countBelowPowerOfTwo(bits)));
  }
  add("_bucket", with(labels, "le", "+Inf"), count);
  add("_sum", labels, seconds(histogram.sum()));
  add("_count", labels, count);
}

void addSummary(Families& families, const char* metric, const char* help, const DurationHistogram& histogram,
                const Labels& labels) {
  const auto add = [&](const char* suffix, const Labels& all, const std::string& value) {
    families.add(metric, "summary", help, suffix, all, value);
  };
  for (const auto& [fraction, quantile] : {std::pair{0.50, "0.5"}, std::pair{0.90, "0.9"}, std::pair{0.99, "0.99"}}) {
    add("", with(labels, "quantile", quantile), seconds(histogram.quantile(fraction)));
  }
  add("_sum", labels, seconds(histogram.sum()));
  add("_count", labels, std::to_string(histogram.count()));
}

void addOperations(Families& families, const OperationTimes& times, const Labels& labels) {
  constexpr const char* kSend = "Time from posting a send to its buffer being free";
  constexpr const char* kReceive =
      "Time from posting a receive to the message being there, the wait for the peer included";
  for (const OperationTimes::SizeClass& size : times.sizes) {
    addHistogram(families, "send_seconds", kSend, size.times.send, with(labels, "size", size.name));
    addHistogram(families, "receive_seconds", kReceive, size.times.receive, with(labels, "size", size.name));
  }
  for (const auto& [peer, own] : times.peers) {
    addSummary(families, "peer_send_seconds", kSend, own.send, with(labels, "peer", wellFormed(peer)));
    addSummary(families, "peer_receive_seconds", kReceive, own.receive, with(labels, "peer", wellFormed(peer)));
  }
  addHistogram(families, "connect_seconds", "Time to connect to a peer", times.connect, labels);
}

void addChannels(Families& families, const std::vector<ChannelReport>& channels, const Labels& labels) {
  addNumber(families, "open_channels", "Connections to peers, one for each peer of each process group, and interface",
            labels, std::to_string(channels.size()));
  const std::size_t shown = std::min(channels.size(), kMaxChannelsInMetrics);
  for (std::size_t i = 0; i < shown; ++i) {
    const ChannelReport& channel = channels[i];
    Labels own = with(labels, "channel", std::to_string(channel.number));
    own = with(std::move(own), "peer", wellFormed(channel.peer));
    own = with(std::move(own), "peer_rank", std::to_string(channel.peerRank));
    for (const ChannelCounterRow& row : channelCounterRows()) {
      if (row.channelMetric == nullptr) continue;
      addNumber(families, row.channelMetric, row.channelHelp, own, std::to_string(channel.counters.*row.field));
    }
    if (!channel.path) continue;
    addNumber(families, "channel_smoothed_rtt_seconds", "Smoothed round-trip time", own,
              seconds(channel.path->smoothedRtt));
    addNumber(families, "channel_min_rtt_seconds", "Least round-trip time of the last seconds", own,
              seconds(channel.path->minRtt));
    addNumber(families, "channel_congestion_window_bytes", "Congestion window", own,
              std::to_string(channel.path->congestionWindowBytes));
  }
  addNumber(families, "channels_left_out", "Open channels that have no metrics of their own, since there are too many",
            labels, std::to_string(channels.size() - shown));
}

void addReport(Families& families, const TransportReport& report, const Labels& labels) {
  for (const ChannelCounterRow& row : channelCounterRows()) {
    addNumber(families, row.metric, row.help, labels, std::to_string(report.total.*row.field));
  }
  addNumber(families, "port_sent_bytes_total", "Bytes the port has sent, as far out as it can count", labels,
            std::to_string(report.bytesSent));
  addNumber(families, "port_received_bytes_total", "Bytes the port has received", labels,
            std::to_string(report.bytesReceived));
  for (const PortFigure& figure : report.port) {
    if (figure.metric != nullptr) {
      addNumber(families, figure.metric, figure.help, labels, std::to_string(figure.value));
    }
  }
  families.add("port_info", "gauge", "1; its label says what the transport runs over", "",
               with(labels, "port", wellFormed(report.description)), "1");
  addChannels(families, report.channels, labels);
  if (report.operations) addOperations(families, *report.operations, labels);
  if (report.roundTrips) {
    addHistogram(families, "rtt_seconds", "Round-trip times, as acknowledgements show them", *report.roundTrips,
                 labels);
  }
}

}  // namespace

std::string metricsText(std::span<const NamedReport> transports, const std::string& rank) {
  Labels common;
  if (!rank.empty()) common.emplace_back("rank", wellFormed(rank));
  Families families;
  families.add("info", "gauge", "1; its label is the version of gloo-bypass", "",
               with(common, "version", GLOO_BYPASS_VERSION), "1");
  for (const auto& [name, report] : transports) addReport(families, report, with(common, "transport", name));
  return families.text();
}

}  // namespace gloo_bypass
