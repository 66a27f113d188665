#include <algorithm>
#include <cstddef>

#include "collectives/schedule/algorithms.h"
#include "collectives/schedule/hosts.h"

namespace gloo_bypass::collectives {
namespace {

// Among so many hosts one sends all the others everything: with more it would send more than twice the data.
constexpr int kFewHosts = 3;

// As many rails as the largest host has ranks. On every host each rail has one rank that carries it; where a host has
// fewer ranks, a rank carries several. Vectors are cut into a part for each rail and host.
class Rails {
 public:
  explicit Rails(const Place& place) : hosts_(place), rank_(place.rank) {
    for (int rail = 0; rail < count(); ++rail) {
      if (carries(rail)) own_.push_back(rail);
    }
  }

  int count() const { return hosts_.mostRanks(); }
  int hosts() const { return hosts_.count(); }
  int host() const { return hosts_.mine(); }
  int hostOf(int rank) const { return hosts_.hostOf(rank); }
  const std::vector<int>& mates() const { return hosts_.mates(); }
  const std::vector<int>& own() const { return own_; }  // the rails that this rank carries
  bool carries(int rail) const { return carrier(host(), rail) == rank_; }
  int carrier(int host, int rail) const {
    const std::vector<int>& ranks = hosts_.ranks(host);
    return ranks[static_cast<std::size_t>(rail) % ranks.size()];
  }
  // Those of a rail, by host.
  std::vector<int> column(int rail) const {
    std::vector<int> ranks;
    for (int host = 0; host < hosts(); ++host) ranks.push_back(carrier(host, rail));
    return ranks;
  }
  // Whose block of an all-gather and the like it carries is the block's own rank there.
  int railOf(int rank) const { return hosts_.placeOf(rank); }

  int parts() const { return count() * hosts(); }
  int part(int rail, int host) const { return rail * hosts() + host; }
  Parts partsOf(int rail) const { return {part(rail, 0), part(rail + 1, 0)}; }

  // Each begins after this rank's own, so that no rank gets all first messages. Two ranks that share several rails have
  // these in their order.
  template <typename F>
  void otherMates(F&& f) const {
    const std::size_t count = mates().size();
    for (std::size_t k = 1; k < count; ++k) f(mates()[(static_cast<std::size_t>(hosts_.place()) + k) % count]);
  }
  template <typename F>
  void otherRails(F&& f) const {
    otherMates([&](int mate) {
      for (int rail = 0; rail < count(); ++rail) {
        if (carrier(host(), rail) == mate) f(rail);
      }
    });
  }
  template <typename F>
  void otherHosts(F&& f) const {
    for (int k = 1; k < hosts(); ++k) f((host() + k) % hosts());
  }

 private:
  const Hosts hosts_;
  const int rank_;
  std::vector<int> own_;
};

// Within each host the carrier of a rail gets its parts and adds them, in the order of the host's ranks.
void sumOnRails(const Rails& rails, ScheduleBuilder& builder) {
  rails.otherRails([&](int rail) { builder.send(0, rails.partsOf(rail), rails.carrier(rails.host(), rail)); });
  if (rails.mates().size() == 1) return;
  for (const int rail : rails.own()) builder.reduce(0, rails.partsOf(rail), rails.mates());
}

// Within each host all ranks but `without` get what the carriers have.
void gatherFromRails(const Rails& rails, int rank, int without, int round, ScheduleBuilder& builder) {
  for (const int rail : rails.own()) {
    rails.otherMates([&](int mate) {
      if (mate != without) builder.send(round, rails.partsOf(rail), mate);
    });
  }
  if (rank == without) return;
  rails.otherRails([&](int rail) { builder.receive(round, rails.partsOf(rail), rails.carrier(rails.host(), rail)); });
}

// Between hosts each carrier adds the part of its own host.
void scatterSums(const Rails& rails, int round, ScheduleBuilder& builder) {
  if (rails.hosts() == 1) return;
  for (const int rail : rails.own()) {
    rails.otherHosts(
        [&](int host) { builder.send(round, onePart(rails.part(rail, host)), rails.carrier(host, rail)); });
    builder.reduce(round, onePart(rails.part(rail, rails.host())), rails.column(rail));
  }
}

}  // namespace

Schedule railsAllReduce(const Place& place) {
  const Rails rails(place);
  ScheduleBuilder builder(place.rank, rails.parts());
  sumOnRails(rails, builder);
  scatterSums(rails, 1, builder);
  for (const int rail : rails.own()) {
    rails.otherHosts([&](int host) {
      const int peer = rails.carrier(host, rail);
      builder.send(2, onePart(rails.part(rail, rails.host())), peer);
      builder.receive(2, onePart(rails.part(rail, host)), peer);
    });
  }
  gatherFromRails(rails, place.rank, /*without=*/-1, 3, builder);
  return std::move(builder).finish();
}

Schedule railsReduceScatter(const Place& place) {
  const Rails rails(place);
  ScheduleBuilder builder(place.rank, place.size);
  for (int rank = 0; rank < place.size; ++rank) {
    const int rail = rails.railOf(rank), host = rails.hostOf(rank);
    if (!rails.carries(rail)) {
      builder.send(0, onePart(rank), rails.carrier(rails.host(), rail));
      continue;
    }
    if (rails.mates().size() > 1) builder.reduce(0, onePart(rank), rails.mates());
    if (host != rails.host()) builder.send(1, onePart(rank), rank);
    if (rank == place.rank && rails.hosts() > 1) builder.reduce(1, onePart(rank), rails.column(rail));
  }
  return std::move(builder).finish();
}

Schedule railsAllGather(const Place& place) {
  const Rails rails(place);
  ScheduleBuilder builder(place.rank, place.size);
  rails.otherHosts(
      [&](int host) { builder.send(0, onePart(place.rank), rails.carrier(host, rails.railOf(place.rank))); });
  rails.otherMates([&](int mate) {
    builder.send(0, onePart(place.rank), mate);
    builder.receive(0, onePart(mate), mate);
  });
  for (int rank = 0; rank < place.size; ++rank) {
    if (rails.hostOf(rank) == rails.host()) continue;
    const int rail = rails.railOf(rank);
    if (rails.carries(rail)) {
      builder.receive(0, onePart(rank), rank);
      rails.otherMates([&](int mate) { builder.send(1, onePart(rank), mate); });
    } else {
      builder.receive(1, onePart(rank), rails.carrier(rails.host(), rail));
    }
  }
  return std::move(builder).finish();
}

// The root's host has all parts after round 0. It sends them to the others: one trip; or, among more than a few hosts,
// to each its part, which that host sends to the rest: two trips.
Schedule railsBroadcast(const Place& place) {
  const Rails rails(place);
  const int rootHost = rails.hostOf(place.root);
  const bool isScattered = rails.hosts() > kFewHosts, isOnRootHost = rails.host() == rootHost;
  ScheduleBuilder builder(place.rank, rails.parts());
  if (place.rank == place.root) {
    rails.otherRails([&](int rail) { builder.send(0, rails.partsOf(rail), rails.carrier(rootHost, rail)); });
  }
  for (const int rail : rails.own()) {
    const Parts whole = rails.partsOf(rail), own = onePart(rails.part(rail, rails.host()));
    if (!isOnRootHost) builder.receive(1, isScattered ? own : whole, rails.carrier(rootHost, rail));
    if (isOnRootHost && place.rank != place.root) builder.receive(0, whole, place.root);
    rails.otherHosts([&](int host) {
      const int peer = rails.carrier(host, rail);
      const Parts its = onePart(rails.part(rail, host));
      if (isOnRootHost) builder.send(1, isScattered ? its : whole, peer);
      if (isScattered && host != rootHost) builder.send(2, own, peer);
      if (isScattered && !isOnRootHost) builder.receive(2, its, peer);
    });
  }
  gatherFromRails(rails, place.rank, place.root, 3, builder);
  return std::move(builder).finish();
}

// Among a few hosts the root's carriers get and add what the others have, and give it to the root: one trip. Among
// more, each host adds its part and sends it to the root: two trips.
Schedule railsReduce(const Place& place) {
  const Rails rails(place);
  const int rootHost = rails.hostOf(place.root);
  const bool isScattered = rails.hosts() > kFewHosts, isOnRootHost = rails.host() == rootHost;
  ScheduleBuilder builder(place.rank, rails.parts());
  sumOnRails(rails, builder);
  if (isScattered) {
    scatterSums(rails, 1, builder);
    for (int rail = 0; rail < rails.count(); ++rail) {
      for (int host = 0; host < rails.hosts(); ++host) {
        const int carrier = rails.carrier(host, rail);
        if (carrier == place.root) continue;
        if (carrier == place.rank) builder.send(2, onePart(rails.part(rail, host)), place.root);
        if (place.rank == place.root) builder.receive(2, onePart(rails.part(rail, host)), carrier);
      }
    }
    return std::move(builder).finish();
  }
  for (const int rail : rails.own()) {
    if (!isOnRootHost) {
      builder.send(1, rails.partsOf(rail), rails.carrier(rootHost, rail));
    } else if (rails.hosts() > 1) {
      builder.reduce(1, rails.partsOf(rail), rails.column(rail));
    }
    if (isOnRootHost && place.rank != place.root) builder.send(2, rails.partsOf(rail), place.root);
  }
  if (place.rank == place.root) {
    rails.otherRails([&](int rail) { builder.receive(2, rails.partsOf(rail), rails.carrier(rootHost, rail)); });
  }
  return std::move(builder).finish();
}

// One empty part. What is "reduced" is nothing: a step waits for all its peers. A rank has heard from its host when it
// tells the other hosts.
Schedule railsBarrier(const Place& place) {
  const Rails rails(place);
  ScheduleBuilder builder(place.rank, 1);
  rails.otherMates([&](int mate) { builder.send(0, onePart(0), mate); });
  if (rails.mates().size() > 1) builder.reduce(0, onePart(0), rails.mates());
  std::vector<int> others;
  rails.otherHosts([&](int host) {
    for (const int rail : rails.own()) {
      const int peer = rails.carrier(host, rail);
      if (std::find(others.begin(), others.end(), peer) == others.end()) others.push_back(peer);
    }
  });
  for (const int peer : others) builder.send(1, onePart(0), peer);
  others.push_back(place.rank);
  if (others.size() > 1) builder.reduce(1, onePart(0), others);
  return std::move(builder).finish();
}

}  // namespace gloo_bypass::collectives
