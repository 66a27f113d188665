#include "plugin/process_transport.h"

#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plugin/metrics_text.h"
#include "plugin/settings.h"
#include "transport/base/whole_file.h"
#include "transport/io/progress_engine.h"
#include "transport/io/timed_transport.h"

namespace gloo_bypass {
namespace {

// Lives in storage of its own so that no static destructor touches it.
alignas(ProcessTransport) unsigned char storage[sizeof(ProcessTransport)];
ProcessTransport* theInstance = nullptr;
pid_t parentBeforeFork = 0;

using Live = ProcessTransport::Live;

std::string countersOf(const Live& live) {
  std::string json;
  live.transport->progress().exclusive([&] { json = live.transport->countersJson(); });
  json.pop_back();
  return json + fmt::format("{}\"transport\": \"{}\"}}", json == "{" ? "" : ", ", nameOf(live.backEnd));
}

// One transport's object as it is; those of several under the back-ends' names.
std::string countersOf(const std::vector<Live>& lives) {
  if (lives.empty()) return "{}";
  if (lives.size() == 1) return countersOf(lives.front());
  std::string all;
  for (const Live& live : lives) {
    all += fmt::format("{}\"{}\": {}", all.empty() ? "{" : ", ", nameOf(live.backEnd), countersOf(live));
  }
  return all + "}";
}

void writeFile(const std::string& path, const std::string& text) {
  const Status written = writeWholeFile(path, text);
  if (written) return;
  std::fprintf(stderr, "gloo-bypass: GLOO_BYPASS_STATS='%s' could not be written: %s\n", path.c_str(),
               written.error().message.c_str());
}

std::string metricsOf(const std::vector<Live>& lives, const std::string& rank) {
  std::vector<nlohmann::json> counters;
  for (const Live& live : lives) counters.push_back(nlohmann::json::parse(countersOf(live)));
  std::vector<TransportCounters> transports;
  for (std::size_t i = 0; i < lives.size(); ++i) transports.push_back({nameOf(lives[i].backEnd), counters[i]});
  return metricsText(transports, rank);
}

// Transports that name the same target share a report.
void writeStatistics(const std::vector<Live>& lives) {
  std::map<std::string, std::vector<Live>> byTarget;
  for (const Live& live : lives) {
    if (!live.statsTarget.empty()) byTarget[live.statsTarget].push_back(live);
  }
  for (const auto& [target, group] : byTarget) {
    const std::string json = countersOf(group);
    if (target == "stderr") {
      std::fprintf(stderr, "gloo-bypass statistics of process %d\n%s", getpid(), countersAsText(json).c_str());
    } else {
      writeFile(withProcessId(target), json + "\n");
    }
  }
}

void flatten(const nlohmann::json& value, const std::string& name, std::string& text) {
  if (value.is_object()) {
    if (value.contains("buckets")) {  // a histogram: its summary is what people read
      nlohmann::json summary = value;
      summary.erase("buckets");
      return flatten(summary, name, text);
    }
    for (const auto& [key, inner] : value.items()) flatten(inner, name.empty() ? key : name + "." + key, text);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) flatten(value[i], fmt::format("{}[{}]", name, i), text);
  } else {
    text += fmt::format("  {:<36} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

void letGo(std::shared_ptr<Transport> transport) {
  if (transport.use_count() == 1) return;  // destroyed here
  // A device is still in use: the transport must not go before its user, but its peers must not take the end of this process for a
  // failure.
  transport->closeAll();
  new std::shared_ptr<Transport>(std::move(transport));
}

Error alreadyStartedBefore(BackEnd backEnd, pid_t parent) {
  return {
      ErrorScope::kDevice, ErrorCode::kUnavailable,
      fmt::format("process {} was forked from process {}, which had already started {}, and it cannot be started anew "
                  "after that: make the first device after the fork, or start processes with the spawn method",
                  getpid(), parent, nameOf(backEnd))};
}

Error otherConfiguration(const std::vector<std::string>& different) {
  std::string list;
  for (const std::string& difference : different) list += (list.empty() ? "" : "; ") + difference;
  return {ErrorScope::kDevice, ErrorCode::kConfiguration,
          "a process has one configuration, but the first device and this one differ in " + list};
}

// What the waiting thread and the worker of shutDown share; freed by whoever leaves last.
struct ShutDownWork {
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
};

}  // namespace

const char* nameOf(BackEnd backEnd) { return backEnd == BackEnd::kDpdk ? "DPDK" : "RDMA"; }

ProcessTransport& ProcessTransport::instance() {
  static const bool once = [] {
    theInstance = new (storage) ProcessTransport();
    std::atexit([] { theInstance->shutDown(); });
    pthread_atfork([] { parentBeforeFork = getpid(); }, nullptr, [] { theInstance->becomeChildOf(parentBeforeFork); });
    return true;
  }();
  static_cast<void>(once);
  return *theInstance;
}

Result<std::shared_ptr<Transport>> ProcessTransport::acquire(BackEnd backEnd, const TransportConfig& config,
                                                             const Factory& factory) {
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[static_cast<std::size_t>(backEnd)];
  if (slot.inheritedFrom != 0) return alreadyStartedBefore(backEnd, slot.inheritedFrom);
  if (ended_) {
    return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, "the process is exiting: no new device can be made"};
  }
  if (slot.transport) {
    const auto different = differences(slot.config, config);
    if (different.empty()) return slot.transport;
    return otherConfiguration(different);
  }
  if (Status status = validate(config); !status) return status.error();
  const bool hadExporter = exporter_ != nullptr;
  if (Status status = startExporter(config); !status) return status.error();
  slot.begun = true;
  auto made = factory(config);
  if (!made) {
    if (!hadExporter) stopExporter(lock);
    return made;
  }
  if (config.telemetry && backEnd == BackEnd::kRdma) {
    std::fprintf(stderr,
                 "gloo-bypass: GLOO_BYPASS_TELEMETRY='on' does nothing for RDMA, which runs without DPDK: use "
                 "GLOO_BYPASS_METRICS\n");
  }
  if (!config.capture.empty() && backEnd == BackEnd::kRdma) {
    std::fprintf(stderr,
                 "gloo-bypass: GLOO_BYPASS_CAPTURE='%s' does nothing for RDMA, whose frames the adapter makes: use tcpdump on its "
                 "interface\n",
                 config.capture.c_str());
  }
  slot.transport = measuresLatencies(config) ? makeTimedTransport(made.value()) : made.value();
  slot.config = config;
  return slot.transport;
}

bool ProcessTransport::settled(BackEnd backEnd) {
  std::lock_guard lock(mutex_);
  const Slot& slot = slots_[static_cast<std::size_t>(backEnd)];
  return slot.transport || slot.inheritedFrom != 0;
}

// One for the whole process, although each transport has a configuration: the first that asks decides.
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
void ProcessTransport::stopExporter(std::unique_lock<std::mutex>& lock) {
  const auto stopping = std::move(exporter_);
  if (!stopping) return;
  const std::string rank = exportedRank_;
  lock.unlock();
  stopping->stop([&rank] { return metricsText({}, rank); });
  lock.lock();
}

std::vector<ProcessTransport::Live> ProcessTransport::liveTransports() {
  std::vector<Live> lives;
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < kBackEnds; ++i) {
    if (slots_[i].transport) lives.push_back({static_cast<BackEnd>(i), slots_[i].transport, slots_[i].config.stats});
  }
  return lives;
}

std::string ProcessTransport::countersJson() { return countersOf(liveTransports()); }

std::string ProcessTransport::countersJson(BackEnd backEnd) {
  std::vector<Live> lives = liveTransports();
  std::erase_if(lives, [backEnd](const Live& live) { return live.backEnd != backEnd; });
  return countersOf(lives);
}

void ProcessTransport::shutDown() noexcept {
  try {
    std::vector<Live> lives;
    std::unique_ptr<MetricsExporter> exporter;
    std::string rank;
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
      exporter = std::move(exporter_);
      rank = exportedRank_;
      for (std::size_t i = 0; i < kBackEnds; ++i) {
        if (!slots_[i].transport) continue;
        lives.push_back({static_cast<BackEnd>(i), std::move(slots_[i].transport), slots_[i].config.stats});
      }
    }
    if (lives.empty() && !exporter) return;
    const auto work = std::make_shared<ShutDownWork>();
    // On a thread of its own, because exit() may have been called where a transport can never answer.
    std::thread([work, lives = std::move(lives), exporter = std::move(exporter), rank]() mutable {
      // The endpoint's thread ends before the transport is asked for anything, for it may never answer.
      if (exporter) exporter->stop([&] { return metricsOf(lives, rank); });
      try {
        writeStatistics(lives);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "gloo-bypass: no statistics: %s\n", error.what());
      }
      for (Live& live : lives) letGo(std::move(live.transport));
      std::lock_guard lock(work->mutex);
      work->done = true;
      work->finished.notify_all();
    }).detach();
    std::unique_lock lock(work->mutex);
    if (!work->finished.wait_for(lock, kShutDownBound, [&] { return work->done; })) {
      std::fprintf(stderr, "gloo-bypass: the transport did not stop within %d s at exit; left as it is\n",
                   static_cast<int>(kShutDownBound.count()));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo-bypass: at exit: %s\n", error.what());
  }
}

void ProcessTransport::becomeChildOf(pid_t parent) noexcept {
  if (exporter_) exporter_->leaveToParent();
  // The mutex may be held by a thread that does not exist here, and the transports' destructors would wait for such threads: a
  // fresh object takes the place, what the parent had stays as it is.
  std::array<pid_t, kBackEnds> from{};
  for (std::size_t i = 0; i < kBackEnds; ++i) {
    if (slots_[i].inheritedFrom != 0) {
      from[i] = slots_[i].inheritedFrom;
    } else if (slots_[i].begun) {
      from[i] = parent;
    }
  }
  auto* fresh = new (this) ProcessTransport();
  for (std::size_t i = 0; i < kBackEnds; ++i) fresh->slots_[i].inheritedFrom = from[i];
}

std::string countersAsText(const std::string& json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  if (value.is_discarded()) return json + "\n";
  std::string text;
  flatten(value, "", text);
  return text;
}

}  // namespace gloo_bypass
