#include "trainer/distributed/elastic/elastic_launcher.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/common/error.h"
#include "trainer/distributed/elastic/elastic_run.h"
#include "trainer/distributed/launcher.h"
#include "trainer/files/safetensors.h"
#include "trainer/files/temporary_path.h"
#include "transport/base/file_descriptor.h"

namespace gloo_bypass::trainer {
namespace {

constexpr int kCannotExecute = 127;

// The places that ranks run in; a failed one rests before it is used again.
class Places {
 public:
  explicit Places(int count) : healthyAt_(static_cast<size_t>(count), -std::numeric_limits<double>::infinity()) {}

  // Those that are usable now, in order: the rank of each is its index.
  std::vector<size_t> healthy() const {
    const double now = monotonicSeconds();
    std::vector<size_t> places;
    for (size_t i = 0; i < healthyAt_.size(); ++i) {
      if (healthyAt_[i] <= now) {
        places.push_back(i);
      }
    }
    return places;
  }
  void rest(size_t place, double seconds) { healthyAt_[place] = monotonicSeconds() + seconds; }

 private:
  std::vector<double> healthyAt_;  // on the monotonic clock
};

std::string checkpointState(const std::string& path) {
  for (const std::string& file : {path, previousOf(path)}) {
    try {
      return fmt::format("{} holds step {}: the same command continues from it", file,
                         SafetensorsFile(file).metadata().at("step"));
    } catch (const std::exception&) {
    }
  }
  return fmt::format("there is no checkpoint at {} yet: the same command starts anew", path);
}

// A restart helps against what happened to a rank, not against what all would meet again.
bool isFinal(const RanksEnd& end) {
  return end.exitStatus == 0 || end.rank < 0 || end.exitStatus == kExitUsage || end.exitStatus == kCannotExecute;
}

}  // namespace

RanksEnd launchElastic(const std::vector<std::string>& arguments, const Options& options, const RankTimes& times) {
  const ElasticOptions& elastic = options.elastic;
  const FileDescriptor progress(::memfd_create("ddp_train progress", 0));  // ranks inherit it
  if (progress.get() < 0) {
    throw ProgramError(fmt::format("cannot make a file in memory: {}", std::strerror(errno)));
  }
  ::setenv("DDP_TRAIN_PROGRESS_FD", std::to_string(progress.get()).c_str(), 1);
  ::unsetenv("DDP_TRAIN_RESTART");
  Places places(elastic.maxRanks);
  // With --spawn below MAX, the other places come into use like those that rest.
  for (int i = options.spawn > 0 ? options.spawn : elastic.maxRanks; i < elastic.maxRanks; ++i) {
    places.rest(static_cast<size_t>(i), elastic.rejoinSeconds);
  }
  std::vector<size_t> used = places.healthy();
  if (options.spawn > 0) {
    used.resize(static_cast<size_t>(options.spawn));
  }
  std::string failures;
  int firstStatus = 0;
  for (int generation = 0;; ++generation) {
    const double begun = monotonicSeconds();
    RanksEnd end = launchRanks(arguments, static_cast<int>(used.size()), times);
    const double ended = monotonicSeconds();
    removeLeftovers(options.checkpointPath);
    removeLeftovers(previousOf(options.checkpointPath));
    if (isFinal(end)) {
      return end;
    }
    if (const std::string fault = readLastingFault(progress.get()); !fault.empty()) {
      end.message +=
          fmt::format("; a restart would meet it again: {}; {}", fault, checkpointState(options.checkpointPath));
      return end;
    }
    firstStatus = firstStatus == 0 ? end.exitStatus : firstStatus;
    for (const int rank : end.lost) {
      places.rest(used[static_cast<size_t>(rank)], elastic.rejoinSeconds);
    }
    failures += fmt::format("{}{} of {}: {}", failures.empty() ? "" : "; ", end.lost.size(), used.size(), end.message);
    used = places.healthy();
    if (static_cast<int>(used.size()) < elastic.minRanks) {
      return {firstStatus,
              end.rank,
              fmt::format("{} ranks are left, --elastic {} needs {}: {}; {}", used.size(), elastic.range,
                          elastic.minRanks, failures, checkpointState(options.checkpointPath)),
              {}};
    }
    if (generation >= elastic.maxRestarts) {
      return {firstStatus,
              end.rank,
              fmt::format("--max-restarts {} are used up: {}; {}", elastic.maxRestarts, failures,
                          checkpointState(options.checkpointPath)),
              {}};
    }
    const ElasticProgress reached = readProgress(progress.get());
    const bool hasSteps = reached.doneSeconds > begun;
    nlohmann::json before{{"generation", generation + 1},
                          {"reason", end.message},
                          {"ended", ended},
                          {"last_step_done", hasSteps ? reached.doneSeconds : begun}};
    if (hasSteps) {
      before["step"] = reached.step;  // else nothing is repeated that was not counted at the restart before
    }
    ::setenv("DDP_TRAIN_RESTART", before.dump().c_str(), 1);
    complain("ddp_train", fmt::format("{}; restart {} of {} with {} ranks", end.message, generation + 1,
                                      elastic.maxRestarts, used.size()));
    std::fflush(stderr);
  }
}

}  // namespace gloo_bypass::trainer
