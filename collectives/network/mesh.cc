#include "collectives/network/mesh.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "collectives/interruption.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

using Peers = std::span<const std::unique_ptr<Peer>>;
using std::chrono::milliseconds;

// Whether there is still a reason to wait for the others.
constexpr milliseconds kLookEvery{200};

std::string keyOf(int rank) { return fmt::format("network/{}", rank); }

Status openChannels(int rank, const MeshTimes& times, Transport& transport, Peers peers) {
  Status status;
  transport.progress().exclusive([&] {
    for (const auto& peer : peers) {
      if (peer == nullptr || !status.ok()) continue;
      status = peer->open(transport, {.localRank = rank,
                                      .peerRank = peer->rank(),
                                      .connectTimeout = times.connect,
                                      .silenceTimeout = times.silence});
    }
  });
  return status;
}

Status publish(int rank, Peers peers, Rendezvous& rendezvous) {
  std::vector<std::vector<std::byte>> addresses(peers.size());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (peers[i] != nullptr) addresses[i] = peers[i]->channel().localAddress();
  }
  return rendezvous.set(keyOf(rank), encodeAddresses(rank, addresses));
}

Status notCome(int rank, milliseconds waited, const std::vector<int>& absent) {
  return {ErrorScope::kDevice, ErrorCode::kTimedOut,
          fmt::format("rank {} waited {} ms for {} to connect", rank, waited.count(), inWords(absent))};
}

// Connects to each rank as its addresses come.
Status connectAll(int rank, milliseconds timeout, TimePoint deadline, Transport& transport, Rendezvous& rendezvous,
                  Peers peers) {
  const int size = static_cast<int>(peers.size());
  std::vector<int> absent;
  for (const auto& peer : peers) {
    if (peer == nullptr) continue;
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - monotonicNow());
    const auto value = rendezvous.get(keyOf(peer->rank()), std::max(left, milliseconds(absent.empty() ? 1 : 0)));
    if (!value) {
      if (value.error().code != ErrorCode::kTimedOut) return value.error();
      absent.push_back(peer->rank());
      continue;
    }
    const auto addresses = decodeAddresses(value.value(), peer->rank(), size);
    if (!addresses) return addresses.error();
    Status status;
    transport.progress().exclusive([&] { status = peer->connect(addresses.value()[static_cast<std::size_t>(rank)]); });
    if (!status.ok()) return status;
  }
  return absent.empty() ? Status() : notCome(rank, timeout, absent);
}

Status awaitAll(int rank, milliseconds timeout, TimePoint deadline, Transport& transport, Rendezvous& rendezvous,
                Peers peers) {
  std::vector<int> absent;
  const Error* failed = nullptr;
  const Error stopped = interrupted();
  bool isStopped = false;
  const auto connected = [&] {
    if (isStopped) failed = &stopped;
    absent.clear();
    for (const auto& peer : peers) {
      if (peer == nullptr) continue;
      // Who has met all others may have left again.
      if (peer->ended() != nullptr && !peer->connected()) failed = peer->ended();
      if (!peer->connected()) absent.push_back(peer->rank());
    }
    return failed != nullptr || absent.empty();
  };
  for (;;) {
    const TimePoint until = std::min<TimePoint>(deadline, monotonicNow() + kLookEvery);
    if (waitInterruptibly(transport.progress(), connected, until, [&] { isStopped = true; })) {
      return failed == nullptr ? Status() : Status(*failed);
    }
    if (Status status = rendezvous.stopped(); !status) return status;
    if (until == deadline) return notCome(rank, timeout, absent);
  }
}

}  // namespace

std::string inWords(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

Status connectMesh(int rank, const MeshTimes& times, Transport& transport, Rendezvous& rendezvous, Peers peers) {
  const TimePoint deadline = monotonicNow() + times.connect;
  Status status = openChannels(rank, times, transport, peers);
  if (status.ok()) status = publish(rank, peers, rendezvous);
  if (status.ok()) status = connectAll(rank, times.connect, deadline, transport, rendezvous, peers);
  return status.ok() ? awaitAll(rank, times.connect, deadline, transport, rendezvous, peers) : status;
}

}  // namespace gloo_bypass::collectives
