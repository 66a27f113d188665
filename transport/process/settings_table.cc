#include "transport/process/settings_table.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "transport/process/back_ends.h"
#include "transport/process/metrics_target.h"

namespace gloo_bypass {
namespace {

using Config = TransportConfig;

constexpr std::int64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;
constexpr std::string_view kAlgorithmLetters = "abcdefghijklmnopqrstuvwxyz-=,";
constexpr std::int64_t kDayMs = 24 * 3600 * 1000;

template <auto... path>
constexpr auto kSessionField = kField<&Config::session, path...>;

bool isStatsTarget(std::string_view text) { return text == "stderr" || isFilePath(text); }

// Which ones there are is for those who read it to say.
bool isAlgorithmNames(std::string_view text) { return text.find_first_not_of(kAlgorithmLetters) == text.npos; }

bool isMetricsTarget(std::string_view text) {
  std::string replaced(text);
  if (const std::size_t at = replaced.find("%r"); at != std::string::npos) replaced.replace(at, 2, 1, '0');
  return parseMetricsTarget(replaced).has_value();
}

std::vector<Setting> processSettings() {
  return {
      numberSetting("GLOO_BYPASS_SPIN_US", "us", 0, 1'000'000,
                    "Polling without result before a waiter blocks, where such waits were short lately",
                    kField<&Config::spin>),
      numberSetting("GLOO_BYPASS_ENGINE_CPU", "", -1, 1023, "CPU the engine thread is pinned to; -1: not pinned",
                    kField<&Config::engineCpu>),
      choiceSetting("GLOO_BYPASS_COLLECTIVES", {{"gloo", false}, {"own", true}},
                    "In PyTorch, what a group of the backend \"gloo\" runs: Gloo's collectives, or gloo-bypass's own",
                    kField<&Config::ownCollectives>),
      numberSetting(
          "GLOO_BYPASS_THREADS", "", 0, 8,
          "Threads of one rank for large vectors inside a host, in gloo-bypass's own collectives: at most this many, "
          "and at most its share of the cores; 0: its share. The least that a rank of the host sets holds for all",
          kField<&Config::threads>),
      textSetting("GLOO_BYPASS_ALGORITHM", "names in small letters", isAlgorithmNames,
                  "Algorithms of gloo-bypass's own collectives between hosts, by name: ring, or "
                  "all-reduce=ring,broadcast=binomial (`schedule --list` has all); empty: the table chooses",
                  kField<&Config::algorithm>),
      textSetting("GLOO_BYPASS_CHOICES", "a file's path with a / in it", isFilePath,
                  "The table that chooses these algorithms, as `tune` measures it; empty: the built-in one. Rank 0's "
                  "holds for all ranks",
                  kField<&Config::choices>),
      choiceSetting(
          "GLOO_BYPASS_SUM_ORDER", {{"any", false}, {"ranks", true}},
          "ranks: every sum of gloo-bypass's own collectives goes over the ranks in their order, so that bits "
          "depend on neither algorithm nor transport",
          kField<&Config::sumsInOrder>),
      textSetting("GLOO_BYPASS_STATS", "stderr, or a file's path with a / in it", isStatsTarget,
                  "Counters at exit: text to stderr, or JSON to a file (%p: process id, %r: RANK); empty: none",
                  kField<&Config::stats>),
      choiceSetting(
          "GLOO_BYPASS_HISTOGRAMS", {{"auto", Histograms::kAuto}, {"off", Histograms::kOff}, {"on", Histograms::kOn}},
          "Measure how long sends, receives and connecting take; auto: with GLOO_BYPASS_STATS, _METRICS or _TELEMETRY",
          kField<&Config::histograms>),
      textSetting(
          "GLOO_BYPASS_METRICS", kMetricsTargetForms, isMetricsTarget,
          "Prometheus metrics while it runs: to a file, or served over HTTP at a Unix socket that this user alone can "
          "use, or at a port (%p: process id, %r: RANK; no ADDRESS: 127.0.0.1); empty: none",
          kField<&Config::metrics>),
      numberSetting("GLOO_BYPASS_METRICS_INTERVAL_MS", "ms", 100, 3'600'000,
                    "Time after which the metrics file is written anew", kField<&Config::metricsInterval>),
  };
}

constexpr std::size_t kMostJobCharacters = 128;
bool isJobName(std::string_view text) { return text.size() <= kMostJobCharacters && isPrintable(text); }

// A mode, or how many repair frames for every hundred.
Setting repairSetting() {
  using Mode = Repair::Mode;
  Setting mode = choiceSetting(
      "GLOO_BYPASS_FEC", {{"auto", Mode::kAuto}, {"off", Mode::kOff}, {"on", Mode::kOn}},
      "Repair frames for every hundred, from which a peer finds lost ones again; auto: from GLOO_BYPASS_BBR_RTT_US "
      "on, by the loss measured, none before any; on: by the loss on every network; off: none either way",
      kSessionField<&SessionConfig::repair, &Repair::mode>);
  const auto parse = [parseMode = mode.parse](std::string_view text, Config& config) {
    const auto percent = wholeNumber(text, 1U, Repair::kMostPercent);
    if (!percent && !parseMode(text, config)) return false;
    if (percent) config.session.repair.mode = Mode::kOn;
    config.session.repair.percent = percent.value_or(0);
    return true;
  };
  const auto format = [formatMode = mode.format](const Config& config) {
    const unsigned percent = config.session.repair.percent;
    return percent > 0 ? fmt::format("{}", percent) : formatMode(config);
  };
  return {std::move(mode.name),        "%",   fmt::format("auto, off, on or 1 to {}", Repair::kMostPercent),
          std::move(mode.description), parse, format};
}

std::vector<Setting> protocolSettings() {
  using Session = SessionConfig;
  return {
      choiceSetting("GLOO_BYPASS_SECURITY", {{"off", Security::kOff}, {"encrypt", Security::kEncrypt}},
                    "encrypt: UDP, netdev and pci seal each datagram with AES-128-GCM; memory links need none, and "
                    "RDMA needs GLOO_BYPASS_RDMA_TRUSTED_NETWORK. Alike for all ranks",
                    kField<&Config::security>),
      textSetting(
          "GLOO_BYPASS_KEY_FILE", "a file's path with a / in it", isFilePath,
          "encrypt: a file with 64 hexadecimal digits that only this user may read, alike for all ranks, or with "
          "two such lines while one key replaces another; empty: whoever can write to the rendezvous store is "
          "trusted",
          kField<&Config::keyFile>),
      textSetting("GLOO_BYPASS_JOB", fmt::format("printable, at most {} characters", kMostJobCharacters), isJobName,
                  "encrypt: the job's name, alike for all ranks: jobs with one key file do not talk to each other",
                  kField<&Config::job>),
      choiceSetting(
          "GLOO_BYPASS_CONGESTION_CONTROL",
          {{"auto", CongestionControl::kAuto},
           {"fixed", CongestionControl::kFixed},
           {"swift", CongestionControl::kSwift},
           {"bbr", CongestionControl::kBbr}},
          "auto: fixed window on memory links, else by round-trip time: swift, and bbr from GLOO_BYPASS_BBR_RTT_US on",
          kSessionField<&Session::congestionControl>),
      choiceSetting(
          "GLOO_BYPASS_PAYLOAD_CHECKSUM",
          {{"auto", PayloadChecksum::kAuto}, {"off", PayloadChecksum::kOff}, {"on", PayloadChecksum::kOn}},
          "CRC-32C over each packet's payload; auto: not on memory links, and where the kernel (UDP) or both ends' "
          "NICs (pci) check packets only from GLOO_BYPASS_LONG_PATH_RTT_US on",
          kSessionField<&Session::payloadChecksum>),
      repairSetting(),
      numberSetting("GLOO_BYPASS_RENDEZVOUS_BYTES", "bytes", 1024, kGiB,
                    "Short paths: longer messages wait for the receiver's grant and are not copied",
                    kSessionField<&Session::rendezvousBytes>),
      numberSetting("GLOO_BYPASS_LONG_PATH_RTT_US", "us", 0, 60'000'000,
                    "From this round-trip time on sends are buffered and data flows ahead of receives",
                    kSessionField<&Session::longPathRtt>),
      numberSetting("GLOO_BYPASS_BBR_RTT_US", "us", 0, 60'000'000,
                    "From this round-trip time on auto has bbr, and repair frames where something is lost",
                    kSessionField<&Session::bbrRtt>),
      numberSetting("GLOO_BYPASS_EAGER_BYTES", "bytes", 64 * kKiB, kGiB,
                    "Short paths: bytes a peer may send before a receive asks for them",
                    kSessionField<&Session::shortPathEagerBytes>),
      numberSetting("GLOO_BYPASS_MAX_BUFFER_BYTES", "bytes", kMiB, 16 * kGiB,
                    "Long paths: cap of each peer's send buffer, and of its receive buffer",
                    kSessionField<&Session::maxBufferBytes>),
      numberSetting("GLOO_BYPASS_FIXED_WINDOW_BYTES", "bytes", 64 * kKiB, kGiB,
                    "Window of the fixed congestion control", kSessionField<&Session::fixedWindowBytes>),
      numberSetting(
          "GLOO_BYPASS_MIN_RTO_US", "us", 100, 10'000'000,
          "Shortest wait before a silent peer's acknowledgement is requested again; GLOO_BYPASS_MAX_RTO_MS at most",
          kSessionField<&Session::minRto>),
      numberSetting("GLOO_BYPASS_MAX_RTO_MS", "ms", 1, 60'000, "Longest wait between two such requests",
                    kSessionField<&Session::maxRto>),
      numberSetting(
          "GLOO_BYPASS_KEEP_ALIVE_MS", "ms", 10, kDayMs,
          "Silence after which an idle connection is probed, half of GLOO_BYPASS_PEER_TIMEOUT_MS at most, or a minute "
          "where that is 0; memory links need none, and RDMA has its own",
          kSessionField<&Session::keepAlive>),
      numberSetting(
          "GLOO_BYPASS_PEER_TIMEOUT_MS", "ms", 0, kDayMs,
          "Silence after which a peer has vanished; 0: the process group's timeout, and two minutes at least. Memory "
          "links notice by themselves, RDMA after 15 s, or 5 s after the adapter's retries where these take longer",
          kField<&Config::peerTimeout>),
      numberSetting("GLOO_BYPASS_CONNECT_TIMEOUT_MS", "ms", 0, kDayMs,
                    "Longest time to connect to a peer, where the process group's timeout is not shorter; 0: that "
                    "timeout",
                    kField<&Config::connectTimeout>),
  };
}

}  // namespace

std::vector<Setting> makeSettingsTable() {
  std::vector<Setting> table;
  // A row that several back-ends have stands where the first has it.
  const auto add = [&](std::vector<Setting> rows) {
    for (Setting& row : rows) {
      if (std::ranges::find(table, row.name, &Setting::name) == table.end()) table.push_back(std::move(row));
    }
  };
  for (const BackEnd& backEnd : backEnds()) add(backEnd.settings());
  add(inGroup(SettingGroup::kProcess, processSettings()));
  add(inGroup(SettingGroup::kProtocol, protocolSettings()));
  std::ranges::stable_sort(table, {}, &Setting::group);
  return table;
}

}  // namespace gloo_bypass
