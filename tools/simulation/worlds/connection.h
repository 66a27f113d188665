// The connection of two ranks in a world: the links of its paths, a host with its rails at each end, and the faults
// that happen to them. After a restart of one rank both ends get new sessions: another life, over the same links, where
// late datagrams of the one before still arrive. Of a sealed pair each path of a life has keys of its own.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tools/simulation/core/host.h"
#include "tools/simulation/core/link.h"
#include "tools/simulation/core/random.h"
#include "tools/simulation/core/simulation.h"
#include "tools/simulation/worlds/script.h"
#include "transport/security/packet_protection.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::sim {

class Connection {
 public:
  // Side 0 is the lower rank.
  static constexpr int kSides = 2;

  Connection(Simulation& simulation, const Script& script, int lower, int upper);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int rankAt(int side) const { return ranks_[static_cast<std::size_t>(side)]; }
  int sideOf(int rank) const { return rank == ranks_[0] ? 0 : 1; }
  bool has(int rank) const { return rank == ranks_[0] || rank == ranks_[1]; }
  const PairScript& settings() const { return pair_; }
  Duration roundTrip() const;

  // Of the present life: the end's first path, which has the messages.
  Host& host(int side) { return lives_.back()->sides[static_cast<std::size_t>(side)].front(); }
  const Host& host(int side) const { return lives_.back()->sides[static_cast<std::size_t>(side)].front(); }
  SessionState state(int side) const { return host(side).session().state(); }
  std::size_t lives() const { return lives_.size(); }
  bool gone(int side) const { return lives_.back()->gone[static_cast<std::size_t>(side)]; }
  // No operation can succeed at this end any more.
  bool ended(int side) const;
  // It has nothing left to say to its peer.
  bool drained(int side) const;
  // The most that a session of an end has held, in all lives.
  std::size_t maxMemoryBytes(int side) const;
  // Of both ends' paths, in all lives.
  std::uint64_t keyChanges() const;

  void connect(int side);
  void operate(int side, const std::function<void(Session&, TimePoint)>& operation) { host(side).operate(operation); }
  void close(int side, bool abort);

  // Faults.
  void changeEdge(int from, int rail, const fabric::EdgeChange& change);
  void restoreEdge(int from, int rail);
  void healEdges();  // nothing is lost or harmed any more; delays and rates stay
  void limitPath(int from, int rail, std::size_t datagramBytes);
  void pause(int side);
  void resume(int side);
  void vanish(int side);
  // The end hears that its peer's process has ended.
  void notice(int side);
  void beginNextLife();

 private:
  // What the network does to a datagram that the edge has carried, and to which session it then goes.
  class Doorway final : public DatagramSink {
   public:
    Doorway(Connection& connection, int side, int rail)
        : connection_(connection), side_(static_cast<std::size_t>(side)), rail_(static_cast<std::size_t>(rail)) {}
    void onDatagram(TimePoint now, std::span<const std::byte> datagram) override;
    std::size_t mostBytes = SIZE_MAX;

   private:
    std::span<const std::byte> harm(std::span<const std::byte> datagram);

    Connection& connection_;
    const std::size_t side_, rail_;
    std::uint64_t arrived_ = 0;
    std::vector<std::byte> harmed_;
  };
  // What a rank's endpoint does to the datagrams of one path.
  class Endpoint final : public DatagramFilter {
   public:
    // `lacks`: what its Hello does not have. Seals if `keyPackets` is not 0.
    Endpoint(std::size_t lacks, std::uint64_t ownId, std::uint64_t peerId, std::uint64_t keyPackets);
    std::span<const std::byte> leaving(std::span<const std::byte> header, std::span<const std::byte> payload) override;
    std::span<const std::byte> arriving(std::span<const std::byte> datagram) override;
    std::uint64_t keyChanges() const { return protection_ ? protection_->sendPhase() : 0; }

   private:
    std::span<const std::byte> asEarlierVersion(std::span<const std::byte> header);

    const std::size_t lacks_;
    std::optional<security::PacketProtection> protection_;
    wire::PacketWriter writer_;
    std::vector<std::byte> out_, in_;
  };
  struct Life {
    std::array<std::deque<Host>, kSides> sides;  // of each: a host for each rail
    std::deque<Endpoint> endpoints;
    std::array<bool, kSides> gone{};
  };

  std::size_t edgeIndex(int side, int rail) const {
    return static_cast<std::size_t>(rail) * kSides + static_cast<std::size_t>(side);
  }
  void addLife();
  template <typename Action>
  void forHosts(int side, Action&& action) {
    for (Host& host : lives_.back()->sides[static_cast<std::size_t>(side)]) action(host);
  }

  Simulation& simulation_;
  const std::array<int, kSides> ranks_;
  const PairScript pair_;
  const std::array<SessionConfig, kSides> configs_;
  const bool flips_;
  const std::array<std::size_t, kSides> lacks_;  // what a rank's Hello does not have
  Random random_;
  std::deque<Link> links_;         // by rail, then by sending side
  std::vector<LinkModel> models_;  // as the script has them
  std::deque<Doorway> doorways_;   // where each link leads
  std::vector<std::unique_ptr<Life>> lives_;
};

}  // namespace gloo_bypass::sim
