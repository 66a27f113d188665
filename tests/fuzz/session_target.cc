#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>

#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/core/session.h"
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

class Script {
 public:
  explicit Script(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool done() const { return at_ >= bytes_.size(); }
  std::uint8_t byte() { return done() ? 0 : bytes_[at_++]; }
  std::uint16_t word() { return static_cast<std::uint16_t>(byte() | byte() << 8); }
  std::span<const std::uint8_t> take(std::size_t count) {
    count = std::min(count, bytes_.size() - std::min(at_, bytes_.size()));
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

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

class Side {
 public:
  Side(const SessionConfig& config, std::uint64_t id, const Session* lead = nullptr)
      : session(config, id, id * 77, lead), id(id) {}

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
        std::vector<std::byte> datagram(out.header.begin(), out.header.end());
        datagram.insert(datagram.end(), out.payload.begin(), out.payload.end());
        if (sent.size() < kMaxQueued) sent.push_back(std::move(datagram));
      }
    }
    GLOO_BYPASS_CHECK(session.memoryBytes() < kMemoryBound);
    return true;
  }
  void refuseNext() { refuse_ = true; }

  Session session;
  const std::uint64_t id;
  std::deque<std::vector<std::byte>> sent;

 private:
  std::vector<std::unique_ptr<std::byte[]>> buffers_;
  std::size_t operations_ = 0;
  bool refuse_ = false;
};

// An end of the pair: its sessions, the lead first.
using End = std::deque<Side>;

class FuzzedPair {
 public:
  FuzzedPair(std::uint8_t choice, std::size_t paths) {
    addPaths(a_, choice, 11, paths);
    addPaths(b_, choice, 22, paths);
    if ((choice & 16) != 0) return;  // the script connects
    for (std::size_t path = 0; path < paths; ++path) {
      a_[path].session.connect(now_, b_[path].id, kDatagramBytes);
      b_[path].session.connect(now_, a_[path].id, kDatagramBytes);
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
        invent(script, there);
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
        here.session.connect(now_, there.id, kDatagramBytes);
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

  void hand(Side& to, const std::vector<std::byte>& datagram) {
    // A copy of exactly this size, so that reading beyond it is detected.
    const std::vector<std::byte> exact(datagram.begin(), datagram.end());
    to.session.handleDatagram(now_, exact);
    to.collect(now_);
  }

  void deliver(Side& from, Side& to) {
    if (from.sent.empty()) return;
    const std::vector<std::byte> datagram = std::move(from.sent.front());
    from.sent.pop_front();
    hand(to, datagram);
  }
  static void drop(Side& from) {
    if (!from.sent.empty()) from.sent.pop_front();
  }
  void repeat(Side& from, Side& to) {
    if (!from.sent.empty()) hand(to, std::vector<std::byte>(from.sent.front()));
  }
  static void reorder(Side& from) {
    if (from.sent.size() < 2) return;
    from.sent.push_back(std::move(from.sent.front()));
    from.sent.pop_front();
  }

  // Changes a few bytes of a real datagram; with correct checksums, a malicious peer could send it.
  void alter(Script& script, Side& from, Side& to, bool fix) {
    if (from.sent.empty()) return;
    std::vector<std::byte> datagram = std::move(from.sent.front());
    from.sent.pop_front();
    const int changes = 1 + script.byte() % 4;
    for (int i = 0; i < changes && !datagram.empty(); ++i) {
      // Mostly in the headers, since they matter most.
      const std::size_t at = script.byte() % std::min<std::size_t>(datagram.size(), 160);
      datagram[at] = static_cast<std::byte>(script.byte());
    }
    if (fix) fixChecksums(datagram);
    hand(to, datagram);
  }

  // Copies a field of one datagram into another.
  void splice(Script& script, Side& from, Side& to) {
    if (from.sent.size() < 2) return;
    std::vector<std::byte> datagram = from.sent[0];
    const std::vector<std::byte>& donor = from.sent[1];
    const std::size_t begin = script.byte() % datagram.size();
    const std::size_t end = std::min({begin + script.byte() % 32, datagram.size(), donor.size()});
    for (std::size_t i = begin; i < end; ++i) datagram[i] = donor[i];
    fixChecksums(datagram);
    hand(to, datagram);
  }

  void invent(Script& script, Side& to) {
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
    std::vector<std::byte> datagram(common.begin(), common.end());
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
    fixChecksums(datagram);
    hand(to, datagram);
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

void fuzzRails(std::span<const std::uint8_t> input) {
  Script script(input);
  const std::uint8_t choice = script.byte();
  FuzzedPair pair(choice, 2 + (choice >> 7));
  for (int steps = 0; !script.done() && steps < 2000; ++steps) pair.step(script);
}

}  // namespace gloo_bypass::fuzz
