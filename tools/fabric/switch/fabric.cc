// fabric: a switch in user space that emulates the links between hosts. See README.md in this folder.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include "tools/common/error.h"
#include "tools/common/result_file.h"
#include "tools/common/run_program.h"
#include "tools/fabric/core/description_file.h"
#include "tools/fabric/core/netem.h"
#include "tools/fabric/core/schedule.h"
#include "tools/fabric/switch/fabric_capture.h"
#include "tools/fabric/switch/fabric_loop.h"
#include "tools/fabric/switch/fabric_options.h"
#include "tools/fabric/switch/fabric_report.h"
#include "tools/fabric/switch/port_factory.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/seconds.h"
#include "transport/dpdk/frame.h"
#include "transport/process/json_text.h"

namespace gloo_bypass::fabric {
namespace {

constexpr std::size_t kTableEdges = 30;

std::atomic<bool> stopWanted{false}, tableWanted{false};

void onSignal(int number) {
  if (number == SIGUSR1) {
    tableWanted.store(true, std::memory_order_relaxed);
  } else {
    stopWanted.store(true, std::memory_order_relaxed);
  }
}

void handleSignals() {
  struct sigaction action{};
  action.sa_handler = onSignal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) (void)::sigaction(number, &action, nullptr);
  makeWriteSignalsErrors();
}

// What the counters go to while the fabric runs.
class Output {
 public:
  Output(const FabricOptions& options, FabricReport& report, const FabricCapture* capture)
      : options_(options), report_(report), capture_(capture), inPlace_(options.live && ::isatty(STDOUT_FILENO) == 1) {}
  ~Output() {
    if (samples_ != nullptr) std::fclose(samples_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Throws where one of the files cannot be written. What may not be there already is made last.
  void open(TimePoint now) {
    writeStats(now);
    if (!options_.samplesPath.empty()) {
      samples_ = std::fopen(options_.samplesPath.c_str(), "wxe");
      if (samples_ == nullptr) cannotWrite("--samples", options_.samplesPath, std::strerror(errno));
    }
  }

  void onInterval(TimePoint now) {
    if (options_.live) print(now);
    complainOfCapture();
    if (samples_ != nullptr) sample(now);
  }

  void print(TimePoint now) {
    // Not fmt::print: it throws where a reader has gone, and the links would go with it.
    (void)std::fputs(inPlace_ ? "\x1b[H\x1b[J" : "\n", stdout);
    (void)std::fputs(report_.table(now, kTableEdges).c_str(), stdout);
    (void)std::fflush(stdout);
  }

  void close(TimePoint now) {
    bool lost = false;
    if (samples_ != nullptr) {
      sample(now);
      lost = std::ferror(samples_) != 0;
      lost = std::fclose(std::exchange(samples_, nullptr)) != 0 || lost;
    }
    writeStats(now);
    if (lost) cannotWrite("--samples", options_.samplesPath, "lines are missing");
  }

 private:
  void sample(TimePoint now) {
    const std::string line = jsonText(report_.sample(now)) + "\n";
    (void)std::fwrite(line.data(), 1, line.size(), samples_);
    std::fflush(samples_);
  }
  void writeStats(TimePoint now) {
    if (options_.statsPath.empty()) return;
    nlohmann::ordered_json all = report_.json(now);
    if (capture_ != nullptr) all["capture"] = capture_->json();
    writeResult("--stats", options_.statsPath, jsonText(all, 1) + "\n");
  }

  // At once, since what is missing cannot be had later: the first time that anything is.
  void complainOfCapture() {
    if (capture_ == nullptr || complainedOfCapture_) return;
    const std::string complaint = capture_->complaint();
    if (complaint.empty()) return;
    complainedOfCapture_ = true;
    complain("fabric", complaint);
  }

  const FabricOptions& options_;
  FabricReport& report_;
  const FabricCapture* capture_;
  const bool inPlace_;
  std::FILE* samples_ = nullptr;
  bool complainedOfCapture_ = false;
};

void printDescription(const Description& description) {
  fmt::print("{} hosts, seed {}\n", description.hosts.size(), description.seed);
  for (std::size_t i = 0; i < description.hosts.size(); ++i) {
    const HostDescription& host = description.hosts[i];
    fmt::print("{:>3}  {:<12} {}/{}{}\n", i, host.name, ipv4Text(host.ipv4), host.prefixLength,
               host.site.empty() ? "" : "  " + host.site);
  }
  for (std::size_t from = 0; from < description.hosts.size(); ++from) {
    for (std::size_t to = 0; to < description.hosts.size(); ++to) {
      const std::string effect = describe(description.edge(from, to));
      if (from != to && effect != "nothing") fmt::print("{:<14} {}\n", description.edgeName(from, to), effect);
    }
  }
  fmt::print("{} timed changes\n", description.events.size());
}

void printDescriptionAsJson(const Description& description) {
  nlohmann::ordered_json hosts = nlohmann::ordered_json::array(), edges = nlohmann::ordered_json::array();
  for (const HostDescription& host : description.hosts) {
    hosts.push_back({{"name", host.name},
                     {"ipv4", ipv4Text(host.ipv4)},
                     {"prefix_length", host.prefixLength},
                     {"mac", host.mac ? dpdk::toString(*host.mac) : ""},
                     {"site", host.site},
                     {"port", nameOf(host.port.kind)},
                     {"port_name", host.port.name},
                     {"namespace", host.port.networkNamespace}});
  }
  for (std::size_t from = 0; from < description.hosts.size(); ++from) {
    for (std::size_t to = 0; to < description.hosts.size(); ++to) {
      if (from == to) continue;
      edges.push_back({{"from", description.hosts[from].name},
                       {"to", description.hosts[to].name},
                       {"emulates", describe(description.edge(from, to))}});
    }
  }
  const NarrowestEdges narrowest = narrowestEdges(description);
  const nlohmann::ordered_json all{{"seed", description.seed},
                                   {"hosts", hosts},
                                   {"edges", edges},
                                   {"timed_changes", description.events.size()},
                                   {"longest_round_trip_s", secondsOf(longestRoundTrip(description))},
                                   {"lowest_rate_bit_s", narrowest.rateBitsPerSecond},
                                   {"smallest_queue_bytes", narrowest.queueBytes}};
  fmt::print("{}\n", jsonText(all, 1));
}

TimePoint endOf(TimePoint start, double seconds) {
  return seconds > 0 ? start + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)) : kNever;
}

void printNetem(const Description& description, const std::vector<std::string>& hostsAndInterfaces) {
  std::vector<NetemPlan> plans;
  std::set<std::string> interfaces;
  for (const std::string& one : hostsAndInterfaces) {
    const std::size_t equals = std::min(one.find('='), one.size());
    const std::optional<std::size_t> host = description.findHost(one.substr(0, equals));
    if (!host || equals == one.size()) {
      throw UsageError(
          fmt::format("--netem {}: give a host (its name, or a rank from 0 to {}) and its interface, such as {}=eth0",
                      one, description.hosts.size() - 1, description.hosts.front().name));
    }
    const std::string interface = one.substr(equals + 1);
    if (!interfaces.insert(interface).second) {
      throw UsageError(fmt::format("--netem {}: {} is another's already; give each host its own", one, interface));
    }
    plans.push_back(valueOrThrow<UsageError>(netemPlan(description, *host, interface)));
  }
  fmt::print("{}", netemScript(together(plans)));
}

void emulate(const FabricOptions& options, const Description& description) {
  const FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) throw ProgramError(std::strerror(errno));
  handleSignals();
  auto ports =
      valueOrThrow(makePorts(description, options.mtu + dpdk::kEthernetHeaderBytes, options.ealArguments, epoll.get()));
  const TimePoint start = monotonicTime();
  FabricSwitch fabricSwitch(description, std::move(ports), options.limits, start);
  FabricReport report(description, fabricSwitch, start);
  std::unique_ptr<FabricCapture> capture;
  if (!options.capture.path.empty()) {
    capture = valueOrThrow(FabricCapture::create(options.capture, description, epoll.get(), start));
    fabricSwitch.observe(*capture);
  }
  Output output(options, report, capture.get());
  try {
    output.open(start);
  } catch (...) {
    if (capture) std::remove(options.capture.path.c_str());  // empty, and in the way of the next try
    throw;
  }
  const bool before = !options.normalPriority && goBeforeOthers();
  fmt::print("fabric: ready, {} hosts, MTU {}, {} priority\n", description.hosts.size(), options.mtu,
             before ? "real-time" : "normal");
  std::fflush(stdout);
  FabricLoop loop(fabricSwitch, epoll.get());
  loop.run(stopWanted, endOf(start, options.durationSeconds),
           std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.intervalSeconds)),
           [&](TimePoint now) {
             output.onInterval(now);
             if (tableWanted.exchange(false, std::memory_order_relaxed)) output.print(now);
           });
  const TimePoint end = monotonicTime();
  const Status captured = capture ? capture->finish(end) : Status();
  output.close(end);  // before the table, which cannot be printed where the terminal has gone
  output.print(end);
  if (const std::string complaints = report.complaints(); !complaints.empty()) fmt::print("{}", complaints);
  if (capture) fmt::print("{}", capture->complaint());
  std::fflush(stdout);
  if (!captured) throw ProgramError("--capture " + captured.error().message);
}

int run(const FabricOptions& options) {
  const auto description = valueOrThrow<UsageError>(loadDescription(options.configPath, options.flags));
  if (options.checkOnly) {
    options.json ? printDescriptionAsJson(description) : printDescription(description);
  } else if (!options.netem.empty()) {
    printNetem(description, options.netem);
  } else {
    emulate(options, description);
  }
  return 0;
}

}  // namespace
}  // namespace gloo_bypass::fabric

int main(int argc, char** argv) {
  namespace fabric = gloo_bypass::fabric;
  return gloo_bypass::runProgram("fabric", fabric::parseFabricOptions, fabric::run, argc, argv);
}
