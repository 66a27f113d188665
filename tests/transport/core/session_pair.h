// Two sessions joined by two wires in virtual time. Deterministic: every fault comes from the seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <span>
#include <vector>

#include "transport/core/session.h"

namespace gloo_bypass::test {

using Bytes = std::vector<std::byte>;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct WireModel {
  Duration delay = microseconds(5);
  Duration jitter{0};  // uniform, so that datagrams overtake each other
  double loss = 0, duplicate = 0, corrupt = 0;
  double bytesPerSecond = 0;               // 0: any
  Duration queueLimit = milliseconds(50);  // longer: dropped; only with a rate
  std::size_t maxDatagramBytes = 1472, firstDatagramBytes = 1472;
  std::size_t carriesBytes = 65535;  // larger datagrams vanish, as on a path with a smaller MTU
  std::size_t refuseEvery = 0;       // each n-th transmit is refused by the port
};

struct Side {
  std::unique_ptr<Session> session;
  std::vector<SessionEvent> events;
  std::size_t sendsCompleted = 0, receivesCompleted = 0;
  std::vector<OperationToken> received;
  std::vector<SessionEvent> announced;
  std::vector<SessionState> states;
  std::size_t refused = 0, transmits = 0;
};

class SessionPair {
 public:
  explicit SessionPair(std::uint64_t seed, const SessionConfig& config = {}, const WireModel& wire = {})
      : SessionPair(seed, config, config, wire) {}
  SessionPair(std::uint64_t seed, const SessionConfig& a, const SessionConfig& b, const WireModel& wire);

  void connectBoth();
  // Until `done` or `limit` of virtual time passes; returns done().
  template <typename F>
  bool runUntil(F&& done, Duration limit = seconds(60)) {
    const TimePoint end = now + limit;
    while (!done()) {
      if (!step(end)) return done();
    }
    return true;
  }
  void runFor(Duration time) {
    runUntil([] { return false; }, time);
  }
  bool established() const {
    return a.session->state() == SessionState::kEstablished && b.session->state() == SessionState::kEstablished;
  }
  // Handles everything that is ready at `now`.
  void flush();

  WireModel wire;
  // Called for each datagram before it leaves; may change it. `fromA`: from side a. False: it is lost.
  std::function<bool(bool fromA, Bytes& datagram)> onLeave;
  TimePoint now{seconds(1000)};
  Side a, b;
  std::uint64_t datagrams = 0;
  std::uint64_t dataFrames = 0, checkedFrames = 0;  // of data; of these with a checksum of the payload

  static constexpr std::uint64_t kIdA = 0x1111222233334444ull, kIdB = 0x5555666677778888ull;

 private:
  struct Flight {
    TimePoint at;
    std::uint64_t number;
    Side* to;
    Bytes bytes;
    bool operator>(const Flight& other) const { return at != other.at ? at > other.at : number > other.number; }
  };
  bool step(TimePoint end);
  bool flushSide(Side& side, Side& other, int direction);
  void carry(Side& to, int direction, const SessionDatagram& datagram);

  std::mt19937_64 random_;
  std::priority_queue<Flight, std::vector<Flight>, std::greater<>> flights_;
  TimePoint busyUntil_[2] = {};
};

// Content that depends on its position.
Bytes pattern(std::size_t length, std::uint64_t seed);

}  // namespace gloo_bypass::test
