#include "transport/dpdk/telemetry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <rte_telemetry.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "transport/base/mutex.h"

namespace gloo_bypass::dpdk {
namespace {

// DPDK cuts its answers at 16 KiB without notice. Leaves room for the command's name and the number of omitted peers.
constexpr std::size_t kMaxPeersBytes = 15 * 1024;
constexpr std::size_t kMaxString = RTE_TEL_MAX_STRING_LEN - 1;

struct Offer {
  Mutex mutex;
  ReportSource report GLOO_BYPASS_GUARDED_BY(mutex);
};

Offer& offer() {
  static auto* const one = new Offer;  // never destroyed: DPDK's thread may ask while the process ends
  return *one;
}

std::optional<TransportReport> currentReport() {
  ReportSource source;
  {
    const MutexLock lock(offer().mutex);
    source = offer().report;
  }
  return source();
}

// From DPDK 23.03 on the function has another name (from 25.11 on only that one): this overload exists if the function
// does.
template <typename Data>
void addNumber(Data* data, const std::string& name, std::uint64_t value) {
  if constexpr (requires { rte_tel_data_add_dict_uint(data, name.c_str(), value); }) {
    (void)rte_tel_data_add_dict_uint(data, name.c_str(), value);
  } else {
    (void)rte_tel_data_add_dict_u64(data, name.c_str(), value);
  }
}

void addText(rte_tel_data* data, const std::string& name, const std::string& text) {
  (void)rte_tel_data_add_dict_string(data, name.c_str(), text.substr(0, kMaxString).c_str());
}

// Telemetry has integers only.
void addDuration(rte_tel_data* data, const std::string& name, Duration duration) {
  addNumber(data, name + "_ns", static_cast<std::uint64_t>(duration.count()));
}

void addCounters(rte_tel_data* data, const ChannelCounters& counters) {
  for (const ChannelCounterRow& row : channelCounterRows()) addNumber(data, row.name, counters.*row.field);
}

// DPDK owns the container once it is added.
template <typename Fill>
void addObject(rte_tel_data* data, const std::string& name, Fill fill) {
  rte_tel_data* inner = rte_tel_data_alloc();
  if (inner == nullptr) return;
  (void)rte_tel_data_start_dict(inner);
  fill(inner);
  if (rte_tel_data_add_dict_container(data, name.c_str(), inner, 0) != 0) rte_tel_data_free(inner);
}

void addSummary(rte_tel_data* data, const std::string& name, const DurationHistogram& histogram) {
  addObject(data, name, [&](rte_tel_data* inner) {
    addNumber(inner, "count", histogram.count());
    addDuration(inner, "mean", histogram.mean());
    addDuration(inner, "p50", histogram.quantile(0.50));
    addDuration(inner, "p90", histogram.quantile(0.90));
    addDuration(inner, "p99", histogram.quantile(0.99));
    addDuration(inner, "max", histogram.max());
  });
}

void answerStats(const TransportReport& report, const char*, rte_tel_data* data) {
  addText(data, "transport", "DPDK");
  addCounters(data, report.total);
  addNumber(data, "bytes_sent", report.bytesSent);
  addNumber(data, "bytes_received", report.bytesReceived);
  addText(data, "port_description", report.description);
  for (const PortFigure& figure : report.port) addNumber(data, std::string("port_") + figure.name, figure.value);
}

// An upper bound.
std::size_t bytesInAnswer(const ChannelReport& channel) {
  constexpr std::size_t kPunctuation = 4, kOtherFields = 256;
  std::size_t bytes = kOtherFields + 2 * channel.peer.size();  // quotes may be escaped
  for (const ChannelCounterRow& row : channelCounterRows()) {
    bytes += std::strlen(row.name) + kPunctuation + std::to_string(channel.counters.*row.field).size();
  }
  return bytes;
}

void addChannel(rte_tel_data* data, const ChannelReport& channel) {
  addNumber(data, "channel", channel.number);
  addText(data, "peer", channel.peer);
  (void)rte_tel_data_add_dict_int(data, "local_rank", channel.localRank);
  (void)rte_tel_data_add_dict_int(data, "peer_rank", channel.peerRank);
  addCounters(data, channel.counters);
  if (!channel.path) return;
  addDuration(data, "smoothed_rtt", channel.path->smoothedRtt);
  addDuration(data, "min_rtt", channel.path->minRtt);
  addNumber(data, "congestion_window_bytes", channel.path->congestionWindowBytes);
}

void answerPeers(const TransportReport& report, const char* parameters, rte_tel_data* data) {
  const std::string_view wanted = parameters == nullptr ? "" : parameters;
  std::size_t bytes = 0, leftOut = 0;
  for (const ChannelReport& channel : report.channels) {
    const std::string number = std::to_string(channel.number);
    if (!wanted.empty() && wanted != number) continue;
    bytes += bytesInAnswer(channel);
    if (bytes > kMaxPeersBytes) {  // this one, and all after it
      ++leftOut;
      continue;
    }
    addObject(data, "channel_" + number, [&](rte_tel_data* inner) { addChannel(inner, channel); });
  }
  if (wanted.empty()) addNumber(data, "left_out", leftOut);
}

void answerHistograms(const TransportReport& report, const char*, rte_tel_data* data) {
  if (report.operations) {
    for (const OperationTimes::SizeClass& size : report.operations->sizes) {
      addSummary(data, std::string("send_") + size.name, size.times.send);
      addSummary(data, std::string("receive_") + size.name, size.times.receive);
    }
    addSummary(data, "connect", report.operations->connect);
  }
  if (report.roundTrips) addSummary(data, "rtt", *report.roundTrips);
}

// Exceptions must not reach DPDK's thread.
template <void (*answer)(const TransportReport&, const char*, rte_tel_data*)>
int callback(const char*, const char* parameters, rte_tel_data* data) {
  try {
    const std::optional<TransportReport> report = currentReport();
    if (rte_tel_data_start_dict(data) != 0) return -1;
    if (report) answer(*report, parameters, data);
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

}  // namespace

FileDescriptor awaitTelemetryTurn(const std::string& directory, std::chrono::milliseconds limit) {
  (void)::mkdir(directory.c_str(), 0700);
  FileDescriptor turn(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto end = std::chrono::steady_clock::now() + limit;
  while (turn && ::flock(turn.get(), LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= end) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return turn;
}

Status offerTelemetry(ReportSource report) {
  const MutexLock lock(offer().mutex);
  if (offer().report) return {};
  offer().report = std::move(report);
  const int failed =
      rte_telemetry_register_cmd("/gloo_bypass/stats", callback<answerStats>,
                                 "Counters of gloo-bypass. No parameters") |
      rte_telemetry_register_cmd("/gloo_bypass/peers", callback<answerPeers>,
                                 "Counters of each connection. Parameter: a channel's number, for that one only") |
      rte_telemetry_register_cmd("/gloo_bypass/histograms", callback<answerHistograms>,
                                 "Latencies in nanoseconds. No parameters");
  if (failed == 0) return {};
  offer().report = nullptr;
  return {ErrorScope::kDevice, ErrorCode::kUnavailable, "GLOO_BYPASS_TELEMETRY: DPDK does not take the commands"};
}

// DPDK appends a number to the name if another process has it, and does not report which.
std::string telemetrySocketPath() {
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  for (const std::filesystem::directory_iterator end; !error && entry != end; entry.increment(error)) {
    sockaddr_un name{};
    socklen_t length = sizeof(name) - 1;
    if (::getsockname(std::atoi(entry->path().filename().c_str()), reinterpret_cast<sockaddr*>(&name), &length) != 0)
      continue;
    if (name.sun_family != AF_UNIX) continue;
    const std::string path = name.sun_path;
    if (path.find("/dpdk_telemetry.v2") != std::string::npos) return path;
  }
  return "";
}

}  // namespace gloo_bypass::dpdk
