// One rank of a group in a world: it calls the script's operations one after the other, over the real schedules,
// headers and failures of collectives/network, and looks at what each gave. It may start some before it waits for the
// first of them. What blocks there (NetworkExecutor) is not part of it: this waits in virtual time, with the same
// limits.
//
//   kConnecting -> kPausing <-> kCalling -> kWithdrawing -> kOver -> (left)
//                      |                                      ^
//                      +--------- all are done ---------------+
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/network/network_operations.h"
#include "tools/simulation/core/host.h"
#include "tools/simulation/core/random.h"
#include "tools/simulation/core/simulation.h"
#include "tools/simulation/worlds/operation_case.h"
#include "tools/simulation/worlds/script.h"
#include "tools/simulation/worlds/simulated_transport.h"

namespace gloo_bypass::sim {

class GroupRank {
 public:
  // `hosts`: by the peer's rank; null for this one.
  GroupRank(Simulation& simulation, const Script& script, int rank, std::vector<Host*> hosts);
  GroupRank(const GroupRank&) = delete;
  GroupRank& operator=(const GroupRank&) = delete;

  void pause() { paused_ = true; }
  void resume();
  void vanish();
  void abort();

  // Its operations are over, and a moment later it has closed its channels in good order.
  bool left() const { return left_ || vanished_; }
  // How many operations have ended well; if these are not all when it has left, why the next has not.
  std::size_t succeeded() const { return succeeded_; }
  const std::optional<Error>& failure() const { return failure_; }
  // Sums and copies that are wrong, buffers that changed after their operation.
  std::vector<std::string> faults() const;

 private:
  enum class Stage : std::uint8_t { kConnecting, kPausing, kCalling, kWithdrawing, kOver };
  // An operation with its memory; that stays, to see that no one writes to it later.
  struct Called {
    collectives::OperationCase what;
    collectives::OperationBuffers buffers;
    bool differs = false;
    std::vector<std::vector<std::byte>> afterwards;  // its outputs, when it had ended
  };

  void requestTurn();
  void turn();
  void lookAtPeers();
  void pauseBeforeNext();
  collectives::Call& startNext();
  void callNext();
  void wait(Duration atMost);
  void lookAtCall();
  void endCall(bool well);
  void keepOutputs();
  void end();
  const OperationScript& operation() const { return script_.operations[succeeded_]; }

  Simulation& simulation_;
  const Script& script_;
  const int rank_;
  Random random_;
  SimulatedTransport transport_;
  std::vector<std::unique_ptr<Called>> called_;
  collectives::NetworkOperations operations_;
  Stage stage_ = Stage::kConnecting;
  bool paused_ = false, vanished_ = false, left_ = false;
  bool turnDue_ = false, turnWaits_ = false, abortDue_ = false;
  std::size_t succeeded_ = 0;
  TimePoint began_{};
  // Of the stage: when it asks what others call, or never again; when it ends by itself.
  TimePoint askAt_ = kNever, stageEndsAt_ = kNever;
  std::optional<Error> failure_;
  std::vector<std::string> faults_;
};

}  // namespace gloo_bypass::sim
