#include "tools/simulation/worlds/world.h"

#include <algorithm>
#include <array>
#include <memory>

#include <fmt/format.h>

#include "tools/simulation/core/conversation.h"
#include "tools/simulation/worlds/connection.h"
#include "tools/simulation/worlds/expectations.h"
#include "tools/simulation/worlds/group_rank.h"

namespace gloo_bypass::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kMostFindings = 8;
// A closed session lingers for 30 s, and may have to ask its peer a few times.
constexpr Duration kCloseLimit = seconds(90);
// How long a rank that has come back waits before it looks again whether its peer's session has ended.
constexpr Duration kLookAgain = milliseconds(50);
// No undisturbed call takes as long.
constexpr Duration kLongCall = seconds(60);
constexpr std::uint64_t kSwallowedOneIn = 7;
// The state of a world is judged once in so many events.
constexpr std::uint64_t kEventsAJudgement = 32;
// Worlds are small: this is several times what the busiest of a million takes.
constexpr std::uint64_t kMostEvents = 500'000;

constexpr const char* kRightMessages = "every message is right, and comes once and in order";
constexpr const char* kRightSums = "no result of an operation is wrong";
constexpr const char* kAgreement = "ranks agree on which operations have ended well";
constexpr const char* kReason = "sessions and operations end for a reason";
constexpr const char* kMismatch = "ranks with settings that do not fit do not connect";
constexpr const char* kMemory = "a session's memory is bounded";
constexpr const char* kTime = "virtual time goes on";
constexpr const char* kTraffic = "once faults have stopped, traffic ends within its bound";
constexpr const char* kDelivery = "what was sent before a close arrives";
constexpr const char* kClosing = "closed sessions drain";
constexpr const char* kQuiet = "what is sent is in proportion to the traffic";

// A connection with what goes over it.
struct Talk {
  explicit Talk(Simulation& simulation, const Script& script, int lower, int upper)
      : connection(simulation, script, lower, upper),
        mustNotConnect(sim::mustNotConnect(script, lower, upper)),
        mayEnd(sim::mayEnd(script, lower, upper)) {}
  Connection connection;
  const bool mustNotConnect, mayEnd;
  // One each way for each life; none in a world of operations.
  std::vector<std::unique_ptr<Conversation>> conversations;
  std::uint64_t received = 0;                             // for Plant::kSwallow
  std::array<std::size_t, Connection::kSides> hoarded{};  // bytes of the present life, for Plant::kHoard
};

class World {
 public:
  explicit World(const Script& script) : script_(script), random_(mixBits(script.seed ^ 0x776f726c64)) {
    for (int a = 0; a < script.ranks; ++a) {
      for (int b = a + 1; b < script.ranks; ++b) talks_.push_back(std::make_unique<Talk>(simulation_, script, a, b));
    }
    ranks_.resize(static_cast<std::size_t>(script.ranks));
    mayFail_ = mayFail();
  }

  WorldResult run() {
    if (!script_.operations.empty()) makeGroup();
    for (int rank = 0; rank < script_.ranks; ++rank)
      simulation_.after(script_.rank(rank).startAt, [=, this] { start(rank); });
    if (script_.operations.empty()) {
      for (const auto& talk : talks_) beginTalk(*talk);
    }
    for (const FaultScript& fault : script_.faults) simulation_.after(fault.at, [this, &fault] { strike(fault); });
    const bool settled = runTraffic();
    if (result_.findings.empty() && settled) close();
    judgeEnd();
    count();
    return std::move(result_);
  }

 private:
  struct Rank {
    int pauses = 0;
    bool started = false;
    bool gone = false;    // for now
    bool leaves = false;  // has closed or aborted
    std::unique_ptr<GroupRank> group;
  };

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  bool isGroup() const { return !script_.operations.empty(); }

  template <typename Action>
  void forTalksOf(int rank, Action&& action) {
    for (const auto& talk : talks_) {
      if (talk->connection.has(rank)) action(*talk, talk->connection.sideOf(rank));
    }
  }
  Connection* connection(int a, int b) {
    for (const auto& talk : talks_) {
      if (talk->connection.has(a) && talk->connection.has(b)) return &talk->connection;
    }
    return nullptr;
  }

  // ---- Traffic.

  void makeGroup() {
    for (int rank = 0; rank < script_.ranks; ++rank) {
      std::vector<Host*> hosts(static_cast<std::size_t>(script_.ranks), nullptr);
      forTalksOf(rank, [&](Talk& talk, int side) {
        hosts[static_cast<std::size_t>(talk.connection.rankAt(1 - side))] = &talk.connection.host(side);
      });
      at(rank).group = std::make_unique<GroupRank>(simulation_, script_, rank, std::move(hosts));
    }
  }

  void start(int rank) {
    at(rank).started = true;
    forTalksOf(rank, [](Talk& talk, int side) { talk.connection.connect(side); });
  }

  // Both ways, in the connection's present life.
  void beginTalk(Talk& talk) {
    Connection& connection = talk.connection;
    talk.hoarded = {};
    Conversation* ways[Connection::kSides];
    for (int side = 0; side < Connection::kSides; ++side) {
      std::vector<PlannedMessage> plan;
      for (const MessageScript& message : script_.messages) {
        if (message.from == connection.rankAt(side) && message.to == connection.rankAt(1 - side))
          plan.push_back(message);
      }
      orderTraffic(plan);
      talk.conversations.push_back(std::make_unique<Conversation>(simulation_, connection.host(side),
                                                                  connection.host(1 - side), plan,
                                                                  connection.settings().lossless, random_.next()));
      ways[side] = talk.conversations.back().get();
    }
    for (int side = 0; side < Connection::kSides; ++side) {
      Conversation* const out = ways[side];
      Conversation* const in = ways[1 - side];
      connection.host(side).setObserver([this, &talk, side, out, in](const SessionEvent& event) {
        if (event.type == SessionEvent::Type::kReceiveComplete && script_.plant == Plant::kSwallow &&
            ++talk.received % kSwallowedOneIn == 0) {
          return;
        }
        if (event.type == SessionEvent::Type::kReceiveComplete && script_.plant == Plant::kHoard)
          talk.hoarded[static_cast<std::size_t>(side)] += event.length;
        out->onSenderEvent(event);
        in->onReceiverEvent(event);
      });
    }
    for (Conversation* const way : ways) way->start();
  }

  // ---- Faults.

  void strike(const FaultScript& fault) {
    switch (fault.kind) {
      case FaultKind::kEdge:
        connection(fault.from, fault.to)->changeEdge(fault.from, fault.rail, fault.settings);
        simulation_.after(fault.length,
                          [this, &fault] { connection(fault.from, fault.to)->restoreEdge(fault.from, fault.rail); });
        return;
      case FaultKind::kMtu:
        return connection(fault.from, fault.to)->limitPath(fault.from, fault.rail, fault.bytes);
      case FaultKind::kPause:
        pause(fault.rank);
        simulation_.after(fault.length, [this, &fault] { resume(fault.rank); });
        return;
      case FaultKind::kKill:
      case FaultKind::kRestart:
        return kill(fault);
      case FaultKind::kAbort:
      case FaultKind::kClose:
        return leave(fault.rank, fault.kind == FaultKind::kAbort);
    }
  }

  void pause(int rank) {
    if (at(rank).pauses++ > 0) return;
    forTalksOf(rank, [](Talk& talk, int side) { talk.connection.pause(side); });
    if (at(rank).group) at(rank).group->pause();
  }

  void resume(int rank) {
    if (--at(rank).pauses > 0) return;
    if (at(rank).group) at(rank).group->resume();
    forTalksOf(rank, [](Talk& talk, int side) { talk.connection.resume(side); });
  }

  void kill(const FaultScript& fault) {
    Rank& rank = at(fault.rank);
    if (rank.gone) return;
    rank.gone = true;
    forTalksOf(fault.rank, [](Talk& talk, int side) { talk.connection.vanish(side); });
    if (rank.group) rank.group->vanish();
    if (fault.notice > Duration{0}) {
      forTalksOf(fault.rank, [&](Talk& talk, int side) {
        simulation_.after(fault.notice, [&talk, side, life = talk.connection.lives()] {
          if (life == talk.connection.lives()) talk.connection.notice(1 - side);
        });
      });
    }
    if (fault.kind != FaultKind::kRestart || isGroup() || rank.leaves) return;
    simulation_.after(fault.length, [this, &fault] {
      at(fault.rank).gone = false;
      forTalksOf(fault.rank, [this](Talk& talk, int) { meetAgain(talk); });
    });
  }

  // Once both are here and the old sessions have ended, both connect anew.
  void meetAgain(Talk& talk) {
    Connection& connection = talk.connection;
    if (!awaitsNextLife(connection)) return;
    const auto isReady = [&](int side) {
      const Rank& rank = at(connection.rankAt(side));
      return rank.started && rank.pauses == 0 && connection.ended(side);
    };
    if (!isReady(0) || !isReady(1)) return simulation_.after(kLookAgain, [this, &talk] { meetAgain(talk); });
    connection.beginNextLife();
    for (int side = 0; side < Connection::kSides; ++side) connection.connect(side);
    beginTalk(talk);
  }

  bool awaitsNextLife(const Connection& connection) const {
    const auto stays = [&](int side) {
      const Rank& rank = at(connection.rankAt(side));
      return !rank.gone && !rank.leaves;
    };
    return !isGroup() && stays(0) && stays(1) && (connection.gone(0) || connection.gone(1));
  }

  void leave(int rank, bool abort) {
    if (at(rank).gone) return;
    at(rank).leaves = true;
    if (at(rank).group) return at(rank).group->abort();
    forTalksOf(rank, [&](Talk& talk, int side) { talk.connection.close(side, abort); });
  }

  // ---- The course of the world.

  void find(Judgement judgement, const char* promise, std::string details) {
    if (result_.findings.size() < kMostFindings) result_.findings.push_back({judgement, promise, std::move(details)});
  }

  // Whether the traffic has ended, or a finding ends the world.
  bool runTraffic() {
    const Duration quiet = std::max(faultsEndAt(script_), trafficEndsAt(script_));
    const TimePoint quietAt = Simulation::kStart + quiet;
    const auto broken = [this] {
      if (++asked_ % kEventsAJudgement == 0) judgeTraffic();
      return storms() || !result_.findings.empty();
    };
    if (simulation_.runUntil(quietAt, broken)) return false;
    for (const auto& talk : talks_) talk->connection.healEdges();
    Duration limit{0};
    for (const auto& talk : talks_) {
      limit = std::max(limit, recoveryLimit(script_, talk->connection.rankAt(0), talk->connection.rankAt(1)));
    }
    const auto over = [&] { return broken() || isSettled(); };
    (void)simulation_.runUntil(quietAt + limit, over);
    if (simulation_.stuck()) find(Judgement::kLiveness, kTime, "a session asks to be woken in the past for ever");
    if (!result_.findings.empty()) return false;
    result_.recovery = std::max(Duration{0}, simulation_.now() - quietAt);
    result_.recoveryShare = static_cast<double>(result_.recovery.count()) / static_cast<double>(limit.count());
    countEnded();
    if (isSettled()) {
      if (leavesInGoodOrder()) {
        simulation_.runFor(trafficEndsAt(script_));  // receives of what was announced last
        judgeDelivery();
      }
      return true;
    }
    find(Judgement::kLiveness, kTraffic, fmt::format("after {} s: {}", limit / seconds(1), unsettled()));
    return false;
  }

  bool storms() {
    if (simulation_.steps() <= kMostEvents) return false;
    find(Judgement::kLiveness, kQuiet, fmt::format("more than {} events", kMostEvents));
    return true;
  }

  void countEnded() {
    for (const auto& talk : talks_) {
      const Connection& connection = talk->connection;
      result_.ended += talk->connection.lives() - 1;
      for (int side = 0; side < Connection::kSides; ++side) {
        if (!connection.gone(side) && connection.state(side) != SessionState::kFailed) continue;
        ++result_.ended;
        break;
      }
    }
  }

  bool isSettled() const {
    return std::all_of(talks_.begin(), talks_.end(), [this](const auto& talk) { return isSettled(*talk); }) &&
           std::all_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return !rank.group || rank.group->left(); });
  }

  bool isSettled(const Talk& talk) const {
    const Connection& connection = talk.connection;
    const bool ended[] = {connection.ended(0), connection.ended(1)};
    if (isGroup()) return true;
    if (awaitsNextLife(connection)) return false;
    if (ended[0] || ended[1]) return ended[0] && ended[1];
    const std::size_t now = talk.conversations.size() - Connection::kSides;
    return connection.state(0) == SessionState::kEstablished && connection.state(1) == SessionState::kEstablished &&
           talk.conversations[now]->done() && talk.conversations[now + 1]->done();
  }

  std::string unsettled() const {
    std::string text;
    for (const auto& talk : talks_) {
      if (isSettled(*talk)) continue;
      const Connection& connection = talk->connection;
      text += fmt::format("ranks {} and {}: states {} and {}", connection.rankAt(0), connection.rankAt(1),
                          static_cast<int>(connection.state(0)), static_cast<int>(connection.state(1)));
      const std::size_t now = talk->conversations.size() - Connection::kSides;
      text += fmt::format(", {}; {}. ", talk->conversations[now]->progress(), talk->conversations[now + 1]->progress());
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].group || ranks_[rank].group->left()) continue;
      text += fmt::format("rank {} is in operation {}. ", rank, ranks_[rank].group->succeeded());
    }
    return text;
  }

  // At moments of their own.
  void closeAll() {
    for (const auto& talk : talks_) {
      const double most = 3.0 * static_cast<double>(talk->connection.roundTrip().count());
      for (int side = 0; side < Connection::kSides; ++side) {
        simulation_.after(Duration(static_cast<Duration::rep>(random_.uniform() * most)),
                          [&talk, side] { talk->connection.close(side, false); });
      }
    }
  }

  void close() {
    if (!isGroup()) closeAll();
    simulation_.runFor(Duration{0});
    const auto drained = [this] {
      return storms() || std::all_of(talks_.begin(), talks_.end(), [](const auto& talk) {
               return talk->connection.ended(0) && talk->connection.ended(1) && talk->connection.drained(0) &&
                      talk->connection.drained(1);
             });
    };
    if (simulation_.runUntil(simulation_.now() + kCloseLimit, drained)) return;
    find(Judgement::kLiveness, kClosing, simulation_.stuck() ? "virtual time stands still" : describeUndrained());
  }

  std::string describeUndrained() const {
    std::string text;
    for (const auto& talk : talks_) {
      for (int side = 0; side < Connection::kSides; ++side) {
        const Connection& connection = talk->connection;
        if (connection.ended(side) && connection.drained(side)) continue;
        text += fmt::format("rank {} towards {}: state {}. ", connection.rankAt(side), connection.rankAt(1 - side),
                            static_cast<int>(connection.state(side)));
      }
    }
    return text;
  }

  // ---- Judgement.

  void judgeTraffic() {
    for (const auto& talk : talks_) {
      const Connection& connection = talk->connection;
      for (const auto& way : talk->conversations) {
        if (!way->faults().empty()) find(Judgement::kSafety, kRightMessages, way->faults().front());
      }
      for (int side = 0; side < Connection::kSides; ++side) {
        const SessionState state = connection.state(side);
        if (state == SessionState::kEstablished && talk->mustNotConnect) {
          find(Judgement::kSafety, kMismatch, fmt::format("rank {} is connected", connection.rankAt(side)));
        }
        if (state != SessionState::kFailed || (isGroup() && mayFail_) || talk->mayEnd) continue;
        find(Judgement::kSafety, kReason,
             fmt::format("rank {} towards {}: {}", connection.rankAt(side), connection.rankAt(1 - side),
                         connection.host(side).session().error().message));
      }
    }
  }

  // Whether an operation may fail for a reason.
  bool mayFail() const {
    if (script_.callTimeout < kLongCall) return true;
    for (const auto& talk : talks_) {
      if (talk->mayEnd) return true;
    }
    return std::any_of(script_.operations.begin(), script_.operations.end(),
                       [](const OperationScript& operation) { return operation.differs >= 0; });
  }

  void judgeEnd() {
    judgeTraffic();
    if (result_.findings.empty()) (void)storms();
    for (const auto& talk : talks_) {
      const Connection& connection = talk->connection;
      for (int side = 0; side < Connection::kSides; ++side) {
        const std::size_t bytes = connection.maxMemoryBytes(side) + talk->hoarded[static_cast<std::size_t>(side)],
                          limit = memoryLimit(script_, connection.rankAt(side));
        result_.memoryBytes = std::max(result_.memoryBytes, bytes);
        if (bytes > limit) find(Judgement::kSafety, kMemory, fmt::format("{} bytes are over {}", bytes, limit));
      }
      for (const auto& way : talk->conversations) {
        way->checkBuffers();
        if (!way->faults().empty()) find(Judgement::kSafety, kRightMessages, way->faults().front());
      }
    }
    if (isGroup()) judgeGroup();
  }

  bool leavesInGoodOrder() const {
    return std::any_of(script_.faults.begin(), script_.faults.end(),
                       [](const FaultScript& fault) { return fault.kind == FaultKind::kClose; });
  }

  // Whoever sees its peer close in good order has all that it sent.
  void judgeDelivery() {
    for (const auto& talk : talks_) {
      if (talk->conversations.empty()) continue;
      const Connection& connection = talk->connection;
      const std::size_t now = talk->conversations.size() - Connection::kSides;
      for (int side = 0; side < Connection::kSides; ++side) {
        if (connection.gone(1 - side) || connection.state(1 - side) != SessionState::kPeerClosed) continue;
        const std::size_t missing = talk->conversations[now + static_cast<std::size_t>(side)]->undelivered();
        if (missing == 0) continue;
        find(Judgement::kSafety, kDelivery,
             fmt::format("rank {} lacks {} messages of rank {}", connection.rankAt(1 - side), missing,
                         connection.rankAt(side)));
      }
    }
  }

  void judgeGroup() {
    std::size_t fewest = SIZE_MAX;  // of ranks that live
    std::size_t ahead = 0;          // what those have started besides
    for (int rank = 0; rank < script_.ranks; ++rank) {
      const GroupRank& group = *at(rank).group;
      for (const std::string& fault : group.faults()) find(Judgement::kSafety, kRightSums, fault);
      if (group.succeeded() < fewest) ahead = 0;
      fewest = std::min(fewest, group.succeeded());
      if (group.succeeded() == fewest) ahead = std::max(ahead, script_.rank(rank).ahead);
      if (mayFail_ || !group.failure()) continue;
      find(Judgement::kSafety, kReason,
           fmt::format("rank {} operation {}: {}", rank, group.succeeded(), group.failure()->message));
    }
    // An operation that needs all ranks cannot end well at one while another has failed before it has started it.
    for (int rank = 0; rank < script_.ranks; ++rank) {
      const std::size_t succeeded = at(rank).group->succeeded();
      for (std::size_t i = fewest + 1 + ahead; i < succeeded; ++i) {
        if (!needsAll(script_.operations[i].kind)) continue;
        find(Judgement::kSafety, kAgreement,
             fmt::format("operation {} has ended well at rank {}, and another rank ended in operation {}", i, rank,
                         fewest));
      }
    }
  }

  static bool needsAll(collectives::Kind kind) {
    using collectives::Kind;
    return kind == Kind::kAllReduce || kind == Kind::kBarrier;
  }

  void count() {
    result_.events = simulation_.steps();
    for (const auto& talk : talks_) {
      result_.keyChanges += talk->connection.keyChanges();
      for (const auto& way : talk->conversations) result_.messages += way->messagesDelivered();
    }
    for (const Rank& rank : ranks_) {
      if (rank.group) result_.operations += rank.group->succeeded();
    }
  }

  Simulation simulation_;
  const Script& script_;
  Random random_;
  std::vector<std::unique_ptr<Talk>> talks_;
  std::vector<Rank> ranks_;
  bool mayFail_ = false;
  std::uint64_t asked_ = 0;
  WorldResult result_;
};

}  // namespace

const char* nameOf(Judgement judgement) { return judgement == Judgement::kSafety ? "safety" : "liveness"; }

WorldResult runWorld(const Script& script) { return World(script).run(); }

}  // namespace gloo_bypass::sim
