#include "tools/capture/capture_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

#include "tools/capture/operation_report.h"
#include "tools/capture/report_text.h"
#include "tools/capture/step_statistics.h"
#include "transport/base/joined.h"
#include "transport/base/seconds.h"

namespace gloo_bypass::capture {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, kByteKinds> kKindNames{"tcp_payload",      "tcp_repeated", "bypass_payload",
                                                         "bypass_repeated",  "roce_payload", "headers",
                                                         "acknowledgements", "other",        "not_dissected"};
// As a matrix; more hosts are listed.
constexpr std::size_t kMaxMatrixHosts = 8, kMaxListedDirections = 24;
// Longer than any adapter sends: several segments in one.
constexpr std::uint64_t kLongestTcpFrame = 9'216;

std::string spreadLine(const char* name, const Spread& spread, double unit, const char* unitName) {
  std::string line = fmt::format("{:<20}", fmt::format("{} [{}]", name, unitName));
  for (const double value : spread) line += fmt::format("{:>12.6g}", value / unit);
  return line + "\n";
}

std::string rateText(const std::optional<double>& rate) {
  return rate ? fmt::format("{:.6g} Mbit/s", *rate / 1e6) : "no time passed";
}

std::string matrixText(const char* title, const TrafficMatrix& matrix) {
  if (matrix.directions().empty()) return "";
  std::string text = fmt::format("\n{}, MB from (row) to (column); {} directions\n", title, matrix.directions().size());
  std::set<std::uint32_t> hosts;
  for (const auto& [direction, totals] : matrix.directions()) hosts.insert({direction.first, direction.second});
  if (hosts.size() <= kMaxMatrixHosts) {
    text += fmt::format("{:<16}", "");
    for (const auto to : hosts) text += fmt::format("{:>16}", ipv4(to));
    for (const auto from : hosts) {
      text += fmt::format("\n{:<16}", ipv4(from));
      for (const auto to : hosts) {
        const auto found = matrix.directions().find({from, to});
        text += found == matrix.directions().end()
                    ? fmt::format("{:>16}", "-")
                    : fmt::format("{:>16.6g}", static_cast<double>(found->second.bytes) / 1e6);
      }
    }
    return text + "\n";
  }
  std::vector<std::pair<Direction, FlowTotals>> sorted(matrix.directions().begin(), matrix.directions().end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  for (std::size_t i = 0; i < std::min(sorted.size(), kMaxListedDirections); ++i) {
    text += fmt::format("{:<16} -> {:<16}{:>14.6g}\n", ipv4(sorted[i].first.first), ipv4(sorted[i].first.second),
                        static_cast<double>(sorted[i].second.bytes) / 1e6);
  }
  return text;
}

std::string everyStepText(const Analysis& analysis) {
  std::string text =
      fmt::format("\n{:>10}{:>14}{:>14}{:>16}{:>14}\n", "step", "begin [s]", "Dur [s]", "Bytes_AR", "TH [Mbit/s]");
  for (const StepWindow& step : analysis.steps().steps()) {
    text += fmt::format("{:>10}{:>14.6f}", step.step, secondsOf(step.begin - analysis.totals().first));
    if (!step.complete) {
      text += "   no end that fits\n";
      continue;
    }
    const double seconds = step.seconds();
    text += fmt::format("{:>14.6f}{:>16}{:>14}\n", seconds, step.bytes,
                        seconds > 0 ? fmt::format("{:.6g}", static_cast<double>(step.bytes) * 8e-6 / seconds) : "-");
  }
  return text;
}

std::string notes(const AnalysedCapture& capture) {
  const Analysis& analysis = capture.analysis;
  const AnalysisTotals& totals = analysis.totals();
  const MarkerCounters& markers = analysis.steps().counters();
  std::string text;
  if (markers.markers == 0) {
    text +=
        "note: no step marker in the capture (UDP to the marker port): figures of steps cannot be had; --marker-port "
        "names another port\n";
  }
  text += noteIf(markers.repeated, "markers seen a second time, ignored");
  text += noteIf(markers.withoutBegin, "markers of a step's end without one of its begin");
  text += noteIf(markers.withoutEnd, "steps without an end");
  text += noteIf(markers.backwards, "steps that end before they begin by the capture's clock");
  text += noteIf(markers.notKept,
                 fmt::format("steps beyond the first {} with {} figures of directions: not in the figures of steps",
                             StepWindows::kMaxSteps, StepWindows::kMaxDirectionEntries));
  text += operationNotes(capture);
  text += noteIf(totals.cut,
                 fmt::format("frames were kept too short to tell what they are (snap length {})", capture.snapLength));
  text += noteIf(totals.fragments, "IPv4 fragments, counted as other");
  text += noteIf(totals.backwards, "frames with a time before that of the frame before");
  if (totals.largestTcpFrame > kLongestTcpFrame) {
    text += fmt::format(
        "note: TCP frames of up to {} bytes: segments were joined before the capture (GRO, GSO, TSO), so headers are "
        "counted "
        "too few; switch it off with ethtool -K IF gro off gso off tso off\n",
        totals.largestTcpFrame);
  }
  text += noteIf(totals.joinedDatagrams,
                 "frames hold several datagrams, joined before the capture (GSO, GRO): only the first of each is told "
                 "apart, so operations lack messages; switch it off with ethtool -K IF gro off gso off");
  if (capture.link == "LINUX_SLL" || capture.link == "LINUX_SLL2") {
    text +=
        "note: a capture of all interfaces (tcpdump -i any) holds a frame once for each interface that it crossed\n";
  }
  return text;
}

Json statisticsJson(const std::optional<StepStatistics>& statistics) {
  if (!statistics) return nullptr;
  return {{"steps", statistics->steps},
          {"bytes", spreadJson(statistics->bytes)},
          {"duration_s", spreadJson(statistics->seconds)},
          {"th_peak_bit_s", spreadJson(statistics->bitsPerSecond)}};
}

// JSON has no number for what could not be divided.
Json optionalJson(const std::optional<double>& value) {
  Json json;
  if (value) json = value.value_or(0);
  return json;
}

Json endsJson(Direction direction) { return {{"from", ipv4(direction.first)}, {"to", ipv4(direction.second)}}; }

Json matrixJson(const TrafficMatrix& matrix) {
  Json directions = Json::array();
  for (const auto& [direction, totals] : matrix.directions()) {
    directions.push_back(endsJson(direction));
    directions.back().update(
        {{"bytes", totals.bytes}, {"frames", totals.frames}, {"payload_bytes", totals.payloadBytes}});
  }
  return {{"directions", directions}, {"other_bytes", matrix.others().bytes}};
}

Json stepsJson(const Analysis& analysis) {
  Json steps = Json::array();
  for (const StepWindow& step : analysis.steps().steps()) {
    Json line{
        {"step", step.step}, {"begin_s", secondsOf(step.begin - analysis.totals().first)}, {"complete", step.complete}};
    if (step.complete) {
      line["duration_s"] = step.seconds();
      line["bytes"] = step.bytes;
      line["frames"] = step.frames;
    }
    steps.push_back(std::move(line));
  }
  return steps;
}

Json seriesJson(const TimeSeries& series) {
  return {{"interval_s", secondsOf(series.interval())}, {"bytes_by_interval", series.bins()}};
}

Json directionsOverTimeJson(const Analysis& analysis) {
  Json directions = Json::array();
  for (std::size_t i = 0; i < analysis.trackedDirections().size(); ++i) {
    directions.push_back(endsJson(analysis.trackedDirections()[i]));
    directions.back().update(seriesJson(analysis.trackedSeries()[i]));
  }
  return directions;
}

Json directionsJson(const Analysis& analysis) {
  Json directions = Json::array();
  const auto& time = analysis.trainingTime();
  for (std::size_t i = 0; time && i < analysis.trackedDirections().size(); ++i) {
    const Direction direction = analysis.trackedDirections()[i];
    const auto found = analysis.training().directions().find(direction);
    if (found == analysis.training().directions().end()) continue;
    Json line = endsJson(direction);
    line["th_avg_bit_s"] = optionalJson(bitsPerSecond(found->second.bytes, time->second - time->first));
    line["per_step"] = statisticsJson(stepStatistics(analysis, i));
    directions.push_back(std::move(line));
  }
  return directions;
}

Json markersJson(const MarkerCounters& markers) {
  return {
      {"seen", markers.markers},           {"repeated", markers.repeated},   {"without_begin", markers.withoutBegin},
      {"without_end", markers.withoutEnd}, {"backwards", markers.backwards}, {"not_kept", markers.notKept}};
}

Json faultsJson(const AnalysedCapture& capture) {
  Json faults = Json::array();
  for (const auto& [file, fault] : capture.faults) {
    faults.push_back({{"file", file}, {"what", fault.what}, {"offset", fault.offset}, {"frames_before", fault.frames}});
  }
  return faults;
}

}  // namespace

std::string faultLine(const std::string& file, const CaptureFault& fault) {
  const std::string where = fault.offset >= 0 ? fmt::format(" near byte {}", fault.offset) : "";
  return fmt::format("{}: damaged or cut off{}, after {} frames, which are all in the figures: {}", file, where,
                     fault.frames, fault.what);
}

void AnalysedCapture::finish() {
  analysis.finish();
  operations = operationsOf(analysis.operationParts());
}

std::string captureTable(const AnalysedCapture& capture, const TableOptions& options) {
  const Analysis& analysis = capture.analysis;
  const AnalysisTotals& totals = analysis.totals();
  std::string text = fmt::format("{}: {} frames, {:.6g} MB in {:.6f} s ({}, snap length {}){}\n",
                                 joined(capture.files, " + "), totals.frames, static_cast<double>(totals.bytes) / 1e6,
                                 secondsOf(totals.last - totals.first), capture.link, capture.snapLength,
                                 capture.filter.empty() ? "" : fmt::format(", only {}", capture.filter));
  if (const auto statistics = stepStatistics(analysis)) {
    text += fmt::format("\n{:<20}", fmt::format("{} step{}", statistics->steps, statistics->steps == 1 ? "" : "s"));
    for (const char* name : kSpreadNames) text += fmt::format("{:>12}", name);
    text += '\n';
    text += spreadLine("Bytes_AR", statistics->bytes, 1e6, "MB");
    text += spreadLine("Dur/event", statistics->seconds, 1, "s");
    text += spreadLine("TH_peak", statistics->bitsPerSecond, 1e6, "Mbit/s");
  }
  text += '\n';
  if (analysis.trainingTime()) {
    text += fmt::format("TH_avg from the first marker to the last: {}\n", rateText(trainingBitsPerSecond(analysis)));
  }
  text += fmt::format("TH_avg of the whole capture: {}\n", rateText(captureBitsPerSecond(analysis)));
  text += fmt::format("\n{:<20}{:>16}{:>9}\n", "bytes", "", "share");
  for (std::size_t i = 0; i < kByteKinds; ++i) {
    if (totals.bytesOfKind[i] == 0) continue;
    text += fmt::format("{:<20}{:>16}{:>8.2f}%\n", kKindNames[i], totals.bytesOfKind[i],
                        100.0 * static_cast<double>(totals.bytesOfKind[i]) / static_cast<double>(totals.bytes));
  }
  text += matrixText(analysis.trainingTime() ? "before the first marker" : "whole capture", analysis.before());
  text += matrixText("from the first marker to the last", analysis.training());
  text += matrixText("after the last marker", analysis.after());
  text += operationsText(capture, options.everyOperation);
  if (options.everyStep && !analysis.steps().steps().empty()) text += everyStepText(analysis);
  const std::string noted = notes(capture);
  return noted.empty() ? text : text + "\n" + noted;
}

Json captureJson(const AnalysedCapture& capture) {
  const Analysis& analysis = capture.analysis;
  const AnalysisTotals& totals = analysis.totals();
  Json kinds;
  for (std::size_t i = 0; i < kByteKinds; ++i) kinds[kKindNames[i]] = totals.bytesOfKind[i];
  Json series = seriesJson(analysis.series());
  return {{"files", capture.files},
          {"faults", faultsJson(capture)},
          {"link_type", capture.link},
          {"snap_length", capture.snapLength},
          {"filter", capture.filter},
          {"frames", totals.frames},
          {"bytes", totals.bytes},
          {"first_frame_unix_s", secondsOf(totals.first)},
          {"duration_s", secondsOf(totals.last - totals.first)},
          {"th_avg_bit_s", optionalJson(trainingBitsPerSecond(analysis))},
          {"th_avg_capture_bit_s", optionalJson(captureBitsPerSecond(analysis))},
          {"per_step", statisticsJson(stepStatistics(analysis))},
          {"directions", directionsJson(analysis)},
          {"bytes_by_kind", kinds},
          {"matrix",
           {{"before", matrixJson(analysis.before())},
            {"training", matrixJson(analysis.training())},
            {"after", matrixJson(analysis.after())}}},
          {"markers", markersJson(analysis.steps().counters())},
          {"cut_frames", totals.cut},
          {"fragments", totals.fragments},
          {"backwards_frames", totals.backwards},
          {"largest_tcp_frame", totals.largestTcpFrame},
          {"joined_datagrams", totals.joinedDatagrams},
          {"interval_s", series["interval_s"]},
          {"bytes_by_interval", std::move(series["bytes_by_interval"])},
          {"directions_over_time", directionsOverTimeJson(analysis)},
          {"steps", stepsJson(analysis)},
          {"per_call", callsJson(capture)},
          {"operations", operationsJson(capture)},
          {"operation_frames",
           {{"not_kept", analysis.operationParts().counters().notKept},
            {"unplaced", analysis.operationParts().counters().unplaced}}}};
}

std::string throughputCsv(const std::vector<AnalysedCapture>& captures) {
  std::string text = captures.size() > 1 ? "capture,time_s,bytes,throughput_bit_s,cumulative_bytes\n"
                                         : "time_s,bytes,throughput_bit_s,cumulative_bytes\n";
  for (std::size_t i = 0; i < captures.size(); ++i) {
    const TimeSeries& series = captures[i].analysis.series();
    const double interval = secondsOf(series.interval());
    std::uint64_t sum = 0;
    for (std::size_t bin = 0; bin < series.bins().size(); ++bin) {
      const std::uint64_t bytes = series.bins()[bin];
      sum += bytes;
      if (captures.size() > 1) text += fmt::format("{},", i + 1);
      text += fmt::format("{:.9g},{},{:.9g},{}\n", static_cast<double>(bin) * interval, bytes,
                          static_cast<double>(bytes) * 8 / interval, sum);
    }
  }
  return text;
}

std::string stepsCsv(const std::vector<AnalysedCapture>& captures) {
  std::string text = captures.size() > 1 ? "capture," : "";
  text += "step,begin_s,duration_s,bytes,frames,throughput_bit_s,complete\n";
  for (std::size_t i = 0; i < captures.size(); ++i) {
    const Analysis& analysis = captures[i].analysis;
    for (const StepWindow& step : analysis.steps().steps()) {
      if (captures.size() > 1) text += fmt::format("{},", i + 1);
      text += fmt::format("{},{:.9f},", step.step, secondsOf(step.begin - analysis.totals().first));
      const double seconds = step.seconds();
      const std::string rate =
          step.complete && seconds > 0 ? fmt::format("{:.9g}", static_cast<double>(step.bytes) * 8 / seconds) : "";
      text += step.complete ? fmt::format("{:.9f},{},{},{},1\n", seconds, step.bytes, step.frames, rate) : ",,,,0\n";
    }
  }
  return text;
}

}  // namespace gloo_bypass::capture
