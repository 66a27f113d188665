#include "tools/simulation/simulation_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "tools/common/version.h"
#include "tools/fabric/core/quantity.h"
#include "transport/base/seconds.h"

namespace gloo_bypass::sim {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRow = "{:>5} {:>9} {:>10} {:>6} {:>10} {:>6} {:>10} {:>6} {:>9} {:>9} {:>9} {:>8} {:>8} {:>7}\n";

double ratioOf(Duration time, Duration bound) { return bound > Duration{0} ? secondsOf(time) / secondsOf(bound) : 0; }

std::string timeText(Duration time) {
  const double seconds = secondsOf(time);
  if (seconds >= 1) return fmt::format("{:.4g} s", seconds);
  return seconds >= 1e-3 ? fmt::format("{:.4g} ms", seconds * 1e3) : fmt::format("{:.4g} us", seconds * 1e6);
}

std::string ratioText(Duration time, Duration bound) {
  return bound > Duration{0} && time > Duration{0} ? fmt::format("{:.2f}", ratioOf(time, bound)) : "-";
}

double headerShare(const RingRunResult& result) {
  if (result.payloadBytes == 0) return 0;
  return static_cast<double>(result.edges.offeredBytes) / static_cast<double>(result.payloadBytes) - 1;
}

double eventsPerSecond(const RingRunResult& result) {
  return result.cpuSeconds > 0 ? static_cast<double>(result.events) / result.cpuSeconds : 0;
}

// Groups that ran to their end side by side have one.
bool hasFairness(const RingRunResult& result) { return result.groups > 1 && result.end == RingRunEnd::kDone; }

const char* endName(RingRunEnd end) {
  return end == RingRunEnd::kDone ? "done" : end == RingRunEnd::kFailed ? "failed" : "interrupted";
}

Json boundsJson(const RingRunResult& result) {
  const RingBounds& bounds = result.bounds;
  return {{"schedule_s", secondsOf(bounds.schedule)},
          {"schedule_with_loss_s", secondsOf(bounds.scheduleWithLoss)},
          {"pipeline_s", secondsOf(bounds.pipeline)},
          {"propagation_s", secondsOf(bounds.propagation)},
          {"serialisation_s", secondsOf(bounds.serialisation)},
          {"physics_s", secondsOf(bounds.physics())},
          {"alpha_beta_s", secondsOf(bounds.alphaBeta)}};
}

// Null where there is no time, or no bound.
Json ratioJson(Duration time, Duration bound) {
  return time > Duration{0} && bound > Duration{0} ? Json(ratioOf(time, bound)) : Json(nullptr);
}

Json timesJson(const RingRunResult& result) {
  const std::vector<Duration> sorted = result.sortedTimes();
  if (sorted.empty()) return nullptr;
  return {
      {"median", secondsOf(result.median())}, {"min", secondsOf(sorted.front())}, {"max", secondsOf(sorted.back())}};
}

Json resultJson(const RingRunResult& result) {
  Json groups = Json::array();
  for (const auto& group : result.times) {
    Json times = Json::array();
    for (const Duration time : group) times.push_back(secondsOf(time));
    groups.push_back(times);
  }
  const Duration median = result.median();
  return {{"ranks", result.ranks},
          {"groups", result.groups},
          {"end", endName(result.end)},
          {"error", result.error.empty() ? Json(nullptr) : Json(result.error)},
          {"segments_per_rank", result.segmentsPerRank},
          {"segment_bytes", result.segmentBytes},
          {"time_s", timesJson(result)},
          {"times_s", groups},
          {"model", boundsJson(result)},
          {"ratio",
           {{"schedule", ratioJson(median, result.bounds.schedule)},
            {"schedule_with_loss", ratioJson(median, result.bounds.scheduleWithLoss)},
            {"physics", ratioJson(median, result.bounds.physics())},
            {"alpha_beta", ratioJson(median, result.bounds.alphaBeta)}}},
          {"fairness", hasFairness(result) ? Json(result.fairness) : Json(nullptr)},
          {"payload_bytes", result.payloadBytes},
          {"wire",
           {{"frames", result.edges.offered},
            {"bytes", result.edges.offeredBytes},
            {"above_payload", headerShare(result)}}},
          {"lost",
           {{"randomly", result.edges.lostRandomly},
            {"in_bursts", result.edges.lostInBurst},
            {"queue_full", result.edges.lostInQueue},
            {"link_down", result.edges.lostWhileDown}}},
          {"sessions",
           {{"retransmits", result.sessions.retransmits},
            {"spurious_retransmits", result.sessions.spuriousRetransmits},
            {"retransmit_timeouts", result.sessions.retransmitTimeouts},
            {"tail_loss_probes", result.sessions.tailLossProbes},
            {"repair_frames_sent", result.sessions.repairFramesSent},
            {"frames_recovered", result.sessions.framesRecovered},
            {"frames_unrepaired", result.sessions.framesUnrepaired},
            {"duplicates_received", result.sessions.duplicatesReceived},
            {"corrupted_received", result.sessions.corruptedReceived},
            {"max_memory_bytes", result.maxSessionMemoryBytes}}},
          {"virtual_s", secondsOf(result.elapsed)},
          {"events", result.events},
          {"cpu_s", result.cpuSeconds}};
}

}  // namespace

std::string tableHead(const SimulationOptions& options) {
  const RingRunSettings& run = options.run;
  std::string text = fmt::format(
      "{}: ring all-reduce of {}, segments of {}, {} group{}, congestion control {}{}\n",
      options.configPath.empty() ? "fabric of the flags" : options.configPath, fabric::bytesText(run.bytes),
      run.maxSegmentBytes == 0 ? "half a rank's share" : "at most " + fabric::bytesText(run.maxSegmentBytes),
      run.groups, run.groups == 1 ? "" : "s", congestionControlName(run.session.congestionControl),
      options.loss.empty() ? "" : ", loss " + options.loss);
  return text + fmt::format(kRow, "ranks", "time", "schedule", "ratio", "physics", "ratio", "alpha-beta", "ratio",
                            "MB sent", "over data", "repeated", "lost", "fairness", "CPU s");
}

std::string tableRow(const RingRunResult& result, std::uint64_t bytes) {
  const Duration median = result.median();
  const RingBounds& bounds = result.bounds;
  const double payloadEach = 2.0 * static_cast<double>(result.ranks - 1) * static_cast<double>(bytes);
  std::string text = fmt::format(
      kRow, result.ranks, median > Duration{0} ? timeText(median) : "-", timeText(bounds.schedule),
      ratioText(median, bounds.schedule), timeText(bounds.physics()), ratioText(median, bounds.physics()),
      timeText(bounds.alphaBeta), ratioText(median, bounds.alphaBeta),
      fmt::format("{:.5g}", payloadEach * (1 + headerShare(result)) * 1e-6),
      fmt::format("{:.1f} %", 100 * headerShare(result)), result.sessions.retransmits, result.edges.lost(),
      hasFairness(result) ? fmt::format("{:.3f}", result.fairness) : "-", fmt::format("{:.2f}", result.cpuSeconds));
  if (bounds.scheduleWithLoss > bounds.schedule) {
    text += fmt::format("      {} schedule with repetitions of what is lost, a round trip each: ratio {}\n",
                        timeText(bounds.scheduleWithLoss), ratioText(median, bounds.scheduleWithLoss));
  }
  if (result.sessions.repairFramesSent > 0) {
    text += fmt::format(
        "      {} repair frames sent, {} lost frames recovered from them, {} covered ones retransmitted\n",
        result.sessions.repairFramesSent, result.sessions.framesRecovered, result.sessions.framesUnrepaired);
  }
  if (result.end == RingRunEnd::kInterrupted) text += "      interrupted: of the all-reduces until then\n";
  return text;
}

std::string tableFoot(const std::vector<RingRunResult>& results) {
  fabric::EdgeCounters lost;
  std::uint64_t events = 0;
  double cpu = 0, virtualSeconds = 0;
  for (const RingRunResult& result : results) {
    lost += result.edges;
    events += result.events;
    cpu += result.cpuSeconds;
    virtualSeconds += secondsOf(result.elapsed);
  }
  return fmt::format(
      "frames lost: {} at random, {} in bursts, {} in full queues, {} while a link was down\n"
      "{} events for {:.4g} s of virtual time took {:.2f} s of CPU, {:.2f} million a second\n",
      lost.lostRandomly, lost.lostInBurst, lost.lostInQueue, lost.lostWhileDown, events, virtualSeconds, cpu,
      cpu > 0 ? static_cast<double>(events) * 1e-6 / cpu : 0);
}

nlohmann::ordered_json reportJson(const SimulationOptions& options, const std::vector<RingRunResult>& results) {
  const RingRunSettings& run = options.run;
  Json flags = Json::array();
  for (const fabric::DescriptionFlag& flag : options.flags) flags.push_back("--" + flag.section + " " + flag.value);
  Json rows = Json::array();
  for (const RingRunResult& result : results) rows.push_back(resultJson(result));
  return {{"schema", "gloo-bypass/fabric-simulation/1"},
          {"version", versionName()},
          {"inputs",
           {{"description", options.configPath},
            {"flags", flags},
            {"sites", options.sites},
            {"loss", options.loss.empty() ? Json(nullptr) : Json(options.loss)},
            {"bytes", run.bytes},
            {"max_segment_bytes", run.maxSegmentBytes == 0 ? Json(nullptr) : Json(run.maxSegmentBytes)},
            {"groups", run.groups},
            {"warm_ups", run.warmUps},
            {"iterations", run.measured},
            {"mtu", run.mtu},
            {"congestion_control", congestionControlName(run.session.congestionControl)},
            {"fec", repairModeName(run.session.repair.mode)},
            {"long_path_rtt_s", secondsOf(run.session.longPathRtt)},
            {"bbr_rtt_s", secondsOf(run.session.bbrRtt)}}},
          {"results", rows}};
}

std::string reportCsv(const std::vector<RingRunResult>& results) {
  std::string text =
      "ranks,groups,end,median_s,min_s,max_s,schedule_s,pipeline_s,physics_s,alpha_beta_s,wire_bytes,payload_bytes,"
      "frames,retransmits,"
      "retransmit_timeouts,lost_randomly,lost_in_bursts,lost_queue_full,lost_link_down,fairness,events,events_per_cpu_"
      "s,cpu_s\n";
  for (const RingRunResult& result : results) {
    const std::vector<Duration> sorted = result.sortedTimes();
    const auto time = [&](Duration value) {
      return sorted.empty() ? std::string() : fmt::format("{:.9f}", secondsOf(value));
    };
    text += fmt::format(
        "{},{},{},{},{},{},{:.9f},{:.9f},{:.9f},{:.9f},{},{},{},{},{},{},{},{},{},{},{},{:.0f},{:.3f}\n", result.ranks,
        result.groups, endName(result.end), time(result.median()), time(sorted.empty() ? Duration{0} : sorted.front()),
        time(sorted.empty() ? Duration{0} : sorted.back()), secondsOf(result.bounds.schedule),
        secondsOf(result.bounds.pipeline), secondsOf(result.bounds.physics()), secondsOf(result.bounds.alphaBeta),
        result.edges.offeredBytes, result.payloadBytes, result.edges.offered, result.sessions.retransmits,
        result.sessions.retransmitTimeouts, result.edges.lostRandomly, result.edges.lostInBurst,
        result.edges.lostInQueue, result.edges.lostWhileDown,
        hasFairness(result) ? fmt::format("{:.6f}", result.fairness) : "", result.events, eventsPerSecond(result),
        result.cpuSeconds);
  }
  return text;
}

}  // namespace gloo_bypass::sim
