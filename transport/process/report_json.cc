#include "transport/process/report_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "transport/base/printable.h"

namespace gloo_bypass {
namespace {

using nlohmann::json;

double inMicroseconds(Duration duration) { return static_cast<double>(duration.count()) / 1e3; }

// {"unit": "us", "count", "sum", "mean", "p50", "p90", "p99", "max"}; durations as numbers in that unit.
json summaryJson(const DurationHistogram& h) {
  return {{"unit", "us"},
          {"count", h.count()},
          {"sum", inMicroseconds(h.sum())},
          {"mean", inMicroseconds(h.mean())},
          {"p50", inMicroseconds(h.quantile(0.50))},
          {"p90", inMicroseconds(h.quantile(0.90))},
          {"p99", inMicroseconds(h.quantile(0.99))},
          {"max", inMicroseconds(h.max())}};
}

// The same with "buckets": [[edge, how many were below it], ...], up to the first edge that all are below; those that
// are longer than the last edge are in "count" only.
json histogramJson(const DurationHistogram& h) {
  json histogram = summaryJson(h);
  json buckets = json::array();
  std::uint64_t below = 0;
  for (unsigned bits = kFirstEdgeBits; bits <= kLastEdgeBits && below < h.count(); ++bits) {
    below = h.countBelowPowerOfTwo(bits);
    buckets.push_back({inMicroseconds(Duration(Duration::rep{1} << bits)), below});
  }
  histogram["buckets"] = std::move(buckets);
  return histogram;
}

void put(json& object, const ChannelCounters& counters) {
  for (const ChannelCounterRow& row : channelCounterRows()) object[row.name] = counters.*row.field;
}

json channelJson(const ChannelReport& channel) {
  json object{{"channel", channel.number},
              {"peer", channel.peer},
              {"local_rank", channel.localRank},
              {"peer_rank", channel.peerRank}};
  put(object, channel.counters);
  if (channel.path) {
    object["smoothed_rtt_us"] = inMicroseconds(channel.path->smoothedRtt);
    object["min_rtt_us"] = inMicroseconds(channel.path->minRtt);
    object["congestion_window_bytes"] = channel.path->congestionWindowBytes;
  }
  return object;
}

void put(json& latencies, const OperationTimes& times) {
  for (const OperationTimes::SizeClass& size : times.sizes) {
    latencies["send"][size.name] = histogramJson(size.times.send);
    latencies["receive"][size.name] = histogramJson(size.times.receive);
  }
  latencies["connect"] = histogramJson(times.connect);
  latencies["peers"] = json::array();
  for (const auto& [peer, own] : times.peers) {
    latencies["peers"].push_back(
        {{"peer", peer}, {"send", summaryJson(own.send)}, {"receive", summaryJson(own.receive)}});
  }
}

void flatten(const json& value, const std::string& name, std::string& text) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      if (key == "buckets") continue;  // of a histogram its summary is what people read
      flatten(inner, name.empty() ? key : name + "." + key, text);
    }
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) flatten(value[i], fmt::format("{}[{}]", name, i), text);
  } else {
    text += fmt::format("  {:<36} {}\n", name, value.is_string() ? printable(value.get<std::string>()) : value.dump());
  }
}

}  // namespace

json reportJson(const std::string& name, const TransportReport& report) {
  json object{{"transport", name}, {"bytes_sent", report.bytesSent}, {"bytes_received", report.bytesReceived}};
  put(object, report.total);
  object["port"]["description"] = report.description;
  for (const PortFigure& figure : report.port) object["port"][figure.name] = figure.value;
  object["open_channels"] = json::array();
  for (const ChannelReport& channel : report.channels) object["open_channels"].push_back(channelJson(channel));
  if (report.operations) put(object["latencies"], *report.operations);
  if (report.roundTrips) object["latencies"]["rtt"] = histogramJson(*report.roundTrips);
  return object;
}

std::string asText(const json& report) {
  std::string text;
  flatten(report, "", text);
  return text;
}

}  // namespace gloo_bypass
