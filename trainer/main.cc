// ddp_train: see README.md in this folder.
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "tools/common/result_file.h"
#include "tools/common/run_program.h"
#include "trainer/check_input.h"
#include "trainer/config/options.h"
#include "trainer/distributed/elastic/elastic_launcher.h"
#include "trainer/distributed/elastic/elastic_run.h"
#include "trainer/distributed/launcher.h"
#include "trainer/distributed/rank_environment.h"
#include "trainer/files/temporary_path.h"
#include "trainer/model/blas.h"
#include "trainer/training.h"

namespace gloo_bypass::trainer {
namespace {

// Without the backtrace that what() of libtorch's errors has.
std::string describe(const std::exception& error) {
  const auto* torchError = dynamic_cast<const c10::Error*>(&error);
  return oneLine(torchError != nullptr ? torchError->what_without_backtrace() : error.what());
}

// Every step allocates and frees the same hundreds of megabytes. By default glibc gives large blocks back to the
// kernel at once, and faulting them in again took 0.4 s of a 2.5 s step; keep them instead.
void keepFreedMemory() {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
}

int runRank(const Options& options, const RankEnvironment& environment) {
  const std::string who = environment.launched ? fmt::format("rank {}: ", environment.rank) : "";
  int status = kExitFailure;
  keepFreedMemory();
  removeTemporariesOnSignals();
  try {
    prepareRank(options, environment);
    train(options, environment);
    return 0;
  } catch (const std::exception& error) {
    complain("ddp_train", who + describe(error));
    status = exitStatusOf(error);
    if (options.elastic.isUsed() && dynamic_cast<const LastingError*>(&error) != nullptr) {
      tellLastingFault(who + describe(error));
    }
  }
  // Worker threads may hang on a lost peer until their timeout: end without waiting for them.
  std::fflush(nullptr);
  ::_exit(status);
}

int spawnRanks(const Options& options, int argc, char** argv) {
  checkInput(options);
  const auto arguments = childArguments(argc, argv);
  const RanksEnd end =
      options.elastic.isUsed() ? launchElastic(arguments, options) : launchRanks(arguments, options.spawn);
  if (end.exitStatus != 0) {
    throw ProgramError(end.message, end.exitStatus);
  }
  return 0;
}

int run(const Options& options, int argc, char** argv) {
  if (options.model != "tiny") {  // not worth a second start for the tiny one
    restartWithBetterBlas(argv);
  }
  makeWriteSignalsErrors();
  try {
    if (options.spawn > 0) {
      return spawnRanks(options, argc, argv);
    }
    const auto environment = readRankEnvironment([](const char* name) { return std::getenv(name); });
    return options.elastic.isUsed() && !environment.launched ? spawnRanks(options, argc, argv)
                                                             : runRank(options, environment);
  } catch (const c10::Error& error) {
    throw ProgramError(describe(error));
  }
}

}  // namespace
}  // namespace gloo_bypass::trainer

int main(int argc, char** argv) {
  namespace trainer = gloo_bypass::trainer;
  return gloo_bypass::runProgram(
      "ddp_train", trainer::parseOptions,
      [&](const trainer::Options& options) { return trainer::run(options, argc, argv); }, argc, argv);
}
