#include "trainer/metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>

#include "tools/common/statistics.h"

namespace gloo_bypass::trainer {
namespace {

template <typename T>
nlohmann::json orNull(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

struct Field {
  const char* name;
  std::optional<double> (*value)(const StepMetrics&);
};

// The fields that medians and percentiles make sense of.
constexpr Field kFields[] = {
    {"t_step_s", [](const StepMetrics& m) { return std::optional(m.stepSeconds); }},
    {"t_forward_s", [](const StepMetrics& m) { return std::optional(m.forwardSeconds); }},
    {"t_backward_s", [](const StepMetrics& m) { return std::optional(m.backwardSeconds); }},
    {"t_optimizer_s", [](const StepMetrics& m) { return std::optional(m.optimizerSeconds); }},
    {"t_barrier_s", [](const StepMetrics& m) { return std::optional(m.barrierSeconds); }},
    {"t_ar_s", [](const StepMetrics& m) { return std::optional(m.allReduceSeconds); }},
    {"t_ar_exposed_s", [](const StepMetrics& m) { return std::optional(m.exposedSeconds); }},
    {"oh_ar", [](const StepMetrics& m) { return std::optional(rate(m.allReduceSeconds, m.stepSeconds)); }},
    {"overlap",
     [](const StepMetrics& m) -> std::optional<double> {
       return m.allReduceSeconds > 0 ? std::optional(100 * (1 - m.exposedSeconds / m.allReduceSeconds)) : std::nullopt;
     }},
    {"bytes_sent",
     [](const StepMetrics& m) -> std::optional<double> {
       return m.bytesSent ? std::optional(static_cast<double>(*m.bytesSent)) : std::nullopt;
     }},
    {"bytes_received",
     [](const StepMetrics& m) -> std::optional<double> {
       return m.bytesReceived ? std::optional(static_cast<double>(*m.bytesReceived)) : std::nullopt;
     }},
    {"tokens_per_s",
     [](const StepMetrics& m) { return std::optional(rate(static_cast<double>(m.tokens), m.stepSeconds)); }},
    {"model_flops_per_s", [](const StepMetrics& m) { return std::optional(rate(m.flops, m.stepSeconds)); }},
    {"mfu",
     [](const StepMetrics& m) -> std::optional<double> {
       return m.peakFlopsPerSecond ? std::optional(100 * rate(rate(m.flops, m.stepSeconds), *m.peakFlopsPerSecond))
                                   : std::nullopt;
     }},
};

}  // namespace

void StepMetrics::setTimes(Time start, Time backwardDone, Time optimizerDone, Time end) {
  const auto seconds = [](Time from, Time to) { return std::chrono::duration<double>(to - from).count(); };
  backwardSeconds -= exposedSeconds;
  optimizerSeconds = seconds(backwardDone, optimizerDone);
  barrierSeconds = seconds(optimizerDone, end);
  stepSeconds = seconds(start, end);
}

void StepMetrics::setPeak(std::optional<int64_t> bytesOfTensors) {
  if (memory) {
    memory->peakOfTensors = bytesOfTensors;
  }
}

void StepMetrics::setBytes(const char* source, const std::optional<ByteCounts>& before,
                           const std::optional<ByteCounts>& after) {
  bytesSource = source;
  if (before && after) {
    bytesSent = after->sent - before->sent;
    bytesReceived = after->received - before->received;
  }
}

nlohmann::json toJson(const StepMetrics& m) {
  nlohmann::json json{{"event", "step"},
                      {"step", m.step},
                      {"epoch", m.epoch},
                      {"loss", orNull(m.loss)},
                      {"loss_mean", orNull(m.meanLoss)},
                      {"buckets", m.buckets},
                      {"gradient_bytes", m.gradientBytes},
                      {"bytes_source", m.bytesSource},
                      {"tokens", m.tokens}};
  for (const Field& field : kFields) {
    json[field.name] = orNull(field.value(m));
  }
  json["bytes_sent"] = orNull(m.bytesSent);
  json["bytes_received"] = orNull(m.bytesReceived);
  if (m.gradientNorm) {
    json["gradient_norm"] = *m.gradientNorm;
  }
  json.update(m.ofMethods);
  if (m.memory) {
    json["parameter_bytes"] = m.memory->held.parameters;
    json["gradient_bytes_held"] = m.memory->held.gradients;
    json["optimizer_bytes"] = m.memory->held.optimizer;
    if (m.memory->peakOfTensors) {
      json["peak_tensor_bytes"] = *m.memory->peakOfTensors;
    }
  }
  if (!m.digest.empty()) {
    json["sha256"] = m.digest;
  }
  return json;
}

void MetricsSummary::add(const StepMetrics& metrics) {
  if (steps_++ == 0) {
    firstLoss_ = metrics.bestLoss();
  }
  lastLoss_ = metrics.bestLoss();
  bytesSource_ = metrics.bytesSource;
  values_.resize(std::size(kFields));
  for (size_t i = 0; i < std::size(kFields); ++i) {
    values_[i].push_back(kFields[i].value(metrics).value_or(std::numeric_limits<double>::quiet_NaN()));
  }
}

nlohmann::json MetricsSummary::toJson() const {
  nlohmann::json json{{"steps", steps_}};
  if (steps_ == 0) {
    return json;
  }
  const auto skip = static_cast<size_t>(skipFirst_) < steps_ ? static_cast<size_t>(skipFirst_) : 0;
  json["measured_steps"] = steps_ - skip;
  json["loss_first"] = orNull(firstLoss_);
  json["loss_last"] = orNull(lastLoss_);
  json["bytes_source"] = bytesSource_;
  for (size_t i = 0; i < std::size(kFields); ++i) {
    std::vector<double> values;
    std::copy_if(values_[i].begin() + static_cast<std::ptrdiff_t>(skip), values_[i].end(), std::back_inserter(values),
                 [](double value) { return !std::isnan(value); });
    values = sorted(std::move(values));
    const char* const name = kFields[i].name;
    json["median"][name] = values.empty() ? nlohmann::json(nullptr) : nlohmann::json(percentile(values, 50));
    json["p99"][name] = values.empty() ? nlohmann::json(nullptr) : nlohmann::json(percentile(values, 99));
  }
  return json;
}

}  // namespace gloo_bypass::trainer
