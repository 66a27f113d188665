#include "trainer/distributed/rendezvous.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <torch/csrc/api/include/torch/version.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "plugin/compatibility/torch/tcp_store.h"
#include "tools/common/error.h"
#include "tools/common/free_port.h"
#include "trainer/config/trajectory.h"

namespace gloo_bypass::trainer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPollInterval{10};
// How long rank 0 keeps serving the store after a disagreement, so that the others read what it was.
constexpr std::chrono::milliseconds kLinger{1000};
// torchrun's agents listen before they start ranks.
constexpr std::chrono::milliseconds kAgentAnswersWithin{10'000};
// From when rank 0 is connected to; it serves from a thread of libtorch's.
constexpr std::chrono::milliseconds kAnswersWithin{10'000};

// In the agent's store each restart has a place of its own, under a number that only this agent counts.
const char* const kRestartsDiffer =
    "; if torchrun has restarted some of them or let some join, set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for it";

const char* const kConfigKey = "ddp_train/config";
const char* const kFaultKey = "ddp_train/fault";
const char* const kArrivedKey = "ddp_train/arrived";
const char* const kEchoKey = "ddp_train/echo";
const char* const kEchoText = "the store and this rank understand each other";

constexpr size_t kMostConfigBytes = 1 << 20;  // ours has about 1 KB; what somebody else has put there is none
constexpr size_t kMostFaultBytes = 4096;      // of a line

// By the launcher (--spawn), not by the user.
bool portIsDrawn() { return std::getenv("DDP_TRAIN_PORT_DRAWN") != nullptr; }
std::string rankKey(int rank) { return fmt::format("ddp_train/rank/{}", rank); }
std::vector<uint8_t> toBytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string toText(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// A port that the launcher drew was free then, and it draws another one for the next start.
ProgramError cannotServe(uint16_t port, const std::string& why) {
  return ProgramError(fmt::format("rank 0 cannot listen on MASTER_PORT={}: {}; choose another port", port, why),
                      portIsDrawn() ? kExitFailure : kExitUsage);
}

// TCPStore says at length what a taken port means; find out first and say it in a line. Without listening, for the
// other ranks are dialling already: a connection that closes again makes libtorch's thread there abort.
void checkPortIsFree(uint16_t port) {
  const FileDescriptor socket = socketOnPort(port, /*reuse=*/true);
  if (socket.get() < 0) {
    throw cannotServe(port, std::strerror(errno));
  }
}

[[noreturn]] void endWithFault(const RankEnvironment& environment, const std::string& fault) {
  if (environment.rank == 0 && !environment.agentStore) {
    std::this_thread::sleep_for(kLinger);
  }
  throw UsageError(fault);
}

[[noreturn]] void reportFault(c10d::Store& store, const RankEnvironment& environment, const std::string& fault) {
  store.set(kFaultKey, toBytes(fault));
  endWithFault(environment, fault);
}

std::string missingRanks(c10d::Store& store, int worldSize) {
  constexpr int kMaxNamed = 8;
  std::string missing;
  int count = 0;
  for (int rank = 0; rank < worldSize; ++rank) {
    if (store.add(rankKey(rank), 0) == 0 && ++count <= kMaxNamed) {
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
  }
  return count > kMaxNamed ? missing + ", ..." : missing;
}

std::string firstLine(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

using StorePointer = c10::intrusive_ptr<c10d::Store>;

// Who listens at that port may be another program, or stopped: it never answers, and then libtorch waits without a
// bound. So a thread asks, which is left behind in that case with what `ask` holds: the process is about to end. Throws
// what `ask` does, or that there was no answer, after `who`.
template <typename Ask>
std::invoke_result_t<Ask> answerWithin(std::chrono::milliseconds limit, Ask ask, const std::string& who = "") {
  auto asked = std::make_shared<std::packaged_task<std::invoke_result_t<Ask>()>>(std::move(ask));
  auto answered = asked->get_future();
  std::thread([asked] { (*asked)(); }).detach();
  if (answered.wait_for(limit) != std::future_status::ready) {
    throw ProgramError(fmt::format("{}no answer within {:.0f} s", who, std::chrono::duration<double>(limit).count()));
  }
  return answered.get();
}

// Another PyTorch's store may take the question for another one, and what it then says for an answer: only the text
// itself will do. Throws what the store does, or that there was no answer, or another one.
StorePointer connectWithin(std::chrono::milliseconds limit, const std::string& address,
                           const c10d::TCPStoreOptions& options) {
  return answerWithin(limit, [address, options] {
    StorePointer store = c10::make_intrusive<c10d::TCPStore>(address, options);
    if (toText(store->compareSet(kEchoKey, {}, toBytes(kEchoText))) != kEchoText) {
      throw ProgramError("it answers something else than what was asked");
    }
    return store;
  });
}

// The protocol of stores differs between PyTorch's releases: an agent of another one closes the connection, waits for
// more, or misunderstands.
StorePointer connectToAgent(const RankEnvironment& environment, const c10d::TCPStoreOptions& options) {
  std::string reason;
  try {
    return connectWithin(std::min(kAgentAnswersWithin, options.timeout), environment.masterAddress, options);
  } catch (const std::exception& error) {
    reason = firstLine(error);
  }
  throw ProgramError(fmt::format(
      "cannot use the store of torchrun's agent at MASTER_ADDR={} MASTER_PORT={}: {}; if torchrun is of another "
      "PyTorch than {}, start it with --rdzv_backend c10d and TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 set, and rank 0 "
      "serves the store instead",
      environment.masterAddress, environment.masterPort, reason, TORCH_VERSION));
}

}  // namespace

c10::intrusive_ptr<c10d::Store> connectStore(const RankEnvironment& environment, std::chrono::milliseconds timeout) {
  if (!environment.launched) {
    return c10::make_intrusive<c10d::HashStore>();
  }
  const bool serves = environment.rank == 0 && !environment.agentStore;
  if (serves) {
    checkPortIsFree(environment.masterPort);
  }
  c10d::TCPStoreOptions options;
  options.port = environment.masterPort;
  options.isServer = serves;
  options.waitWorkers = false;
  options.timeout = timeout;
  torch_version::serveWithoutLibuv(options);
  if (environment.agentStore) {
    return c10::make_intrusive<c10d::PrefixStore>(environment.storePrefix, connectToAgent(environment, options));
  }
  try {
    // Connecting has the timeout for itself.
    return connectWithin(timeout + std::min(kAnswersWithin, timeout), environment.masterAddress, options);
  } catch (const std::exception& error) {
    if (serves) {
      throw cannotServe(environment.masterPort, firstLine(error));
    }
    throw ProgramError(fmt::format("rank {} cannot reach rank 0 at MASTER_ADDR={} MASTER_PORT={} within {:.0f} s: {}",
                                   environment.rank, environment.masterAddress, environment.masterPort,
                                   std::chrono::duration<double>(timeout).count(), firstLine(error)));
  }
}

namespace {

void meet(c10d::Store& store, const RankEnvironment& environment, const nlohmann::json& trajectory,
          std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  nlohmann::json mine = trajectory;
  mine["world_size"] = environment.worldSize;
  // The first to come says what the run is; nobody else's word counts, so ranks cannot disagree on who is wrong.
  const std::string first = toText(store.compareSet(kConfigKey, {}, toBytes(mine.dump())));
  const auto winning = nlohmann::json::parse(first.substr(0, kMostConfigBytes), nullptr, /*allow_exceptions=*/false);
  if (const auto difference = firstDifference(mine, winning, "on the rank that came first"); !difference.empty()) {
    reportFault(store, environment, fmt::format("rank {} does not fit the run: {}", environment.rank, difference));
  }
  if (store.add(rankKey(environment.rank), 1) > 1) {
    reportFault(store, environment, fmt::format("two processes run as rank {}", environment.rank));
  }
  store.add(kArrivedKey, 1);
  for (;;) {
    if (store.check({kFaultKey})) {
      endWithFault(environment, toText(store.get(kFaultKey)).substr(0, kMostFaultBytes));
    }
    const int64_t arrived = store.add(kArrivedKey, 0);
    if (arrived >= environment.worldSize) {
      return;
    }
    if (Clock::now() >= deadline) {
      throw ProgramError(fmt::format("only {} of {} ranks came within {:.0f} s; missing: {}{}", arrived,
                                     environment.worldSize, std::chrono::duration<double>(timeout).count(),
                                     missingRanks(store, environment.worldSize),
                                     environment.agentStore ? kRestartsDiffer : ""));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace

void meetRanks(const StorePointer& store, const RankEnvironment& environment, const nlohmann::json& trajectory,
               std::chrono::milliseconds timeout) {
  if (!environment.launched) {
    return;
  }
  // Rank 0 may be stopped meanwhile, or its host gone.
  answerWithin(
      timeout + kLinger + std::min(kAnswersWithin, timeout),
      [store, environment, trajectory, timeout] { meet(*store, environment, trajectory, timeout); },
      fmt::format("rank {}, meeting the others at MASTER_ADDR={} MASTER_PORT={}: ", environment.rank,
                  environment.masterAddress, environment.masterPort));
}

}  // namespace gloo_bypass::trainer
