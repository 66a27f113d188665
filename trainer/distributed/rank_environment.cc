#include "trainer/distributed/rank_environment.h"

#include <charconv>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "tools/common/error.h"

namespace gloo_bypass::trainer {
namespace {

using Lookup = std::function<const char*(const char*)>;
constexpr int kMaxRanks = 65536;

std::optional<int> number(const Lookup& get, const char* variable, int low, int high) {
  const char* text = get(variable);
  if (text == nullptr) {
    return std::nullopt;
  }
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    throw UsageError(fmt::format("{}={}: must be a whole number from {} to {}", variable, text, low, high));
  }
  return value;
}

struct Source {
  const char* rank;
  const char* size;
  const char* localSize;  // ranks on this machine, for a default MASTER_ADDR
};
constexpr Source kSources[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_TASKS_PER_NODE"},
};

}  // namespace

RankEnvironment readRankEnvironment(const Lookup& get) {
  RankEnvironment environment;
  const Source* source = nullptr;
  for (const Source& candidate : kSources) {
    // Slurm sets its variables for the batch script as well; both must be there to count.
    const bool hasRank = get(candidate.rank) != nullptr, hasSize = get(candidate.size) != nullptr;
    if (&candidate == kSources && hasRank != hasSize) {
      throw UsageError("RANK and WORLD_SIZE must be set together (or neither, for a single rank or --spawn N)");
    }
    if (hasRank && hasSize) {
      source = &candidate;
      break;
    }
  }
  if (source == nullptr) {
    return environment;
  }
  environment.launched = true;
  environment.worldSize = *number(get, source->size, 1, kMaxRanks);
  environment.rank = *number(get, source->rank, 0, kMaxRanks);
  if (environment.rank >= environment.worldSize) {
    throw UsageError(fmt::format("{}={} with {}={}: ranks count from 0 to {}", source->rank, environment.rank,
                                 source->size, environment.worldSize, environment.worldSize - 1));
  }
  if (const char* address = get("MASTER_ADDR"); address != nullptr && *address != '\0') {
    environment.masterAddress = address;
  } else {
    const char* local = get(source->localSize);
    if (environment.worldSize > 1 && (local == nullptr || std::to_string(environment.worldSize) != local)) {
      throw UsageError(
          fmt::format("MASTER_ADDR is not set: set it to the machine of rank 0, as all {} ranks can reach it",
                      environment.worldSize));
    }
  }
  if (const auto port = number(get, "MASTER_PORT", 1, 65535)) {
    environment.masterPort = static_cast<uint16_t>(*port);
  }
  const char* agent = get("TORCHELASTIC_USE_AGENT_STORE");
  environment.agentStore = agent != nullptr && std::strcmp(agent, "True") == 0;
  if (environment.agentStore) {
    const char* attempt = get("TORCHELASTIC_RESTART_COUNT");
    environment.storePrefix = fmt::format("/worker/attempt_{}", attempt != nullptr ? attempt : "0");
  }
  return environment;
}

}  // namespace gloo_bypass::trainer
