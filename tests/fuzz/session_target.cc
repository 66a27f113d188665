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
  Side(const SessionConfig& config, std::uint64_t id) : session(config, id, id * 77), id(id) {}

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

class FuzzedPair {
 public:
  explicit FuzzedPair(std::uint8_t choice) : a_(configOf(choice), 11), b_(configOf(choice), 22) {
    if ((choice & 16) != 0) return;  // the script connects
    a_.session.connect(now_, b_.id, kDatagramBytes);
    b_.session.connect(now_, a_.id, kDatagramBytes);
    settle();
  }

  // Delivers everything both ways for a while, so that scripts begin with a connected pair.
  void settle() {
    for (int i = 0; i < 8; ++i) {
      collect();
      while (!a_.sent.empty()) deliver(a_, b_);
      while (!b_.sent.empty()) deliver(b_, a_);
      now_ += microseconds(20);
    }
  }

  void step(Script& script) {
    const std::uint8_t code = script.byte();
    Side& here = (code & 0x80) != 0 ? b_ : a_;
    Side& there = (code & 0x80) != 0 ? a_ : b_;
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
        here.post(script, true);
        break;
      case 11:
      case 12:
      case 13:
        here.post(script, false);
        break;
      case 14:
        (void)here.session.cancelSend(script.byte());
        break;
      case 15:
        (void)here.session.cancelReceive(script.byte());
        break;
      case 16:
        pass(microseconds(script.word()));
        break;
      case 17:
        pass(std::chrono::milliseconds(script.word()));
        break;
      case 18:
        here.session.close(now_, (script.byte() & 1) != 0);
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
  void collect() {
    a_.collect(now_);
    b_.collect(now_);
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
      const TimePoint next = std::min(a_.session.pollTimeout(), b_.session.pollTimeout());
      if (next > until) break;
      now_ = std::max(now_, next);
      for (Side* side : {&a_, &b_}) {
        if (side->session.pollTimeout() > now_) continue;
        side->session.handleTimeout(now_);
        if (!side->collect(now_)) continue;
        GLOO_BYPASS_CHECK(side->session.pollTimeout() > now_);
      }
    }
    now_ = std::max(now_, until);
    for (Side* side : {&a_, &b_}) {
      if (side->session.pollTimeout() <= now_) side->session.handleTimeout(now_);
    }
  }

  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  Side a_, b_;
};

}  // namespace

void fuzzSession(std::span<const std::uint8_t> input) {
  Script script(input);
  FuzzedPair pair(script.byte());
  for (int steps = 0; !script.done() && steps < 2000; ++steps) pair.step(script);
}

}  // namespace gloo_bypass::fuzz
