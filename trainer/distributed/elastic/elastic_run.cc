#include "trainer/distributed/elastic/elastic_run.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/files/safetensors.h"

namespace gloo_bypass::trainer {
namespace {

bool isWhole(const std::string& path) {
  try {
    const SafetensorsFile file(path);
    return true;
  } catch (const ProgramError&) {
    return false;
  }
}

// Only rank 0 reads; the others learn the step from it.
std::string chooseStart(const std::string& checkpointPath, const std::string& resumePath, bool reads) {
  std::string fault;
  if (!std::filesystem::exists(checkpointPath) && std::filesystem::exists(previousOf(checkpointPath))) {
    fault = checkpointPath + " is not there";
  }
  for (const std::string& path : {checkpointPath, previousOf(checkpointPath)}) {
    if (!std::filesystem::exists(path)) {
      continue;
    }
    try {
      const SafetensorsFile whole(path);
      if (!fault.empty() && reads) {
        complain("ddp_train", fmt::format("{}; continuing from {}", fault, path));
      }
      return path;
    } catch (const ProgramError& error) {
      fault += (fault.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  if (!fault.empty() && reads) {
    throw UsageError(fmt::format("{}, and no checkpoint is left: remove {} and {} to start anew", fault, checkpointPath,
                                 previousOf(checkpointPath)));
  }
  return resumePath;
}

constexpr off_t kFaultAt = 4096;  // in the file in memory, behind the progress
constexpr size_t kMostFaultBytes =
    2048;  // further ones are left out; the rest is 0, so that of two ranks' one is whole

int64_t linesIn(const std::string& path) {
  constexpr size_t kMaxBytes = 64 << 20;  // of a million restarts
  const std::string text = std::filesystem::exists(path) ? readFile(path, kMaxBytes) : std::string();
  return std::count(text.begin(), text.end(), '\n');
}

int64_t stepsIn(const std::string& checkpointPath) {
  return std::atoll(SafetensorsFile(checkpointPath).metadata("step").c_str());
}

const char* valueOf(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0' ? text : nullptr;
}

}  // namespace

std::string previousOf(const std::string& checkpointPath) { return checkpointPath + ".previous"; }

double monotonicSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

ElasticProgress readProgress(int descriptor) {
  ElasticProgress progress;
  return ::pread(descriptor, &progress, sizeof progress, 0) == sizeof progress ? progress : ElasticProgress{};
}

void tellLastingFault(const std::string& reason) noexcept {
  if (const char* descriptor = valueOf("DDP_TRAIN_PROGRESS_FD")) {
    std::array<char, kMostFaultBytes> text{};
    reason.copy(text.data(), text.size());
    // Where it cannot be written, the launcher restarts in vain and says so.
    [[maybe_unused]] const auto written = ::pwrite(std::atoi(descriptor), text.data(), text.size(), kFaultAt);
  }
}

std::string readLastingFault(int descriptor) {
  std::string reason(kMostFaultBytes, '\0');
  const ssize_t bytes = ::pread(descriptor, reason.data(), reason.size(), kFaultAt);
  return reason.substr(0, std::min(reason.find('\0'), bytes > 0 ? static_cast<size_t>(bytes) : 0));
}

ElasticRun::ElasticRun(const ElasticOptions& options, const std::string& checkpointPath, const std::string& resumePath,
                       int rank, int worldSize)
    : elastic_(options.isUsed()),
      checkpointPath_(checkpointPath),
      samplesPath_(options.samplesPath),
      startingPoint_(resumePath),
      rank_(rank),
      worldSize_(worldSize) {
  if (elastic_) {
    if (worldSize < options.minRanks || worldSize > options.maxRanks) {
      throw UsageError(fmt::format("{} ranks: outside of --elastic {}", worldSize, options.range));
    }
    startingPoint_ = chooseStart(checkpointPath, resumePath, rank == 0);
    if (const char* text = valueOf("DDP_TRAIN_RESTART")) {
      before_ = nlohmann::json::parse(text, nullptr, false);
    }
    if (const char* descriptor = valueOf("DDP_TRAIN_PROGRESS_FD"); descriptor != nullptr && rank == 0) {
      progress_ = std::atoi(descriptor);
    }
  }
}

void ElasticRun::openLog() {
  if (!samplesPath_.empty()) {
    samples_.emplace(samplesPath_,
                     rank_ == 0 && !continues() ? LineWriter::Existing::kReplace : LineWriter::Existing::kAppendTo);
  }
}

void ElasticRun::countStart() {
  if (!elastic_) {
    return;
  }
  const std::string path = checkpointPath_ + ".starts";
  generation_ = continues() ? linesIn(path) : 0;
  LineWriter starts(path, generation_ > 0 ? LineWriter::Existing::kAppendTo : LineWriter::Existing::kReplace);
  starts.writeLine(nlohmann::json{{"generation", generation_}, {"world_size", worldSize_}}.dump());
  starts.close();
}

void ElasticRun::follow(int64_t step, int64_t generation) {
  const bool hasCheckpoint =
      startingPoint_ == checkpointPath_ || startingPoint_ == previousOf(checkpointPath_);  // not --resume's
  if (const int64_t own = elastic_ && hasCheckpoint ? stepsIn(startingPoint_) : 0; own > step) {
    throw UsageError(fmt::format(
        "{} holds step {} here, but rank 0 starts from step {}: --checkpoint must be a file that all machines share",
        startingPoint_, own, step));
  }
  generation_ = generation;
}

std::optional<nlohmann::json> ElasticRun::restartRecord(int64_t step) const {
  if (generation_ == 0) {
    return std::nullopt;
  }
  nlohmann::json record{{"event", "restart"},     {"generation", generation_}, {"world_size", worldSize_},
                        {"step", step},           {"reason", nullptr},         {"lost_seconds", nullptr},
                        {"end_seconds", nullptr}, {"start_seconds", nullptr},  {"repeated_steps", nullptr}};
  if (before_.is_object()) {
    const auto now = monotonicSeconds(), last = before_.value("last_step_done", now),
               ended = before_.value("ended", now);
    record["reason"] = before_.value("reason", "");
    record["lost_seconds"] = now - last;
    record["end_seconds"] = ended - last;
    record["start_seconds"] = now - ended;
    record["repeated_steps"] = before_.value("step", step) - step;
  }
  return record;
}

void ElasticRun::logSamples(int64_t step, int64_t epoch, const std::function<std::vector<int64_t>()>& samples) {
  if (samples_) {
    samples_->writeLine(nlohmann::json{
        {"generation", generation_},
        {"step", step},
        {"epoch", epoch},
        {"rank", rank_},
        {"world_size", worldSize_},
        {"samples",
         samples()}}.dump());
  }
}

void ElasticRun::stepDone(int64_t step) const {
  if (progress_ >= 0) {
    const ElasticProgress progress{step, monotonicSeconds()};
    if (::pwrite(progress_, &progress, sizeof progress, 0) != sizeof progress) {
      throw ProgramError(fmt::format("cannot tell the launcher of step {}: {}", step, std::strerror(errno)));
    }
  }
}

void ElasticRun::keepPrevious() const {
  if (!elastic_ || rank_ != 0 || !isWhole(checkpointPath_)) {
    return;  // there is none; or it is damaged, and must not take the place of the one that this run began with
  }
  // A second name for the same file, put in place by rename: at every moment both names are a whole checkpoint's.
  TemporaryPath link(temporaryNameOf(previousOf(checkpointPath_)));
  ::unlink(link.path().c_str());
  const bool linked = ::link(checkpointPath_.c_str(), link.path().c_str()) == 0;
  if (!linked && (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS)) {
    // A file system without hard links, or another user's file: for a moment there is the one before only.
    if (::rename(checkpointPath_.c_str(), previousOf(checkpointPath_).c_str()) == 0) {
      return;
    }
  }
  if (!linked || !link.renameTo(previousOf(checkpointPath_))) {
    throw LastingError(
        fmt::format("cannot keep {} as {}: {}", checkpointPath_, previousOf(checkpointPath_), std::strerror(errno)));
  }
}

}  // namespace gloo_bypass::trainer
