// ddp_train: see README.md in this folder.
#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "trainer/blas.h"
#include "trainer/error.h"
#include "trainer/launcher.h"
#include "trainer/options.h"
#include "trainer/rank_environment.h"
#include "trainer/training.h"

namespace gloo_bypass::trainer {
namespace {

std::string oneLine(std::string text) {
  const size_t end = text.find_last_not_of(" \n");
  text.resize(end == std::string::npos ? 0 : end + 1);
  for (char& c : text) {
    c = c == '\n' ? ' ' : c;
  }
  return text;
}

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
  int code = kRunFailed;
  keepFreedMemory();
  try {
    train(options, environment);
    return 0;
  } catch (const TrainerError& error) {
    fmt::print(stderr, "ddp_train: {}{}\n", who, oneLine(error.what()));
    code = error.code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "ddp_train: {}{}\n", who, describe(error));
  }
  // Worker threads may hang on a lost peer until their timeout: end without waiting for them.
  std::fflush(nullptr);
  ::_exit(code);
}

int run(int argc, char** argv) {
  const auto parsed = parseOptions(argc, argv);
  if (parsed.exitCode) {
    return *parsed.exitCode;
  }
  if (parsed.options.model == ModelKind::kDistilGpt2) { // not worth a second start for the tiny one
    restartWithBetterBlas(argv);
  }
  ::signal(SIGXFSZ, SIG_IGN); // a file-size limit is an error of write, as a full disk is
  ::signal(SIGPIPE, SIG_IGN);
  try {
    if (parsed.options.spawn > 0) {
      checkInput(parsed.options);
      return launchRanks(childArguments(argc, argv), parsed.options.spawn);
    }
    return runRank(parsed.options, readRankEnvironment([](const char* name) { return std::getenv(name); }));
  } catch (const std::exception& error) {
    fmt::print(stderr, "ddp_train: {}\n", describe(error));
    const auto* known = dynamic_cast<const TrainerError*>(&error);
    return known != nullptr ? known->code() : kRunFailed;
  }
}

} // namespace
} // namespace gloo_bypass::trainer

int main(int argc, char** argv) { return gloo_bypass::trainer::run(argc, argv); }
