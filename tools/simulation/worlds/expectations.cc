#include "tools/simulation/worlds/expectations.h"

#include <algorithm>

#include "transport/core/repair/repair_decoder.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::sim {
namespace {

using std::chrono::seconds;

// From this loss on an edge counts as cut: questions and answers may all be lost for a peer timeout.
constexpr double kHeavyLoss = 0.3;
// Short peer timeouts do not outlast bad luck on a path that loses as much as this.
constexpr double kSomeLoss = 0.01;
constexpr Duration kShortPeerTimeout = seconds(60);

bool hasChecksum(const Script& script, int rank, const PairScript& pair) {
  const PayloadChecksum checksum = script.rank(rank).checksum;
  if (pair.keyPackets > 0) return false;  // the seal checks more
  return checksum == PayloadChecksum::kOn || (checksum == PayloadChecksum::kAuto && !pair.lossless);
}

bool endsRank(const FaultScript& fault) {
  return fault.kind == FaultKind::kKill || fault.kind == FaultKind::kRestart || fault.kind == FaultKind::kAbort ||
         fault.kind == FaultKind::kClose;
}

bool isOf(const FaultScript& fault, int a, int b) {
  if (endsRank(fault) || fault.kind == FaultKind::kPause) return fault.rank == a || fault.rank == b;
  return (fault.from == a && fault.to == b) || (fault.from == b && fault.to == a);
}

// At most, between two ranks, by any algorithm.
std::size_t operationBytes(const Script& script) {
  const auto ranks = static_cast<std::size_t>(script.ranks);
  std::size_t bytes = 0;
  for (const OperationScript& operation : script.operations) {
    bytes += 2 * (operation.count + ranks) * sizeOf(operation.type) * ranks;
  }
  return bytes;
}

// Once in a burst, one lost frame follows another.
double lossOf(const fabric::EdgeModel& edge) {
  return edge.loss + edge.corruption + (edge.burstEnter > 0 ? kSomeLoss : 0);
}

double usualLoss(const Script& script, int a, int b) {
  double most = 0;
  for (int rail = 0; rail < script.pair(a, b).rails; ++rail) {
    most = std::max({most, lossOf(script.edge(a, b, rail)), lossOf(script.edge(b, a, rail))});
  }
  return most;
}

// A version that cannot use a narrow path, and a path that is narrow or becomes so. One that loses most of what it
// carries may seem so: by chance only short datagrams come through, again and again.
bool lacksNarrowPaths(const Script& script, int a, int b) {
  constexpr std::size_t kNeeded = wire::kCapabilityPieces | wire::kCapabilitySmall;
  if (((script.rank(a).lacks | script.rank(b).lacks) & kNeeded) == 0) return false;
  const auto narrows = [&](const FaultScript& fault) {
    const bool losesMost = fault.kind == FaultKind::kEdge && fault.settings.loss.value_or(0) >= kHeavyLoss;
    return isOf(fault, a, b) && (fault.kind == FaultKind::kMtu || losesMost);
  };
  return script.pair(a, b).datagramBytes < wire::kUsualMinDatagramBytes ||
         std::any_of(script.faults.begin(), script.faults.end(), narrows);
}

Duration shorterPeerTimeout(const Script& script, int a, int b) {
  return std::min(script.rank(a).peerTimeout, script.rank(b).peerTimeout);
}

// How long they may have been cut off from each other, all faults together.
Duration cutOff(const Script& script, int a, int b) {
  Duration sum{0};
  for (const FaultScript& fault : script.faults) {
    if (!isOf(fault, a, b)) continue;
    const bool cuts = fault.kind == FaultKind::kPause ||
                      (fault.kind == FaultKind::kEdge && fault.settings.loss.value_or(0) >= kHeavyLoss);
    if (cuts) sum += fault.length;
  }
  return sum;
}

}  // namespace

bool mustNotConnect(const Script& script, int a, int b) {
  const PairScript pair = script.pair(a, b);
  return hasChecksum(script, a, pair) != hasChecksum(script, b, pair);
}

bool mayEnd(const Script& script, int a, int b) {
  if (lacksNarrowPaths(script, a, b)) return true;
  for (const FaultScript& fault : script.faults) {
    if (endsRank(fault) && isOf(fault, a, b)) return true;
  }
  const Duration patience = shorterPeerTimeout(script, a, b);
  const bool unlucky = patience < kShortPeerTimeout && usualLoss(script, a, b) >= kSomeLoss;
  const Duration apart = script.rank(a).startAt - script.rank(b).startAt;
  const Duration cut = cutOff(script, a, b) + std::max(apart, -apart);
  return mustNotConnect(script, a, b) || unlucky || cut > std::min(patience, SessionConfig{}.connectTimeout) / 5 ||
         usualLoss(script, a, b) >= kHeavyLoss;
}

Duration faultsEndAt(const Script& script) {
  Duration end{0};
  for (const FaultScript& fault : script.faults) end = std::max(end, fault.at + fault.length);
  return end;
}

Duration trafficEndsAt(const Script& script) {
  Duration end{0};
  for (int rank = 0; rank < script.ranks; ++rank) end = std::max(end, script.rank(rank).startAt);
  for (const MessageScript& message : script.messages) end = std::max({end, message.sendAt, message.receiveAt});
  for (const OperationScript& operation : script.operations) end += operation.pause;
  return end;
}

Duration recoveryLimit(const Script& script, int a, int b) {
  // Timers have backed off to 2 s at most; a path's MTU counts as smaller after several losses and four probes.
  constexpr Duration kAtOnce = seconds(10), kForProbes = seconds(20);
  constexpr int kRoundTrips = 60, kTimesSerialised = 6;
  std::size_t bytes = 0;
  for (const MessageScript& message : script.messages) {
    if (std::min(message.from, message.to) == std::min(a, b) && std::max(message.from, message.to) == std::max(a, b))
      bytes += message.length;
  }
  bytes += operationBytes(script);
  const auto narrows = [&](const FaultScript& fault) { return fault.kind == FaultKind::kMtu && isOf(fault, a, b); };
  const bool narrow = std::any_of(script.faults.begin(), script.faults.end(), narrows);
  Duration limit = kAtOnce + (narrow ? kForProbes : Duration{0});
  const PairScript pair = script.pair(a, b);
  for (int rail = 0; rail < pair.rails; ++rail) {
    for (const fabric::EdgeModel& edge : {script.edge(a, b, rail), script.edge(b, a, rail)}) {
      limit += 2 * kRoundTrips * (edge.delay + edge.jitter + edge.reorderDelay);
      if (edge.rateBitsPerSecond == 0) continue;
      const double serialised =
          8e9 * static_cast<double>(bytes + edge.queueBytes) / static_cast<double>(edge.rateBitsPerSecond);
      limit += Duration(static_cast<Duration::rep>(kTimesSerialised * serialised));
    }
  }
  limit += static_cast<int>(script.operations.size()) * kRoundTrips * script.rank(a).turn;
  if (!mayEnd(script, a, b)) return limit;
  // Silence, a peer that does not connect; then, after a restart, both once more.
  const SessionConfig config;
  const Duration end = std::max(script.rank(a).peerTimeout, script.rank(b).peerTimeout) + config.connectTimeout;
  Duration restarts{0};
  for (const FaultScript& fault : script.faults) {
    if (fault.kind == FaultKind::kRestart && isOf(fault, a, b)) restarts += fault.length + trafficEndsAt(script) + end;
  }
  return 2 * limit + 2 * end + restarts + (script.operations.empty() ? Duration{0} : script.callTimeout);
}

std::size_t memoryLimit(const Script& script, int rank) {
  // Scoreboard, pools and tables grow with packets in flight and with open operations, not with time.
  constexpr std::size_t kBookkeepingBytes = 1 << 20;
  // Of what there is to hold: at one end a copy of what is sent, at the other what has arrived early, with room to
  // grow.
  constexpr std::size_t kCopies = 3;
  std::size_t bytes = operationBytes(script);
  for (const MessageScript& message : script.messages) {
    if (message.from == rank || message.to == rank) bytes += message.length;
  }
  const RankScript settings = script.rank(rank);
  std::size_t held = 2 * std::max(settings.bufferBytes, settings.eagerBytes);
  for (int any = 0; any < script.ranks; ++any) {
    if (script.rank(any).fec == Repair::Mode::kOff) continue;
    held += RepairDecoder::kMaxKeptBytes + RepairDecoder::kMaxRepairBytes;
    break;
  }
  return std::min(held, kCopies * bytes) + kBookkeepingBytes;
}

}  // namespace gloo_bypass::sim
