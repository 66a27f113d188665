#include "collectives/network/network_operations.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "collectives/network/mesh.h"

namespace gloo_bypass::collectives {
namespace {

// Short messages under way to one peer.
constexpr std::size_t kCopiesAPeer = 8;

// How far ahead of `operation` that one is whose number has these lower 24 bits.
std::int32_t ahead(std::uint32_t bits, std::uint64_t operation) {
  return static_cast<std::int32_t>((bits - static_cast<std::uint32_t>(operation)) << 8) >> 8;
}

// The same in every rank: of counts that all know.
std::size_t bytesOf(Call call, int size) {
  call.whole = nullptr;
  std::size_t elements = static_cast<std::size_t>(describe(call).count);
  if (call.kind == Kind::kAllGather) {
    elements = 0;
    for (const Block& block : call.outputs) elements += block.count;
  } else if (call.kind == Kind::kGather || call.kind == Kind::kScatter) {
    elements *= static_cast<std::size_t>(size);
  }
  return elements * sizeOf(call.type);
}

}  // namespace

NetworkOperations::NetworkOperations(int rank, int size, std::vector<int> hostOf, ChoiceTable choices)
    : rank_(rank),
      size_(size),
      hostOf_(std::move(hostOf)),
      choices_(std::move(choices)),
      peers_(makePeers()),
      copies_(kCopiesAPeer * peers_.size()),
      operation_(rank, peers_, copies_),
      mailbox_(rank, peers_),
      sharedHosts_(shareHosts(hostOf_)) {}

void NetworkOperations::leave() {
  mailbox_.fail({ErrorScope::kDevice, ErrorCode::kCancelled, fmt::format("rank {} has left the group", rank_)});
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->leave();
  }
}

std::vector<std::unique_ptr<Peer>> NetworkOperations::makePeers() {
  PeerEvents& events = *this;
  std::vector<std::unique_ptr<Peer>> peers;
  for (int rank = 0; rank < size_; ++rank) {
    peers.push_back(rank == rank_ ? nullptr : std::make_unique<Peer>(rank_, rank, events));
  }
  return peers;
}

bool NetworkOperations::begin(const Call& call, std::span<const int> ranks, std::uint64_t number) {
  const bool all = ranks.empty();
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  const int place = all ? rank_ : static_cast<int>(own - ranks.begin());
  const int size = all ? size_ : static_cast<int>(ranks.size());
  judgeStray();
  if (all) number = operations_ + 1;
  if (number >= firstLost_) return false;
  operations_ = number;
  subset_.assign(ranks.begin(), ranks.end());
  called_[operations_ % kRemembered] = {operations_, wordsOf(collectives::describe(call))};
  const Choice choice = choices_.choose(
      {.kind = call.kind, .bytes = bytesOf(call, size), .ranks = size, .sharedHosts = all && sharedHosts_});
  failIf(operation_.begin(call, {.number = operations_,
                                 .choice = choice,
                                 .schedule = &scheduleFor(call, choice, ranks, {place, size, call.root}),
                                 .place = place,
                                 .size = size}));
  judgeHeadersAhead();
  return true;
}

const Schedule& NetworkOperations::scheduleFor(const Call& call, const Choice& choice, std::span<const int> ranks,
                                               Place place) {
  auto key = std::tuple(call.kind, choice.algorithm, call.root, std::vector<int>(ranks.begin(), ranks.end()));
  const auto known = schedules_.find(key);
  if (known != schedules_.end()) return known->second;
  if (ranks.empty()) place.hostOf = hostOf_;
  Schedule schedule = findAlgorithm(call.kind, choice.algorithm)->make(place);
  if (!ranks.empty()) {
    ScheduleBuilder builder(rank_, schedule.parts);
    builder.append(schedule, ranks, 0);
    schedule = std::move(builder).finish();
  }
  return schedules_.emplace(std::move(key), std::move(schedule)).first->second;
}

void NetworkOperations::advance() {
  judgeStray();
  if (!isLost()) failIf(operation_.advance());
}

void NetworkOperations::failIf(const Status& status) {
  if (!status.ok()) fail(status.error());
}

void NetworkOperations::fail(Error error, std::uint64_t firstLost) {
  if (firstLost >= firstLost_) return;
  if (!failure_) failure_ = std::move(error);
  firstLost_.store(firstLost, std::memory_order_release);
  for (const auto& peer : peers_) {
    if (peer == nullptr || peer->ended() != nullptr) continue;
    (void)copies_.sendLastWord(*peer, controlKey(),
                               encode(ControlMessage{.type = ControlMessage::Type::kFailed,
                                                     .code = failure_->code,
                                                     .operation = firstLost,
                                                     .text = failure_->message}));
  }
  mailbox_.fail(*failure_);
}

void NetworkOperations::abort() {
  fail({ErrorScope::kDevice, ErrorCode::kCancelled, fmt::format("rank {} has aborted this group", rank_)});
}

void NetworkOperations::tellWhatIsCalled() {
  if (settled()) return;
  for (const auto& peer : peers_) {
    if (peer != nullptr) tell(*peer);
  }
}

void NetworkOperations::tell(Peer& peer) {
  const Called& now = called_[operations_ % kRemembered];
  const ControlMessage message{
      .type = ControlMessage::Type::kCalled, .operation = now.number, .description = now.words};
  // Without room it is not said: the messages that fill it say the same.
  if (peer.ended() == nullptr) (void)copies_.send(peer, controlKey(), encode(message));
}

bool NetworkOperations::takesPart(int rank) const {
  return subset_.empty() || std::find(subset_.begin(), subset_.end(), rank) != subset_.end();
}

// A rank that waits for another's data may itself wait for a third one, which has not come.
std::vector<int> NetworkOperations::awaited(Duration after) const {
  const std::vector<int> partners = operation_.awaited();
  if (after < 2 * kLongWait) return partners;
  std::vector<int> silent, silentPartners;
  for (const auto& peer : peers_) {
    if (peer == nullptr || !takesPart(peer->rank()) || operation_.hasCome(*peer)) continue;
    if (peer->lastCall && peer->lastCall->operation >= operations_) continue;
    silent.push_back(peer->rank());
    if (std::find(partners.begin(), partners.end(), peer->rank()) != partners.end())
      silentPartners.push_back(peer->rank());
  }
  if (silent.empty()) return partners;
  return silentPartners.empty() ? silent : silentPartners;
}

void NetworkOperations::timeOut(const Call& call, Duration after) {
  if (settled()) return;
  fail({ErrorScope::kDevice, ErrorCode::kTimedOut,
        fmt::format("rank {} waited {} ms, the timeout of the call, in {} for {}", rank_,
                    std::chrono::duration_cast<std::chrono::milliseconds>(after).count(),
                    textOf(collectives::describe(call)), inWords(awaited(after)))});
}

void NetworkOperations::onControl(Peer& peer, const ControlMessage& message) {
  if (message.type == ControlMessage::Type::kFailed) return onPeerFailed(peer, message);
  const bool isNews = !peer.lastCall || peer.lastCall->operation < message.operation;
  peer.lastCall = message;
  // Whoever waits wants to know who is there. The answer of a rank whose part is done is news once.
  if (isNews && operations_ >= message.operation && settled() && !isLost()) tell(peer);
  const Called& mine = called_[message.operation % kRemembered];
  if (mine.number != message.operation || mine.words == message.description || isLost()) return;
  fail({ErrorScope::kDevice, ErrorCode::kInvalidArgument,
        disagreement(rank_, mine.words, peer.rank(), message.description)});
}

// A rank that failed in a later operation has done its part of this one.
void NetworkOperations::onPeerFailed(const Peer& peer, const ControlMessage& message) {
  const bool aborted = message.code == ErrorCode::kCancelled;
  Error error{ErrorScope::kDevice, aborted ? ErrorCode::kPeerClosed : message.code,
              message.text.empty() ? fmt::format("rank {} has failed", peer.rank()) : message.text};
  fail(std::move(error), message.operation);
}

void NetworkOperations::onHeader(Peer& peer, std::uint32_t operation) {
  const std::int32_t before = ahead(operation, operations_);
  if (before == 0 && operation_.expects(peer)) return;
  // Operations in which this rank has no part count too: after many of them its last number says nothing of a peer's.
  const bool allTakePart = operations_ > 0 && subset_.empty();
  if (before <= 0 && allTakePart) {
    receiveStray(peer, operation);
  } else {
    peer.headersAhead.push_back(operation);
  }
}

// Of those that came before the operation that has begun; most are its own, and received.
void NetworkOperations::judgeHeadersAhead() {
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    while (!peer->headersAhead.empty() && ahead(peer->headersAhead.front(), operations_) <= 0) {
      const std::uint32_t operation = peer->headersAhead.front();
      peer->headersAhead.pop_front();
      if (ahead(operation, operations_) < 0 || !operation_.expects(*peer)) receiveStray(*peer, operation);
    }
  }
}

void NetworkOperations::receiveStray(Peer& peer, std::uint32_t operation) {
  if (failure_ || stray_.bytes != nullptr) return;
  stray_.bytes = std::make_unique_for_overwrite<std::byte[]>(OutgoingCopies::kMostBytes);
  stray_.transfer.owner = this;
  failIf(peer.receive(stray_.transfer, collectiveKey(operation, 0), stray_.bytes.get(), OutgoingCopies::kMostBytes));
  judgeStray();
}

void NetworkOperations::judgeStray() {
  if (failure_ || !stray_.length) return;
  const int other = stray_.transfer.peer->rank();
  const auto header = decodeOperationHeader(std::span(stray_.bytes.get(), *stray_.length));
  if (!header) {
    return fail({ErrorScope::kDevice, ErrorCode::kPeerViolatedProtocol,
                 fmt::format("rank {} began an operation as no correct rank does, seen by rank {}", other, rank_)});
  }
  const Called& mine = called_[header->operation % kRemembered];
  const bool differs = mine.number == header->operation && mine.words != header->description;
  fail({ErrorScope::kDevice, ErrorCode::kInvalidArgument,
        differs ? disagreement(rank_, mine.words, other, header->description)
                : fmt::format("rank {} sends to rank {}, which expects nothing from it, in {}", other, rank_,
                              textOfWords(header->description))});
}

void NetworkOperations::onProgramMessage(Peer& peer, std::uint32_t tag) {
  if (!failure_) mailbox_.onAnnounced(peer, tag);
}

void NetworkOperations::onEnded(Peer& peer) {
  mailbox_.onEnded(peer);
  if (const Error* error = isLost() ? nullptr : operation_.needs(peer)) fail(*error);
}

}  // namespace gloo_bypass::collectives
