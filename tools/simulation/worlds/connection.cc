#include "tools/simulation/worlds/connection.h"

#include <algorithm>

#include "transport/base/byte_order.h"
#include "transport/wire/sealed_packet.h"

namespace gloo_bypass::sim {
namespace {

// Plant::kFlip: long datagrams end with payload, and one in so many is harmed.
constexpr std::size_t kLongDatagram = 300;
constexpr std::uint64_t kFlippedOneIn = 20;

SessionConfig configOf(const Script& script, int rank, const PairScript& pair) {
  SessionConfig config = script.rank(rank).config();
  config.losslessLink = pair.lossless;
  return config;
}

// The key that the sender of this id seals with: both ends know it, and nobody else would.
security::Secret secretOf(std::uint64_t senderId) {
  security::Secret secret;
  storeLittle(secret.writable().data(), senderId);
  return secret;
}

bool carriesNoChecksum(const SessionConfig& config) {
  return config.payloadChecksum == PayloadChecksum::kOff ||
         (config.payloadChecksum == PayloadChecksum::kAuto && config.losslessLink);
}

}  // namespace

Connection::Connection(Simulation& simulation, const Script& script, int lower, int upper)
    : simulation_(simulation),
      ranks_{lower, upper},
      pair_(script.pair(lower, upper)),
      configs_{configOf(script, lower, pair_), configOf(script, upper, pair_)},
      flips_(script.plant == Plant::kFlip && pair_.keyPackets == 0 && carriesNoChecksum(configs_[0])),
      lacks_{script.rank(lower).lacks, script.rank(upper).lacks},
      random_(mixBits(script.seed * 1024 + static_cast<std::uint64_t>(lower * Script::kMostRanks + upper))) {
  for (int rail = 0; rail < pair_.rails; ++rail) {
    for (int side = 0; side < kSides; ++side) {
      LinkModel model;
      static_cast<fabric::EdgeModel&>(model) = script.edge(rankAt(side), rankAt(1 - side), rail);
      model.backPressure = pair_.lossless;
      models_.push_back(model);
      links_.emplace_back(simulation, model, random_.next());
      doorways_.emplace_back(*this, 1 - side, rail);
    }
  }
  addLife();
}

void Connection::addLife() {
  auto life = std::make_unique<Life>();
  for (std::size_t side = 0; side < kSides; ++side) {
    std::deque<Host>& hosts = life->sides[side];
    for (int rail = 0; rail < pair_.rails; ++rail) {
      const std::uint64_t id = random_.next(), entropy = random_.next();
      Host& host = rail == 0 ? hosts.emplace_back(simulation_, configs_[side], id, entropy)
                             : hosts.emplace_back(simulation_, configs_[side], id, entropy, hosts.front());
      const std::size_t edge = edgeIndex(static_cast<int>(side), rail);
      host.attach(links_[edge], doorways_[edge]);
    }
  }
  for (std::size_t side = 0; side < kSides; ++side) {
    auto& own = life->sides[side];
    auto& others = life->sides[1 - side];
    if (lacks_[side] == 0 && pair_.keyPackets == 0) continue;
    for (std::size_t rail = 0; rail < own.size(); ++rail) {
      own[rail].setFilter(
          life->endpoints.emplace_back(lacks_[side], own[rail].id(), others[rail].id(), pair_.keyPackets));
      if (pair_.keyPackets > 0) own[rail].session().markSealed();
    }
  }
  lives_.push_back(std::move(life));
}

void Connection::beginNextLife() {
  for (int side = 0; side < kSides; ++side) vanish(side);  // whoever had failed has closed it
  addLife();
}

Duration Connection::roundTrip() const {
  Duration longest{0};
  for (std::size_t i = 0; i + 1 < models_.size(); i += kSides) {
    const auto way = [&](const LinkModel& model) { return model.delay + model.jitter + model.reorderDelay; };
    longest = std::max(longest, way(models_[i]) + way(models_[i + 1]));
  }
  return longest;
}

bool Connection::ended(int side) const {
  const SessionState now = state(side);
  return gone(side) || now == SessionState::kFailed || now == SessionState::kPeerClosed ||
         now == SessionState::kClosing || now == SessionState::kClosed;
}

bool Connection::drained(int side) const { return gone(side) || host(side).session().drained(); }

std::size_t Connection::maxMemoryBytes(int side) const {
  std::size_t most = 0;
  for (const auto& life : lives_) {
    std::size_t bytes = 0;
    for (const Host& host : life->sides[static_cast<std::size_t>(side)]) bytes += host.maxMemoryBytes();
    most = std::max(most, bytes);
  }
  return most;
}

std::uint64_t Connection::keyChanges() const {
  std::uint64_t changes = 0;
  for (const auto& life : lives_) {
    for (const Endpoint& endpoint : life->endpoints) changes += endpoint.keyChanges();
  }
  return changes;
}

void Connection::connect(int side) {
  auto& own = lives_.back()->sides[static_cast<std::size_t>(side)];
  auto& others = lives_.back()->sides[static_cast<std::size_t>(1 - side)];
  for (std::size_t rail = 0; rail < own.size(); ++rail) own[rail].connect(others[rail], pair_.datagramBytes);
}

void Connection::close(int side, bool abort) {
  operate(side, [abort](Session& session, TimePoint now) { session.close(now, abort); });
}

void Connection::changeEdge(int from, int rail, const fabric::EdgeChange& change) {
  if (rail >= pair_.rails) return;
  const std::size_t edge = edgeIndex(sideOf(from), rail);
  LinkModel model = models_[edge];
  change.applyTo(model);
  links_[edge].setModel(model);
}

void Connection::restoreEdge(int from, int rail) {
  if (rail < pair_.rails) links_[edgeIndex(sideOf(from), rail)].setModel(models_[edgeIndex(sideOf(from), rail)]);
}

void Connection::healEdges() {
  for (std::size_t edge = 0; edge < links_.size(); ++edge) {
    LinkModel healed = models_[edge];
    healed.loss = healed.burstEnter = healed.duplication = healed.reordering = healed.corruption = 0;
    healed.up = true;
    models_[edge] = healed;
    links_[edge].setModel(healed);
  }
}

void Connection::limitPath(int from, int rail, std::size_t datagramBytes) {
  const std::size_t overhead = pair_.keyPackets > 0 ? wire::kSealTagBytes : 0;
  if (rail < pair_.rails) doorways_[edgeIndex(sideOf(from), rail)].mostBytes = datagramBytes + overhead;
}

void Connection::pause(int side) {
  forHosts(side, [](Host& host) { host.stop(); });
}

void Connection::resume(int side) {
  forHosts(side, [](Host& host) { host.resume(); });
}

void Connection::vanish(int side) {
  forHosts(side, [](Host& host) { host.vanish(); });
  lives_.back()->gone[static_cast<std::size_t>(side)] = true;
}

void Connection::notice(int side) {
  operate(side, [](Session& session, TimePoint) {
    session.fail({ErrorScope::kSession, ErrorCode::kPeerVanished, "the peer's process has ended"});
  });
}

void Connection::Doorway::onDatagram(TimePoint now, std::span<const std::byte> datagram) {
  if (datagram.size() > mostBytes) return;
  ++arrived_;
  if (connection_.flips_) datagram = harm(datagram);
  // An endpoint knows its sessions by their ids. What names none of them goes to the present one, to be refused.
  const auto id = Session::receiverId(datagram);
  for (const auto& life : connection_.lives_) {
    Host& host = life->sides[side_][rail_];
    if (life == connection_.lives_.back() || host.id() == id) return host.onDatagram(now, datagram);
  }
}

std::span<const std::byte> Connection::Doorway::harm(std::span<const std::byte> datagram) {
  if (datagram.size() < kLongDatagram || arrived_ % kFlippedOneIn != 0) return datagram;
  harmed_.assign(datagram.begin(), datagram.end());
  harmed_.back() ^= std::byte{0x10};
  return harmed_;
}

Connection::Endpoint::Endpoint(std::size_t lacks, std::uint64_t ownId, std::uint64_t peerId, std::uint64_t keyPackets)
    : lacks_(lacks) {
  if (keyPackets == 0) return;
  protection_.emplace(secretOf(ownId), secretOf(peerId),
                      ownId < peerId ? security::KeyChanges::kBegins : security::KeyChanges::kFollows,
                      security::makeAead, security::ProtectionLimits{.packetsPerKey = keyPackets});
}

std::span<const std::byte> Connection::Endpoint::leaving(std::span<const std::byte> header,
                                                         std::span<const std::byte> payload) {
  if (lacks_ != 0) header = asEarlierVersion(header);
  out_.resize(header.size() + payload.size() + wire::kSealTagBytes);
  if (protection_) return std::span(out_).first(protection_->seal(header, payload, out_.data()));
  std::ranges::copy(payload, std::ranges::copy(header, out_.begin()).out);
  return std::span(out_).first(header.size() + payload.size());
}

std::span<const std::byte> Connection::Endpoint::arriving(std::span<const std::byte> datagram) {
  if (!protection_) return datagram;
  in_.resize(datagram.size());
  if (protection_->open(datagram, in_.data()) != security::PacketProtection::Verdict::kOpened) return {};
  return std::span(in_).first(datagram.size() - wire::kSealTagBytes);
}

// A Hello without the capabilities that the sender is to lack.
std::span<const std::byte> Connection::Endpoint::asEarlierVersion(std::span<const std::byte> header) {
  wire::ParsedPacket packet;
  wire::Hello hello;
  const auto checksum = protection_ ? wire::HeaderChecksum::kNone : wire::HeaderChecksum::kCrc32c;
  if (wire::parsePacket(header, &packet, checksum) != wire::ParseResult::kOk ||
      packet.header.type != wire::FrameType::kHello || !wire::decodeHello(packet.body, &hello)) {
    return header;
  }
  hello.capabilities &= static_cast<decltype(hello.capabilities)>(~lacks_);
  writer_.begin(packet.header);
  writer_.hello(hello);
  return writer_.finish(checksum);
}

}  // namespace gloo_bypass::sim
