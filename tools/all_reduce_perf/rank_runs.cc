#include "tools/all_reduce_perf/rank_runs.h"

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gloo/rendezvous/file_store.h>

#include "tools/all_reduce_perf/key_value_store.h"
#include "tools/common/error.h"
#include "tools/common/rank_processes.h"
#include "transport/base/whole_number.h"
#include "transport/process/json_text.h"

namespace gloo_bypass {
namespace {

std::vector<char> bytesOf(const std::string& text) { return {text.begin(), text.end()}; }

// In a child. The launcher prints what went wrong, so that N ranks do not say the same thing N times.
int runSpawnedRank(const RunOptions& options, const RankBody& body, int rank, std::uint16_t port) {
  std::string failure;
  try {
    const auto store = std::make_shared<KeyValueClient>("127.0.0.1", port, options.timeout);
    try {
      const nlohmann::json report = body(rank, options.ranks, store);
      if (rank == 0) store->set("report", bytesOf(jsonText(report)));
      return 0;
    } catch (const std::exception& error) {
      failure = error.what();
      store->set(fmt::format("failure/{}", rank), bytesOf(failure));
    }
  } catch (const std::exception& error) {
    complain(options.program, fmt::format("rank {}: {}", rank, failure.empty() ? error.what() : failure));
  }
  return kExitFailure;
}

// Why a run failed. What the ranks themselves said comes first, one line for each different text; the launcher's own
// finding follows where a rank could not say anything (it was killed).
[[noreturn]] void throwFailure(const KeyValueServer& server, const RunOptions& options, const RanksEnd& end) {
  std::map<std::string, std::string> lines;  // text without the rank's number -> text
  for (int rank = 0; rank < options.ranks; ++rank) {
    const auto said = server.value(fmt::format("failure/{}", rank));
    if (!said) continue;
    const std::string text(said->begin(), said->end());
    const std::string prefix = fmt::format("rank {}, ", rank);
    lines.emplace(text.rfind(prefix, 0) == 0 ? text.substr(prefix.size()) : text, text);
  }
  const bool firstSpoke = end.rank >= 0 && server.value(fmt::format("failure/{}", end.rank)).has_value();
  std::vector<std::string> messages;
  for (const auto& [bare, text] : lines) messages.push_back(text);
  if (!firstSpoke || messages.empty()) messages.push_back(end.message);
  for (std::size_t i = 0; i + 1 < messages.size(); ++i) complain(options.program, messages[i]);
  throw ProgramError(messages.back(), end.rank < 0 ? end.exitStatus : kExitFailure);
}

// A whole number from the environment.
int integerFromEnvironment(const char* name, int low, int high) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0')
    throw UsageError(
        fmt::format("{} is not set; say --ranks N to start the ranks here, or set RANK, WORLD_SIZE, "
                    "MASTER_ADDR and MASTER_PORT",
                    name));
  const auto value = wholeNumber(text, low, high);
  if (!value) throw UsageError(fmt::format("{}={} must be a whole number from {} to {}", name, text, low, high));
  return *value;
}

}  // namespace

nlohmann::json runRanks(const RunOptions& options, const RankBody& body) {
  KeyValueServer server(Reach::kThisMachine, 0);
  RankProcesses ranks(options.ranks, [&](int rank) { return runSpawnedRank(options, body, rank, server.port()); });
  server.start();
  const RanksEnd end = ranks.supervise({.limit = options.deadline, .limitName = "--deadline"});
  if (end.exitStatus != 0) throwFailure(server, options, end);
  const auto report = server.value("report");
  if (!report) throw ProgramError("rank 0 ended without a report");
  return nlohmann::json::parse(report->begin(), report->end());
}

std::optional<nlohmann::json> runGivenRank(const RunOptions& options, const RankBody& body) {
  const int size = integerFromEnvironment("WORLD_SIZE", 1, 256);
  const int rank = integerFromEnvironment("RANK", 0, size - 1);
  std::unique_ptr<KeyValueServer> server;
  gloo_version::StorePointer store;
  if (!options.storeDirectory.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.storeDirectory, error);
    if (!std::filesystem::is_directory(options.storeDirectory, error))
      throw UsageError(fmt::format("--store-dir: {} cannot be made a folder", options.storeDirectory));
    store = std::make_shared<::gloo::rendezvous::FileStore>(options.storeDirectory);
  } else {
    const auto port = static_cast<std::uint16_t>(integerFromEnvironment("MASTER_PORT", 1, 65535));
    const char* address = std::getenv("MASTER_ADDR");
    if (address == nullptr || *address == '\0') throw UsageError("MASTER_ADDR is not set; it names the host of rank 0");
    if (rank == 0) {
      server = std::make_unique<KeyValueServer>(Reach::kNetwork, port);
      server->start();
    }
    store = std::make_shared<KeyValueClient>(address, port, options.timeout);
  }
  nlohmann::json report = body(rank, size, store);
  store.reset();
  // The others may still be reading the last key.
  if (server != nullptr) (void)server->waitForClients(options.timeout);
  if (rank != 0) return std::nullopt;
  return report;
}

}  // namespace gloo_bypass
