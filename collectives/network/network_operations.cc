#include "collectives/network/network_operations.h"

#include <algorithm>
#include <bit>
#include <exception>
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
      mailbox_(rank, peers_),
      sharedHosts_(shareHosts(hostOf_)) {}

void NetworkOperations::leave() {
  cancel();
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

OperationRun* NetworkOperations::runOf(std::uint64_t number) const {
  const auto found = std::find_if(runs_.begin(), runs_.end(),
                                  [&](const auto& run) { return run != nullptr && run->number() == number; });
  return found == runs_.end() ? nullptr : found->get();
}

// The first one: where operations follow each other they all use its memory, which is in the cache.
OperationRun& NetworkOperations::freeRun() {
  const auto free =
      std::find_if(runs_.begin(), runs_.end(), [](const auto& run) { return run == nullptr || run->over(); });
  if (*free == nullptr) *free = std::make_unique<OperationRun>(rank_, peers_, copies_);
  return **free;
}

// A later one takes its run only if it is over.
bool NetworkOperations::isOver(std::uint64_t number) const {
  const OperationRun* const run = runOf(number);
  return run == nullptr || run->over();
}

std::uint64_t NetworkOperations::firstUnfinished() const {
  std::uint64_t number = current_;
  while (number <= operations_ && isOver(number)) ++number;
  return number;
}

void NetworkOperations::announce(const Call& call) {
  if (failure_) return;  // nothing begins before its turn any more
  try {
    coming_.push_back(call);
    beginAhead();
  } catch (const std::exception& error) {
    fail({ErrorScope::kDevice, ErrorCode::kExhausted,
          fmt::format("rank {} could not begin {}: {}", rank_, textOf(collectives::describe(call)), error.what())});
  }
}

bool NetworkOperations::begin(const Call& call, std::span<const int> ranks, std::uint64_t number) {
  judgeStray();
  if (current_ < operations_) {
    ++current_;
    return !isLost();  // also where its own part is done: one before it has failed, at this rank or another
  }
  if (!coming_.empty()) coming_.pop_front();
  if (ranks.empty()) number = operations_ + 1;
  if (number >= firstLost_) return false;
  current_ = number;
  beginNext(call, ranks, number);
  return true;
}

void NetworkOperations::beginNext(const Call& call, std::span<const int> ranks, std::uint64_t number) {
  const bool all = areAll(ranks);
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  const int place = all ? rank_ : static_cast<int>(own - ranks.begin());
  const int size = all ? size_ : static_cast<int>(ranks.size());
  Choice choice = choices_.choose(
      {.kind = call.kind, .bytes = bytesOf(call, size), .ranks = size, .sharedHosts = all && sharedHosts_});
  const Schedule& schedule = scheduleFor(call, choice, ranks, {place, size, call.root});
  // Rails among hosts of unequal size have more parts than there are ranks: a slice stays as long as it is with others.
  if (choice.algorithm == Algorithm::kTwoLevelRails && schedule.parts > size) {
    const std::size_t slice = choice.partBytes * static_cast<std::size_t>(size);
    choice.partBytes = std::bit_floor(std::max<std::size_t>(slice / static_cast<std::size_t>(schedule.parts), 1));
  }
  OperationRun& run = freeRun();
  subset_.assign(ranks.begin(), ranks.end());
  // From here on it has begun, even if memory runs out in the middle.
  operations_ = number;
  called_[number % kRemembered] = {number, wordsOf(collectives::describe(call))};
  failIf(run.begin(call, {.number = number, .choice = choice, .schedule = &schedule, .place = place, .size = size}),
         number);
  judgeHeadersAhead();
}

void NetworkOperations::beginAhead() {
  while (!coming_.empty() && !failure_ && operations_ - current_ < kMostAtOnce - 1) {
    const Call call = coming_.front();
    // Whoever has passed a barrier knows that all ranks are done with what comes before it.
    if (call.kind == Kind::kBarrier) return;
    const OperationRun* const last = runOf(operations_);
    if (last != nullptr && !last->allSlicesHaveBegun()) return;
    for (std::uint64_t number = current_; number <= operations_; ++number) {
      const OperationRun* const run = runOf(number);
      if (run != nullptr && !run->isIndependentOf(call)) return;
    }
    coming_.pop_front();
    beginNext(call, {}, operations_ + 1);
  }
}

const Schedule& NetworkOperations::scheduleFor(const Call& call, const Choice& choice, std::span<const int> ranks,
                                               Place place) {
  auto key = std::tuple(call.kind, choice.algorithm, call.root, std::vector<int>(ranks.begin(), ranks.end()));
  const auto known = schedules_.find(key);
  if (known != schedules_.end()) return known->second;
  if (areAll(ranks)) place.hostOf = hostOf_;
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
  for (std::uint64_t number = current_; number <= operations_ && number < firstLost_; ++number) {
    if (OperationRun* const run = runOf(number)) failIf(run->advance(), number);
  }
  beginAhead();
}

void NetworkOperations::failIf(const Status& status, std::uint64_t number) {
  if (!status.ok()) fail(status.error(), number);
}

bool NetworkOperations::idle() const {
  return std::all_of(runs_.begin(), runs_.end(), [](const auto& run) { return run == nullptr || run->over(); });
}

void NetworkOperations::cancel() {
  for (const auto& run : runs_) {
    if (run != nullptr) run->cancel();
  }
  coming_.clear();
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
    if (peer != nullptr) tell(*peer, current_);
  }
}

void NetworkOperations::tell(Peer& peer, std::uint64_t number) {
  const Called& now = called_[number % kRemembered];
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
  const OperationRun& operation = *runOf(current_);
  const std::vector<int> partners = operation.awaited();
  if (after < 2 * kLongWait) return partners;
  std::vector<int> silent, silentPartners;
  for (const auto& peer : peers_) {
    if (peer == nullptr || !takesPart(peer->rank()) || operation.hasCome(*peer)) continue;
    if (peer->lastCall && peer->lastCall->operation >= current_) continue;
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
  if (isNews && operations_ >= message.operation && firstUnfinished() > operations_ && !isLost()) {
    tell(peer, operations_);
  }
  const Called& mine = called_[message.operation % kRemembered];
  if (mine.number != message.operation || mine.words == message.description || isLost()) return;
  fail({ErrorScope::kDevice, ErrorCode::kInvalidArgument,
        disagreement(rank_, mine.words, peer.rank(), message.description)},
       message.operation);
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
  const OperationRun* const run = runOf(operations_ + static_cast<std::uint64_t>(before));
  if (run != nullptr && run->expects(peer) && (before == 0 || !run->over())) return;
  // Operations in which this rank has no part count too: after many of them its last number says nothing of a peer's.
  const bool allTakePart = operations_ > 0 && subset_.empty();
  if (before <= 0 && allTakePart) {
    receiveStray(peer, operation);
  } else {
    peer.headersAhead.push_back(operation);
  }
}

// Of those that came before the operation that has begun; most are its own, and received. A peer that has begun several
// sends their headers in any order.
void NetworkOperations::judgeHeadersAhead() {
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    const bool expects = runOf(operations_)->expects(*peer);
    std::optional<std::uint32_t> stray;
    std::erase_if(peer->headersAhead, [&](std::uint32_t operation) {
      const std::int32_t before = ahead(operation, operations_);
      if (before < 0 || (before == 0 && !expects)) stray = operation;
      return before <= 0;
    });
    if (stray) receiveStray(*peer, *stray);
  }
}

void NetworkOperations::receiveStray(Peer& peer, std::uint32_t operation) {
  if (failure_ || stray_.bytes != nullptr) return;
  stray_.bytes = std::make_unique_for_overwrite<std::byte[]>(OutgoingCopies::kMostBytes);
  stray_.transfer.owner = this;
  failIf(peer.receive(stray_.transfer, collectiveKey(operation, 0), stray_.bytes.get(), OutgoingCopies::kMostBytes),
         firstUnfinished());
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
  for (std::uint64_t number = current_; number <= operations_ && number < firstLost_; ++number) {
    const OperationRun* const run = runOf(number);
    if (const Error* error = run == nullptr ? nullptr : run->needs(peer)) fail(*error, number);
  }
}

}  // namespace gloo_bypass::collectives
