#include "trainer/metrics/run_log.h"

#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "tools/common/machine.h"
#include "tools/common/version.h"

namespace gloo_bypass::trainer {
namespace {

// Empty: this rank writes none.
std::string metricsPathOf(std::string path, int rank) {
  constexpr std::string_view kPlaceholder = "{rank}";
  const size_t at = path.find(kPlaceholder);
  if (at != std::string::npos) {
    return path.replace(at, kPlaceholder.size(), std::to_string(rank));
  }
  return rank == 0 ? path : std::string();
}

void printSteps(const nlohmann::json& record) {
  const auto& median = record["median"];
  fmt::print(
      "{} steps over {}, {} ranks: loss {:.4f} to {:.4f}, t_step {:.3f} s, t_ar {:.3f} s ({:.3f} s exposed), "
      "{:.0f} tokens/s (medians); sha256 {}\n",
      record["steps"].get<int64_t>(), record["transport"].get<std::string>(), record["world_size"].get<int>(),
      record["loss_first"].get<double>(), record["loss_last"].get<double>(), median["t_step_s"].get<double>(),
      median["t_ar_s"].get<double>(), median["t_ar_exposed_s"].get<double>(), median["tokens_per_s"].get<double>(),
      record["sha256"].get<std::string>());
}

void printEvaluation(const nlohmann::json& record) {
  fmt::print("on {} samples not trained on: loss {:.4f}, perplexity {:.2f}\n", record["eval_samples"].get<int64_t>(),
             record["eval_loss"].get<double>(), record["eval_perplexity"].get<double>());
}

}  // namespace

RunLog::RunLog(const Options& options, int rank) : options_(options), rank_(rank), summary_(options.skipFirst) {}

void RunLog::open(bool continues, std::optional<int64_t> generation, nlohmann::json common) {
  generation_ = generation;
  common_ = std::move(common);
  common_["cpu"] = processorName();
  common_["commit"] = commitName();
  if (const std::string path = metricsPathOf(options_.metricsPath, rank_); !path.empty()) {
    lines_.emplace(path, continues ? LineWriter::Existing::kAppendTo : LineWriter::Existing::kReplace);
  }
}

void RunLog::write(const char* event, nlohmann::json record) {
  if (!lines_) {
    return;
  }
  record["event"] = event;
  if (generation_) {
    record["generation"] = *generation_;
  }
  lines_->writeLine(record.dump());
}

void RunLog::writeStart(const nlohmann::json& fields) {
  nlohmann::json record = common_;
  record["cores"] = std::thread::hardware_concurrency();
  record.update(fields);
  write("start", std::move(record));
}

void RunLog::writeStep(const StepMetrics& metrics) {
  summary_.add(metrics);
  write("step", toJson(metrics));
  if (progress_) {
    progress_->show(metrics);
  }
}

void RunLog::writeEvaluation(int64_t step, const nlohmann::json& result) {
  evaluated_ = result;
  nlohmann::json record = result;
  record["step"] = step;
  write("evaluation", std::move(record));
}

void RunLog::writeSummary(const nlohmann::json& fields) {
  nlohmann::json record = summary_.toJson();
  record.update(common_);
  record.update(fields);
  record.update(evaluated_);
  write("summary", record);
  if (lines_) {
    lines_->close();
  }
  if (rank_ != 0 || options_.metricsPath == "-") {
    return;
  }
  if (record["steps"] > 0) {
    printSteps(record);
  }
  if (!evaluated_.empty()) {
    printEvaluation(record);
  }
}

void RunLog::beginProgress(int64_t firstStep, int64_t lastStep) {
  progress_.emplace(options_.progress && rank_ == 0, firstStep, lastStep);
}

}  // namespace gloo_bypass::trainer
