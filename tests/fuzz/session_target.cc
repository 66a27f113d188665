#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/script.h"
#include "transport/base/check.h"
#include "transport/core/session.h"
#include "transport/security/packet_protection.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::fuzz {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kDatagramBytes = 1472;
constexpr std::size_t kMaxQueued = 64;       // datagrams on the way; more are lost
constexpr std::size_t kMaxOperations = 256;  // of the user, in one script
constexpr std::size_t kMaxMessageBytes = 20'000;
constexpr int kMaxDatagramsAtOnce = 5'000;  // more without time passing is a loop
constexpr std::size_t kMemoryBound = 24u << 20;
// Of sealed sessions: short scripts reach several keys, and few forgeries end a session.
constexpr security::ProtectionLimits kSealLimits{.packetsPerKey = 12, .mostPacketsPerKey = 2'000, .mostForgeries = 40};
constexpr std::size_t kMostNumbersSkipped = 64;

using Datagram = std::vector<std::byte>;
using security::PacketProtection;

security::Secret secretOf(std::uint64_t direction) {
  security::Secret secret;
  std::memcpy(secret.writable().data(), &direction, sizeof direction);
  return secret;
}

SessionConfig configOf(std::uint8_t choice) {
  SessionConfig config;
  config.losslessLink = (choice & 1) != 0;
  config.shortPathEagerBytes = 16 << 10;
  config.maxBufferBytes = 64 << 10;
  config.rendezvousBytes = 2 << 10;
  config.congestionControl = static_cast<CongestionControl>((choice >> 1) & 3);
  config.fixedWindowBytes = 32 << 10;
  if ((choice & 8) != 0) config.longPathRtt = config.bbrRtt = std::chrono::nanoseconds(1);
  if ((choice & 32) != 0) config.repair = {Repair::Mode::kOn, (choice & 64) != 0 ? 25u : 0u};
  return config;
}

// A datagram on its way, and sealed where the sessions are: whoever has the key alters what is plain, whoever is on the
// path what is sealed.
struct Sent {
  Datagram plain, sealed;
};

class Side {
 public:
  Side(const SessionConfig& config, std::uint64_t id, const Session* lead = nullptr)
      : session(config, id, id * 77, lead), id(id) {}

  // Before connect(): seals what it sends to `peer`, and opens what comes from there.
  void seal(std::uint64_t peer) {
    session.markSealed();
    protection = std::make_unique<PacketProtection>(
        secretOf(id), secretOf(peer), id < peer ? security::KeyChanges::kBegins : security::KeyChanges::kFollows,
        security::makeAead, kSealLimits);
  }
  // As it travels; empty: the keys are used up.
  Datagram onWire(const Datagram& plain) {
    if (!protection || plain.size() < wire::kSealedHeaderBytes) return plain;
    Datagram sealed(plain.size() + PacketProtection::kOverheadBytes);
    const auto header = std::span(plain).first(wire::kSealedHeaderBytes);
    sealed.resize(protection->seal(header, std::span(plain).subspan(wire::kSealedHeaderBytes), sealed.data()));
    endIfSpent();
    return sealed;
  }
  void endIfSpent() {
    if (!protection->spent()) return;
    session.fail({ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol, "the keys are used up"}, /*tellPeer=*/false);
  }

  void post(Script& script, bool send) {
    if (operations_ >= kMaxOperations) return;
    const std::size_t bytes = script.word() % kMaxMessageBytes;
    const MessageKey key{static_cast<MessageKind>(script.byte() & 1), script.byte() % 4u};
    // Every buffer is an allocation of exactly its size, so that access beyond it is detected. They outlive the
    // session.
    buffers_.push_back(std::make_unique<std::byte[]>(bytes));
    const OperationToken token = operations_++;
    if (send) {
      (void)session.postSend({token, key, buffers_.back().get(), bytes, script.byte()}).ok();
    } else {
      (void)session.postReceive({token, key, buffers_.back().get(), bytes, (script.byte() & 7) == 0}).ok();
    }
  }

  // False: the port refused a datagram, and the session still has it.
  bool collect(TimePoint now) {
    SessionEvent event;
    SessionDatagram out;
    int datagrams = 0;
    for (bool more = true; more;) {
      more = false;
      while (session.pollEvent(&event)) more = true;
      while (session.pollTransmit(now, &out)) {
        more = true;
        GLOO_BYPASS_CHECK(++datagrams < kMaxDatagramsAtOnce);
        GLOO_BYPASS_CHECK(out.header.size() + out.payload.size() <= wire::kMaxDatagramBytes);
        if (refuse_) {  // as a full port does, once
          refuse_ = false;
          session.undoTransmit();
          return false;
        }
        Datagram plain(out.header.begin(), out.header.end());
        plain.insert(plain.end(), out.payload.begin(), out.payload.end());
        Datagram sealed = onWire(plain);
        if (sent.size() < kMaxQueued) sent.push_back({std::move(plain), std::move(sealed)});
      }
    }
    GLOO_BYPASS_CHECK(session.memoryBytes() < kMemoryBound);
    return true;
  }
  void refuseNext() { refuse_ = true; }

  Session session;
  const std::uint64_t id;
  std::unique_ptr<PacketProtection> protection;  // null: nothing is sealed
  std::deque<Sent> sent;

 private:
  std::vector<std::unique_ptr<std::byte[]>> buffers_;
  std::size_t operations_ = 0;
  bool refuse_ = false;
};

// An end of the pair: its sessions, the lead first.
using End = std::deque<Side>;

class FuzzedPair {
 public:
  FuzzedPair(std::uint8_t choice, std::size_t paths, bool sealed = false) {
    addPaths(a_, choice, 11, paths);
    addPaths(b_, choice, 22, paths);
    for (std::size_t path = 0; sealed && path < paths; ++path) {
      a_[path].seal(b_[path].id);
      b_[path].seal(a_[path].id);
    }
    if ((choice & 16) != 0) return;  // the script connects
    for (std::size_t path = 0; path < paths; ++path) {
      connect(a_[path], b_[path]);
      connect(b_[path], a_[path]);
    }
    settle();
  }

  // Delivers everything both ways for a while, so that scripts begin with a connected pair.
  void settle() {
    for (int i = 0; i < 8; ++i) {
      collect();
      for (std::size_t path = 0; path < a_.size(); ++path) {
        while (!a_[path].sent.empty()) deliver(a_[path], b_[path]);
        while (!b_[path].sent.empty()) deliver(b_[path], a_[path]);
      }
      now_ += microseconds(20);
    }
  }

  void step(Script& script) {
    const std::uint8_t code = script.byte();
    const std::size_t path = (code >> 5 & 3u) % a_.size();
    End& own = (code & 0x80) != 0 ? b_ : a_;
    Side& here = own[path];
    Side& there = ((code & 0x80) != 0 ? a_ : b_)[path];
    Side& lead = own.front();  // what a user calls
    switch (code & 0x1f) {
      case 0:
      case 1:
      case 2:
        deliver(here, there);
        break;
      case 3:
        drop(here);
        break;
      case 4:
        repeat(here, there);
        break;
      case 5:
        alter(script, here, there, true);
        break;
      case 6:
        alter(script, here, there, false);
        break;
      case 7:
        invent(script, here, there);
        break;
      case 8:
      case 9:
      case 10:
        lead.post(script, true);
        break;
      case 11:
      case 12:
      case 13:
        lead.post(script, false);
        break;
      case 14:
        (void)lead.session.cancelSend(script.byte());
        break;
      case 15:
        (void)lead.session.cancelReceive(script.byte());
        break;
      case 16:
        pass(microseconds(script.word()));
        break;
      case 17:
        pass(std::chrono::milliseconds(script.word()));
        break;
      case 18:
        lead.session.close(now_, (script.byte() & 1) != 0);
        break;
      case 19:
        here.refuseNext();
        break;
      case 20:
        connect(here, there);
        break;
      case 21:
        reorder(here);
        break;
      case 22:
        settle();
        break;
      case 23:
        splice(script, here, there);
        break;
      case 24:
        skipNumbers(script, here);
        break;
      default:
        deliver(here, there);
        break;
    }
    collect();
  }

 private:
  static void addPaths(End& end, std::uint8_t choice, std::uint64_t id, std::size_t paths) {
    // Links that lose nothing have no rails.
    SessionConfig config = configOf(choice);
    config.losslessLink = config.losslessLink && paths == 1;
    for (std::size_t path = 0; path < paths; ++path) {
      end.emplace_back(config, id + 100 * path, path == 0 ? nullptr : &end.front().session);
    }
  }

  // What one session does may be for the others of its end. A rail that fails takes its lead with it.
  void collect(End& end) {
    for (std::size_t round = 0; round < 2; ++round) {
      for (Side& side : end) {
        side.collect(now_);
        if (&side != &end.front() && side.session.state() == SessionState::kFailed) {
          end.front().session.fail(side.session.error(), /*tellPeer=*/true);
        }
      }
      if (end.size() == 1) return;
    }
  }
  void collect() {
    collect(a_);
    collect(b_);
  }

  void connect(Side& here, const Side& there) {
    const std::size_t overhead = here.protection ? PacketProtection::kOverheadBytes : 0;
    here.session.connect(now_, there.id, kDatagramBytes - overhead);
  }

  // `plain`: what a sealed datagram must give if it opens; null: nobody has sealed it, and it must not.
  void hand(Side& to, const Datagram& onWire, const Datagram* plain) {
    // A copy of exactly this size, so that reading beyond it is detected.
    Datagram exact(onWire.begin(), onWire.end());
    if (to.protection) {
      Datagram opened(exact.size());
      const auto verdict = to.protection->open(exact, opened.data());
      to.endIfSpent();
      if (verdict != PacketProtection::Verdict::kOpened) return;
      opened.resize(opened.size() - PacketProtection::kOverheadBytes);
      const auto sameFrom = [](const Datagram& of) { return std::span(of).subspan(wire::kSealedHeaderBytes); };
      GLOO_BYPASS_CHECK(plain != nullptr && std::ranges::equal(sameFrom(opened), sameFrom(*plain)));
      exact = Datagram(opened.begin(), opened.end());
    }
    to.session.handleDatagram(now_, exact);
    to.collect(now_);
  }
  // What whoever has the sender's key makes of it. Sealed datagrams need no checksums; to plain ones they are mended.
  void handMade(Side& from, Side& to, Datagram& plain) {
    fixChecksums(plain);
    hand(to, from.onWire(plain), &plain);
  }

  void deliver(Side& from, Side& to) {
    if (from.sent.empty()) return;
    const Sent datagram = std::move(from.sent.front());
    from.sent.pop_front();
    hand(to, datagram.sealed, &datagram.plain);
  }
  static void drop(Side& from) {
    if (!from.sent.empty()) from.sent.pop_front();
  }
  void repeat(Side& from, Side& to) {
    if (from.sent.empty()) return;
    const Sent datagram = from.sent.front();
    hand(to, datagram.sealed, &datagram.plain);
  }
  static void reorder(Side& from) {
    if (from.sent.size() < 2) return;
    from.sent.push_back(std::move(from.sent.front()));
    from.sent.pop_front();
  }
  // A peer may leave out packet numbers; it comes to its next key sooner so.
  static void skipNumbers(Script& script, Side& from) {
    if (!from.protection) return;
    const Datagram nothing(wire::kCommonHeaderBytes);
    for (std::size_t left = script.byte() % kMostNumbersSkipped; left > 0; --left) (void)from.onWire(nothing);
  }

  // Changes a few bytes of a real datagram: behind its seal and with correct checksums, as a malicious peer could, or
  // as it travels.
  void alter(Script& script, Side& from, Side& to, bool asPeer) {
    if (from.sent.empty()) return;
    Sent datagram = std::move(from.sent.front());
    from.sent.pop_front();
    Datagram& bytes = asPeer || !from.protection ? datagram.plain : datagram.sealed;
    const Datagram before = bytes;
    const int changes = 1 + script.byte() % 4;
    for (int i = 0; i < changes && !bytes.empty(); ++i) {
      // Mostly in the headers, since they matter most.
      const std::size_t at = script.byte() % std::min<std::size_t>(bytes.size(), 160);
      bytes[at] = static_cast<std::byte>(script.byte());
    }
    if (asPeer) return handMade(from, to, bytes);
    hand(to, bytes, bytes == before ? &datagram.plain : nullptr);
  }

  // Copies a field of one datagram into another.
  void splice(Script& script, Side& from, Side& to) {
    if (from.sent.size() < 2) return;
    Datagram datagram = from.sent[0].plain;
    const Datagram& donor = from.sent[1].plain;
    const std::size_t begin = script.byte() % datagram.size();
    const std::size_t end = std::min({begin + script.byte() % 32, datagram.size(), donor.size()});
    for (std::size_t i = begin; i < end; ++i) datagram[i] = donor[i];
    handMade(from, to, datagram);
  }

  void invent(Script& script, Side& from, Side& to) {
    wire::PacketHeader header;
    static constexpr wire::FrameType kTypes[] = {
        wire::FrameType::kHello,      wire::FrameType::kAck,    wire::FrameType::kProbe,
        wire::FrameType::kProbeReply, wire::FrameType::kReset,  wire::FrameType::kData,
        wire::FrameType::kAnnounce,   wire::FrameType::kGrant,  wire::FrameType::kWithdraw,
        wire::FrameType::kClose,      wire::FrameType::kCredit, wire::FrameType::kRepair,
        wire::FrameType::kPiece,      wire::FrameType::kChunk,  wire::FrameType::kGrantedChunk};
    header.type = kTypes[script.byte() % std::size(kTypes)];
    header.receiverId = to.id;
    wire::PacketWriter writer;
    writer.begin(header);
    const std::span<const std::byte> common = writer.finish();
    Datagram datagram(common.begin(), common.end());
    datagram.resize(wire::kCommonHeaderBytes);
    // The rest of the header as the script says; flags and number of ranges included.
    const auto raw = script.take(wire::kCommonHeaderBytes - 20);
    std::memcpy(datagram.data() + 20, raw.data(), raw.size());
    datagram[16] = static_cast<std::byte>(script.byte());
    datagram[17] = static_cast<std::byte>(script.byte() % 4);
    const auto rest = script.take(script.byte());
    const std::size_t headerBytes = wire::kCommonHeaderBytes + std::min<std::size_t>(rest.size(), script.byte());
    for (const std::uint8_t each : rest) datagram.push_back(static_cast<std::byte>(each));
    datagram[18] = static_cast<std::byte>(headerBytes & 0xff);
    datagram[19] = static_cast<std::byte>(headerBytes >> 8);
    handMade(from, to, datagram);
  }

  // Lets time pass; runs timers when they are due. No timer may ask for the past once it has run.
  void pass(Duration duration) {
    const TimePoint until = now_ + duration;
    for (int i = 0; i < 200; ++i) {
      const TimePoint next = nextTimeout();
      if (next > until) break;
      now_ = std::max(now_, next);
      for (End* end : {&a_, &b_}) {
        for (Side& side : *end) {
          if (side.session.pollTimeout() > now_) continue;
          side.session.handleTimeout(now_);
          if (!side.collect(now_)) continue;
          GLOO_BYPASS_CHECK(side.session.pollTimeout() > now_);
        }
        if (end->size() > 1) collect(*end);
      }
    }
    now_ = std::max(now_, until);
    for (End* end : {&a_, &b_}) {
      for (Side& side : *end) {
        if (side.session.pollTimeout() <= now_) side.session.handleTimeout(now_);
      }
    }
  }

  TimePoint nextTimeout() const {
    TimePoint next = kNever;
    for (const End* end : {&a_, &b_}) {
      for (const Side& side : *end) next = std::min(next, side.session.pollTimeout());
    }
    return next;
  }

  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  End a_, b_;
};

}  // namespace

void fuzzSession(std::span<const std::uint8_t> input) {
  Script script(input);
  FuzzedPair pair(script.byte(), 1);
  for (int steps = 0; !script.done() && steps < 2000; ++steps) pair.step(script);
}

void fuzzSealed(std::span<const std::uint8_t> input) {
  Script script(input);
  const std::uint8_t choice = script.byte();
  FuzzedPair pair(choice, 1 + (choice >> 7), /*sealed=*/true);
  for (int steps = 0; !script.done() && steps < 2000; ++steps) pair.step(script);
}

void fuzzRails(std::span<const std::uint8_t> input) {
  Script script(input);
  const std::uint8_t choice = script.byte();
  FuzzedPair pair(choice, 2 + (choice >> 7));
  for (int steps = 0; !script.done() && steps < 2000; ++steps) pair.step(script);
}

}  // namespace gloo_bypass::fuzz
