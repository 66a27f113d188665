#include "trainer/distributed/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "tools/common/free_port.h"
#include "tools/common/program_path.h"

namespace gloo_bypass::trainer {
namespace {

constexpr int kCannotExecute = 127;  // a shell's

void set(const char* variable, const std::string& value) { ::setenv(variable, value.c_str(), 1); }

// In a child, whose RANK is set. Returns only where the program cannot be run.
void executeAsRank(const std::vector<std::string>& arguments, int rank, int ranks, uint16_t port) {
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(ranks));
  set("LOCAL_WORLD_SIZE", std::to_string(ranks));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(port));
  set("DDP_TRAIN_PORT_DRAWN", "1");
  set("TORCHELASTIC_USE_AGENT_STORE", "False");  // a --spawn inside torchrun has its own store
  const auto cores = std::max(1u, std::thread::hardware_concurrency());
  const auto threads = std::max(1u, cores / static_cast<unsigned>(ranks));
  ::setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), /*overwrite=*/0);
  std::vector<char*> argv;
  for (const auto& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
}

}  // namespace

RanksEnd launchRanks(const std::vector<std::string>& arguments, int ranks, const RankTimes& times) {
  // Another program can still take the port before rank 0 does; rank 0 then says so and ends.
  const uint16_t port = freePort();
  RankProcesses processes(ranks, [&](int rank) -> int {
    executeAsRank(arguments, rank, ranks, port);
    const std::string_view complaint = "ddp_train: cannot execute the program anew\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, complaint.data(), complaint.size());
    ::_exit(kCannotExecute);  // what this process would do at its end is the parent's
  });
  return processes.supervise(times);
}

std::vector<std::string> childArguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments{programPath()};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument(argv[i]);
    if (argument == "--spawn") {
      ++i;
    } else if (!argument.starts_with("--spawn=")) {
      arguments.emplace_back(argument);
    }
  }
  return arguments;
}

}  // namespace gloo_bypass::trainer
