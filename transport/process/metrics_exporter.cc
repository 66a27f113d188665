#include "transport/process/metrics_exporter.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "transport/base/exhausted.h"
#include "transport/base/own_description.h"
#include "transport/base/printable.h"
#include "transport/base/signals_blocked.h"
#include "transport/base/whole_file.h"
#include "transport/process/metrics_endpoint.h"
#include "transport/process/metrics_target.h"

namespace gloo_bypass {
namespace {

Error unavailable(const TransportConfig& config, const std::string& what) {
  return {ErrorScope::kDevice, ErrorCode::kUnavailable,
          printable(fmt::format("GLOO_BYPASS_METRICS='{}': {}", config.metrics, what))};
}

class FileExporter final : public MetricsExporter {
 public:
  // Throws std::system_error if no thread can start.
  FileExporter(const TransportConfig& config, std::string path, std::function<std::string()> text)
      : target_(config.metrics), path_(std::move(path)), interval_(config.metricsInterval), text_(std::move(text)) {
    const SignalsBlocked blocked;
    thread_ = std::jthread([this](const std::stop_token& ending) { run(ending); });
  }

  void stop(const std::function<std::string()>& lastText) noexcept override {
    thread_.request_stop();
    thread_.join();
    write(lastText);
  }

 private:
  void run(const std::stop_token& ending) {
    std::mutex mutex;  // guards nothing: a condition variable wants one
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, ending, interval_, [&] { return ending.stop_requested(); })) write(text_);
  }

  // A disk may be full for a while, or the numbers unavailable: report it once, try again.
  void write(const std::function<std::string()>& text) noexcept {
    try {
      const Status written = writeWholeFile(path_, text());
      if (!written) return complain(written.error().message.c_str());
      complained_ = false;
    } catch (const std::exception& error) {
      complain(error.what());
    }
  }

  void complain(const char* why) noexcept {
    if (std::exchange(complained_, true)) return;
    std::fprintf(stderr, "gloo-bypass: GLOO_BYPASS_METRICS='%s': %s could not be written: %s\n",
                 printable(target_).c_str(), printable(path_).c_str(), why);
  }

  const std::string target_, path_;
  const Duration interval_;
  const std::function<std::string()> text_;
  bool complained_ = false;  // used by the thread, and by stop() after it
  std::jthread thread_;      // ends before what it uses
};

class HttpExporter final : public MetricsExporter {
 public:
  explicit HttpExporter(std::function<std::string()> text) : text_(std::move(text)) {}

  Status open(const MetricsTarget& target) {
    auto opened = MetricsEndpoint::open(target, [this] { return page(); });
    if (!opened) return opened.error();
    endpoint_ = std::move(opened).value();
    return {};
  }
  std::uint16_t port() const { return endpoint_->port(); }

  void stop(const std::function<std::string()>&) noexcept override { endpoint_.reset(); }
  void leaveToParent() noexcept override {
    if (endpoint_) endpoint_->leaveToParent();
  }

 private:
  // Runs on the endpoint's thread.
  std::string page() {
    const auto now = std::chrono::steady_clock::now();
    if (kept_.empty() || now - keptSince_ >= kLeastInterval) {
      kept_ = text_();
      keptSince_ = now;
    }
    return kept_;
  }

  const std::function<std::string()> text_;
  std::string kept_;
  std::chrono::steady_clock::time_point keptSince_{};
  std::unique_ptr<MetricsEndpoint> endpoint_;
};

}  // namespace

Result<std::unique_ptr<MetricsExporter>> MetricsExporter::start(const TransportConfig& config, std::string firstText,
                                                                std::function<std::string()> text) {
  auto target = parseMetricsTarget(config.metrics);
  if (!target) return unavailable(config, fmt::format("it must be {}", kMetricsTargetForms));
  target->path = withProcessId(target->path);
  if (target->kind == MetricsTarget::Kind::kFile) {
    const std::string& path = target->path;
    const Status written = writeWholeFile(path, firstText);
    if (!written) return unavailable(config, fmt::format("{} cannot be written: {}", path, written.error().message));
    try {
      return std::unique_ptr<MetricsExporter>(new FileExporter(config, path, std::move(text)));
    } catch (const std::system_error& error) {
      return unavailable(config, noThread(error));
    }
  }
  auto exporter = std::make_unique<HttpExporter>(std::move(text));
  if (Status opened = exporter->open(*target); !opened) return unavailable(config, opened.error().message);
  const std::string place = target->kind == MetricsTarget::Kind::kSocket
                                ? fmt::format("the socket {}, path /metrics", target->path)
                                : fmt::format("http://{}:{}/metrics", target->address, exporter->port());
  std::fprintf(stderr, "gloo-bypass: %s: metrics at %s\n", describeProcess(config.rank).c_str(),
               printable(place).c_str());
  return std::unique_ptr<MetricsExporter>(std::move(exporter));
}

}  // namespace gloo_bypass
