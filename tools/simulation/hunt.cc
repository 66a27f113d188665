// hunt: random worlds in virtual time, and what they break. See README.md of this folder.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "tools/common/error.h"
#include "tools/common/run_program.h"
#include "tools/simulation/hunt_options.h"
#include "tools/simulation/stop_signals.h"
#include "tools/simulation/worlds/generator.h"

namespace gloo_bypass::sim {
namespace {

void printTotals(const Campaign& campaign, double seconds, std::size_t failures) {
  fmt::print(
      "{} worlds in {:.1f} s ({:.2f} ms each): {} messages, {} operations of ranks, {} events; {} connections ended "
      "early, for a reason; {} changes of keys; slowest recovery {:.0f} % of its bound (seed {}); at most {} kB a "
      "session; {} failures\n",
      campaign.seeds, seconds, 1e3 * seconds / static_cast<double>(std::max<std::uint64_t>(1, campaign.seeds)),
      campaign.messages, campaign.operations, campaign.events, campaign.ended, campaign.keyChanges,
      100 * campaign.recoveryShare, campaign.slowestSeed, campaign.memoryBytes / 1000, failures);
  if (std::fflush(stdout) != 0) throw ProgramError("standard output could not be written");
}

// "hunt: seed N ended the process: hunt --seed N repeats it\n", for a signal's handler.
std::array<char, 128> crashLine{};
volatile std::sig_atomic_t crashLineLength = 0;

void rememberSeed(std::uint64_t seed) {
  crashLineLength = 0;  // a signal meanwhile says nothing rather than half a line
  const auto end = fmt::format_to_n(crashLine.data(), crashLine.size(),
                                    "hunt: seed {} ended the process: hunt --seed {} repeats it\n", seed, seed);
  crashLineLength = static_cast<std::sig_atomic_t>(std::min(end.size, crashLine.size()));
}

// A check that fails, or a fault of memory, ends the process in the middle of a world.
void nameSeedOfACrash() {
  struct sigaction action{};
  action.sa_handler = [](int number) {
    (void)!::write(STDERR_FILENO, crashLine.data(), static_cast<std::size_t>(crashLineLength));
    (void)std::raise(number);
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) {
    struct sigaction before{};
    if (::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_DFL) {  // else a sanitizer's
      (void)::sigaction(number, &action, nullptr);
    }
  }
}

Script readScript(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  auto script = parseScript(text);
  if (!file.good() && !file.eof()) throw UsageError(fmt::format("--script: cannot read {}", path));
  if (!script) throw UsageError(fmt::format("--script {}: {}", path, script.error().message));
  return std::move(script).value();
}

// One world; a failure of a seed is made small, one of a script is left as it is.
int runOne(const HuntOptions& options) {
  const Script script =
      options.seed ? generateScript(*options.seed, options.campaign.plant) : readScript(options.scriptPath);
  if (options.show) fmt::print("{}", textOf(script));
  Campaign campaign;
  const auto began = std::chrono::steady_clock::now();
  const WorldResult result = runWorld(script);
  campaign.add(script.seed, result);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  for (const Finding& finding : result.findings) {
    fmt::print("{}: {}: {}\n", nameOf(finding.judgement), finding.promise, finding.details);
  }
  if (options.seed && !result.findings.empty()) {
    const Finding& finding = result.findings.front();
    fmt::print("{}",
               describe(Failure{*options.seed, finding, shrink(script, finding, options.campaign.mostTries, goOn)}));
  }
  printTotals(campaign, seconds, result.findings.empty() ? 0 : 1);
  return result.findings.empty() ? 0 : kExitFailure;
}

int hunt(const HuntOptions& options) {
  handleStopSignals();
  if (options.seed || !options.scriptPath.empty()) return runOne(options);
  const auto began = std::chrono::steady_clock::now();
  const CampaignWatch watch{.goOn = goOn, .onSeed = rememberSeed, .onFailure = [](const Failure& failure) {
                              // At once: hours may follow. It is in the exit status where nobody reads any more.
                              (void)std::fputs((describe(failure) + "\n").c_str(), stdout);
                              (void)std::fflush(stdout);
                            }};
  nameSeedOfACrash();
  const Campaign campaign = runCampaign(options.campaign, watch);
  printTotals(campaign, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(),
              campaign.failures.size());
  if (!campaign.failures.empty()) return kExitFailure;
  return goOn() ? 0 : kInterrupted;
}

}  // namespace
}  // namespace gloo_bypass::sim

int main(int argc, char** argv) {
  namespace sim = gloo_bypass::sim;
  return gloo_bypass::runProgram("hunt", sim::parseHuntOptions, sim::hunt, argc, argv);
}
