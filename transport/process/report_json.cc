#include "transport/process/report_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "transport/base/printable.h"
#include "transport/process/latency_json.h"

namespace gloo_bypass {
namespace {

using nlohmann::json;

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
    object["smoothed_rtt_us"] = static_cast<double>(channel.path->smoothedRtt.count()) / 1e3;
    object["min_rtt_us"] = static_cast<double>(channel.path->minRtt.count()) / 1e3;
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
