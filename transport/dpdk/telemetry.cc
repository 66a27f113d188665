#include "transport/dpdk/telemetry.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <rte_telemetry.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

namespace gloo_bypass {
namespace {

using nlohmann::json;

// DPDK's answers end at 16 KiB, and what does not fit is gone without a word. Room for the command's name and what is left out.
constexpr std::size_t kMaxPeersBytes = 15 * 1024;
constexpr std::size_t kMaxString = RTE_TEL_MAX_STRING_LEN - 1;

struct Offer {
  std::mutex mutex;
  std::function<std::string()> countersJson;
};

Offer& offer() {
  static auto* const one = new Offer;  // never destroyed: DPDK's thread may ask while the process ends
  return *one;
}

json counters() {
  std::function<std::string()> source;
  {
    std::lock_guard lock(offer().mutex);
    source = offer().countersJson;
  }
  return json::parse(source());
}

// From DPDK 23.03 on the function has another name (and from 25.11 on only that): the argument's type finds it, if it is there.
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

// Telemetry has whole numbers only: microseconds become nanoseconds.
std::uint64_t nanoseconds(const json& microseconds) {
  return static_cast<std::uint64_t>(std::llround(microseconds.get<double>() * 1e3));
}

// Numbers and texts of an object, not what lies deeper.
void addFields(rte_tel_data* data, const json& object, const std::string& prefix = "") {
  for (const auto& [key, value] : object.items()) {
    if (key.ends_with("_us") && value.is_number()) {
      addNumber(data, prefix + key.substr(0, key.size() - 3) + "_ns", nanoseconds(value));
    } else if (value.is_number_integer()) {
      if (value.get<std::int64_t>() < 0 && !value.is_number_unsigned()) {
        (void)rte_tel_data_add_dict_int(data, (prefix + key).c_str(), value.get<int>());
      } else {
        addNumber(data, prefix + key, value.get<std::uint64_t>());
      }
    } else if (value.is_string()) {
      addText(data, prefix + key, value.get<std::string>());
    }
  }
}

// The container is DPDK's once it has been added.
template <typename Fill>
void addObject(rte_tel_data* data, const std::string& name, Fill fill) {
  rte_tel_data* inner = rte_tel_data_alloc();
  if (inner == nullptr) return;
  (void)rte_tel_data_start_dict(inner);
  fill(inner);
  if (rte_tel_data_add_dict_container(data, name.c_str(), inner, 0) != 0) rte_tel_data_free(inner);
}

void addSummary(rte_tel_data* data, const std::string& name, const json& histogram) {
  addObject(data, name, [&](rte_tel_data* inner) {
    addNumber(inner, "count", histogram.at("count").get<std::uint64_t>());
    for (const char* key : {"mean", "p50", "p90", "p99", "max"}) {
      addNumber(inner, std::string(key) + "_ns", nanoseconds(histogram.at(key)));
    }
  });
}

void answerStats(const json& all, const char*, rte_tel_data* data) {
  addFields(data, all);
  if (all.contains("port")) addFields(data, all.at("port"), "port_");
}

// At most: names change by a letter, and microseconds with their fraction become nanoseconds.
std::size_t bytesInAnswer(const json& channel) {
  constexpr std::size_t kMoreDigits = 3, kNameOfChannel = 32;
  return channel.dump().size() + channel.size() * kMoreDigits + kNameOfChannel;
}

void answerPeers(const json& all, const char* parameters, rte_tel_data* data) {
  if (!all.contains("open_channels")) return;
  const std::string_view wanted = parameters == nullptr ? "" : parameters;
  std::size_t bytes = 0, leftOut = 0;
  for (const json& channel : all.at("open_channels")) {
    const std::string number = channel.at("channel").dump();
    if (!wanted.empty() && wanted != number) continue;
    bytes += bytesInAnswer(channel);
    if (bytes > kMaxPeersBytes) {  // this one, and all after it
      ++leftOut;
      continue;
    }
    addObject(data, "channel_" + number, [&](rte_tel_data* inner) { addFields(inner, channel); });
  }
  if (wanted.empty()) addNumber(data, "left_out", leftOut);
}

void answerHistograms(const json& all, const char*, rte_tel_data* data) {
  if (!all.contains("latencies")) return;
  for (const auto& [what, value] : all.at("latencies").items()) {
    if (value.contains("count")) {
      addSummary(data, what, value);
    } else if (value.is_object()) {
      for (const auto& [size, histogram] : value.items()) addSummary(data, what + "_" + size, histogram);
    }
  }
}

// DPDK's thread knows no exceptions.
template <void (*answer)(const json&, const char*, rte_tel_data*)>
int callback(const char*, const char* parameters, rte_tel_data* data) {
  try {
    const json all = counters();
    if (rte_tel_data_start_dict(data) != 0) return -1;
    answer(all, parameters, data);
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

Status offerTelemetry(std::function<std::string()> countersJson) {
  std::lock_guard lock(offer().mutex);
  if (offer().countersJson) return {};
  offer().countersJson = std::move(countersJson);
  const int failed =
      rte_telemetry_register_cmd("/gloo_bypass/stats", callback<answerStats>,
                                 "Counters of gloo-bypass. No parameters") |
      rte_telemetry_register_cmd("/gloo_bypass/peers", callback<answerPeers>,
                                 "Counters of each connection. Parameter: a channel's number, for that one only") |
      rte_telemetry_register_cmd("/gloo_bypass/histograms", callback<answerHistograms>,
                                 "Latencies in nanoseconds. No parameters");
  if (failed == 0) return {};
  offer().countersJson = nullptr;
  return {ErrorScope::kDevice, ErrorCode::kUnavailable, "GLOO_BYPASS_TELEMETRY: DPDK does not take the commands"};
}

// DPDK adds a number to the name where another process has it, and does not tell which.
std::string telemetrySocketPath() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (!folder) return "";
  while (const dirent* entry = ::readdir(folder.get())) {
    sockaddr_un name{};
    socklen_t length = sizeof(name) - 1;
    if (::getsockname(std::atoi(entry->d_name), reinterpret_cast<sockaddr*>(&name), &length) != 0) continue;
    if (name.sun_family != AF_UNIX) continue;
    const std::string path = name.sun_path;
    if (path.find("/dpdk_telemetry.v2") != std::string::npos) return path;
  }
  return "";
}

}  // namespace gloo_bypass
