#include "transport/process/process_transport.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "transport/base/check.h"
#include "transport/base/forked_child.h"
#include "transport/base/joined.h"
#include "transport/base/printable.h"
#include "transport/base/whole_file.h"
#include "transport/process/json_text.h"
#include "transport/process/metrics_text.h"
#include "transport/process/report_json.h"
#include "transport/process/settings.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass {
namespace {

// In separate storage, so that no static destructor touches it.
alignas(ProcessTransport) unsigned char storage[sizeof(ProcessTransport)];
ProcessTransport* theInstance = nullptr;
pid_t parentBeforeFork = 0;

using Live = ProcessTransport::Live;

TransportReport reportOf(const Live& live) {
  TransportReport report;
  live.transport->progress().exclusive([&] {
    report = live.transport->report();
    if (const OperationTimes* latencies = live.transport->latencies()) report.operations = *latencies;
  });
  return report;
}

// The plain object for one transport; for several, one object each under the back-ends' names.
nlohmann::json countersOf(const std::vector<Live>& lives) {
  if (lives.size() == 1) return reportJson(lives.front().backEnd->name, reportOf(lives.front()));
  nlohmann::json all = nlohmann::json::object();
  for (const Live& live : lives) all[live.backEnd->name] = reportJson(live.backEnd->name, reportOf(live));
  return all;
}

void writeFile(const std::string& path, const std::string& text) {
  const Status written = writeWholeFile(path, text);
  if (written) return;
  std::fprintf(stderr, "gloo-bypass: GLOO_BYPASS_STATS='%s' could not be written: %s\n", printable(path).c_str(),
               printable(written.error().message).c_str());
}

std::string metricsOf(const std::vector<Live>& lives, const std::string& rank) {
  std::vector<NamedReport> reports;
  for (const Live& live : lives) reports.push_back({live.backEnd->name, reportOf(live)});
  return metricsText(reports, rank);
}

// Transports with the same target share a report.
void writeStatistics(const std::vector<Live>& lives) {
  std::map<std::string, std::vector<Live>> byTarget;
  for (const Live& live : lives) {
    if (!live.statsTarget.empty()) byTarget[live.statsTarget].push_back(live);
  }
  for (const auto& [target, group] : byTarget) {
    const nlohmann::json counters = countersOf(group);
    if (target == "stderr") {
      std::fprintf(stderr, "gloo-bypass statistics of process %d\n%s", getpid(), asText(counters).c_str());
    } else {
      writeFile(withProcessId(target), jsonText(counters) + "\n");
    }
  }
}

void letGo(std::shared_ptr<Transport> transport) {
  if (transport.use_count() == 1) return;  // the last user: destroyed here
  // A device still uses it: the transport must not end before its user, but its peers must not take the end of this
  // process for a failure.
  transport->closeAll();
  new std::shared_ptr<Transport>(std::move(transport));
}

Error alreadyStartedBefore(const BackEnd& backEnd, pid_t parent) {
  return {
      ErrorScope::kDevice, ErrorCode::kUnavailable,
      fmt::format("process {} was forked from process {}, which had already started {}, and it cannot be started anew "
                  "after that: make the first device after the fork, or start processes with the spawn method",
                  getpid(), parent, backEnd.name)};
}

Error otherConfiguration(const std::vector<std::string>& different) {
  return {ErrorScope::kDevice, ErrorCode::kConfiguration,
          fmt::format("a process has one configuration, but the first device and this one differ in {}",
                      joined(different, "; "))};
}

// For a thread that is not joined yet; zero once it has ended.
std::chrono::nanoseconds processorTime(std::thread& thread) {
  clockid_t clock{};
  timespec time{};
  if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0 || clock_gettime(clock, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// False: a bound was reached. Samples the worker's processor time several times within the bound for its standstill.
// Counts samples, not time: the process may have been stopped.
bool waitUntilDone(const std::future<void>& done, std::thread& worker, const ProcessTransport::ShutDownBounds& bounds) {
  constexpr int kLooks = 5;
  const auto end = std::chrono::steady_clock::now() + bounds.total;
  auto used = processorTime(worker);
  for (int still = 0; done.wait_for(bounds.standstill / kLooks) != std::future_status::ready;) {
    const auto before = std::exchange(used, processorTime(worker));
    still = used == before ? still + 1 : 0;
    if (still == kLooks || std::chrono::steady_clock::now() >= end) return false;
  }
  return true;
}

}  // namespace

ProcessTransport& ProcessTransport::instance() {
  static const bool once = [] {
    theInstance = new (storage) ProcessTransport();
    std::atexit([] { theInstance->shutDown(); });
    pthread_atfork([] { parentBeforeFork = getpid(); }, nullptr,
                   [] {
                     forked_child::giveFree();
                     theInstance->becomeChildOf(parentBeforeFork);
                   });
    return true;
  }();
  static_cast<void>(once);
  return *theInstance;
}

ProcessTransport::Slot& ProcessTransport::slotOf(const BackEnd& backEnd) {
  for (Slot& slot : slots_) {
    if (slot.backEnd == nullptr) slot.backEnd = &backEnd;
    if (slot.backEnd->name == backEnd.name) return slot;
  }
  GLOO_BYPASS_CHECK(false && "more back-ends than kMostBackEnds");
  return slots_.front();
}

Result<std::shared_ptr<Transport>> ProcessTransport::acquire(const BackEnd& backEnd, const TransportConfig& config) {
  const MutexLock lock(mutex_);
  Slot& slot = slotOf(backEnd);
  if (slot.inheritedFrom != 0) return alreadyStartedBefore(backEnd, slot.inheritedFrom);
  if (ended_) {
    return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, "the process is exiting: no new device can be made"};
  }
  if (slot.transport) {
    TransportConfig wanted = config;
    // The default depends on which folders are there, such as /run/user/1000 while somebody is logged in.
    if (wanted.memifDirectoryIsDefault && slot.config.memifDirectoryIsDefault)
      wanted.memifDirectory = slot.config.memifDirectory;
    // A program that makes devices may name one interface after the other. Of GLOO_SOCKET_IFNAME=a,b, for which Gloo
    // asks for a device each, interfacesFor() has taken the first, or over UDP all.
    const auto rule = backEnd.interfaceRule != nullptr ? backEnd.interfaceRule(config) : InterfaceRule::kIgnored;
    if (rule == InterfaceRule::kNamed || rule == InterfaceRule::kSeveral) {
      if (wanted.interface != slot.config.interface && !std::exchange(slot.saidOneInterface, true)) {
        const std::string named =
            "several interfaces are named, and '" + printable(slot.config.interface) + "' carries all";
        const bool chosen = slot.config.interface.empty();
        std::fprintf(stderr, "gloo-bypass: %s: %s; '%s' is not used\n", backEnd.name.c_str(),
                     chosen ? "the first device of this process has chosen its interface" : named.c_str(),
                     printable(wanted.interface).c_str());
      }
      wanted.interface = slot.config.interface;
    }
    const auto different = differences(slot.config, wanted);
    if (different.empty()) return slot.transport;
    return otherConfiguration(different);
  }
  if (Status status = validate(config); !status) return status.error();
  const bool hadExporter = exporter_ != nullptr;
  if (Status status = startExporter(config); !status) return status.error();
  slot.begun = true;
  auto made = makeTransport(backEnd, config);
  Status status = made ? Status() : Status(made.error());
  if (status && backEnd.publish != nullptr) {
    status = backEnd.publish(config, [&backEnd] { return instance().report(backEnd); });
  }
  if (!status) {
    made = status.error();  // ends before the lock is let go: the next device may start it anew
    if (!hadExporter) stopExporter();
    return made;
  }
  if (backEnd.ignoredSettings != nullptr) {
    for (const std::string& line : backEnd.ignoredSettings(config)) {
      std::fprintf(stderr, "gloo-bypass: %s\n", line.c_str());
    }
  }
  slot.transport = made.value();
  if (measuresLatencies(config)) slot.transport->measureLatencies();
  slot.config = config;
  return slot.transport;
}

bool ProcessTransport::settled(const BackEnd& backEnd) {
  const MutexLock lock(mutex_);
  const Slot& slot = slotOf(backEnd);
  return slot.transport || slot.inheritedFrom != 0;
}

// One for the whole process, although each transport has a configuration: the first one with a target decides.
Status ProcessTransport::startExporter(const TransportConfig& config) {
  if (config.metrics.empty()) return {};
  if (exporter_) {
    if (config.metrics == exportedTo_) return {};
    return otherConfiguration({fmt::format("GLOO_BYPASS_METRICS: '{}' and '{}'", exportedTo_, config.metrics)});
  }
  auto started = MetricsExporter::start(config, metricsText({}, config.rank),
                                        [this, rank = config.rank] { return metricsOf(liveTransports(), rank); });
  if (!started) return started.error();
  exportedRank_ = config.rank;
  exporter_ = std::move(started).value();
  exportedTo_ = config.metrics;
  return {};
}

// Its thread may be waiting for the mutex.
void ProcessTransport::stopExporter() {
  const auto stopping = std::move(exporter_);
  if (!stopping) return;
  const std::string rank = exportedRank_;
  mutex_.unlock();
  stopping->stop([&rank] { return metricsText({}, rank); });
  mutex_.lock();
}

std::vector<ProcessTransport::Live> ProcessTransport::liveTransports() {
  std::vector<Live> lives;
  const MutexLock lock(mutex_);
  for (const Slot& slot : slots_) {
    if (slot.transport) lives.push_back({slot.backEnd, slot.transport, slot.config.stats});
  }
  return lives;
}

std::string ProcessTransport::countersJson() { return jsonText(countersOf(liveTransports())); }

std::optional<TransportReport> ProcessTransport::report(const BackEnd& backEnd) {
  for (const Live& live : liveTransports()) {
    if (live.backEnd->name == backEnd.name) return reportOf(live);
  }
  return std::nullopt;
}

void ProcessTransport::shutDown(const ShutDownBounds& bounds) noexcept {
  try {
    std::vector<Live> lives;
    std::unique_ptr<MetricsExporter> exporter;
    std::string rank;
    {
      const MutexLock lock(mutex_);
      ended_ = true;
      exporter = std::move(exporter_);
      rank = exportedRank_;
      for (Slot& slot : slots_) {
        if (slot.transport) lives.push_back({slot.backEnd, std::move(slot.transport), slot.config.stats});
      }
    }
    if (lives.empty() && !exporter) return;
    std::promise<void> promise;
    const std::future<void> done = promise.get_future();
    // On a separate thread, because exit() may have been called where a transport can never answer.
    std::thread worker(
        [promise = std::move(promise), lives = std::move(lives), exporter = std::move(exporter), rank]() mutable {
          // Stop the endpoint's thread before asking the transport, which may never answer.
          if (exporter) exporter->stop([&] { return metricsOf(lives, rank); });
          try {
            writeStatistics(lives);
          } catch (const std::exception& error) {
            std::fprintf(stderr, "gloo-bypass: no statistics: %s\n", error.what());
          }
          for (Live& live : lives) letGo(std::move(live.transport));
          promise.set_value();
        });
    const auto begin = std::chrono::steady_clock::now();
    if (waitUntilDone(done, worker, bounds)) {
      worker.join();
    } else {
      worker.detach();
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
      std::fprintf(stderr, "gloo-bypass: the transport did not stop within %.0f s at exit; left as it is\n",
                   waited.count());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo-bypass: at exit: %s\n", error.what());
  }
}

void ProcessTransport::becomeChildOf(pid_t parent) noexcept {
  if (exporter_) exporter_->leaveToParent();
  // A thread that does not exist here may hold the mutex, and the transports' destructors would wait for such threads:
  // a new object takes the place, and the parent's state stays untouched.
  std::array<Slot, kMostBackEnds> inherited;
  for (std::size_t i = 0; i < kMostBackEnds; ++i) {
    const Slot& slot = slots_[i];
    inherited[i].backEnd = slot.backEnd;
    inherited[i].inheritedFrom = slot.inheritedFrom != 0 ? slot.inheritedFrom : slot.begun ? parent : 0;
  }
  (new (this) ProcessTransport())->slots_ = std::move(inherited);
}

}  // namespace gloo_bypass
