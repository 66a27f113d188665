// Seals the datagrams of one session on one path, and opens the peer's (RFC 9001, 5.3 and 6, with a header of our own):
// AES-128-GCM with one key for each direction, a packet number for each datagram, and a replay window.
//
//   plain     wire/packet.h: 16 bytes before the flags | the rest of the header | payload
//   sealed    wire/sealed_packet.h: 16 bytes           | the same, encrypted              | tag 16
//
// Nonce: the direction's IV xor the 64-bit packet number; the low half travels. Associated data: the sealed header.
//
// Key change. One end begins all of them: it moves on to its next key after `packetsPerKey` datagrams either way, if
// the peer has been heard in the phase that it is in. The header's bit says which of two phases a datagram is of. The
// other end moves on when it opens a datagram of the next phase: so hearing it shows that it has that key, and no end
// is ever two phases behind. Nobody waits: datagrams of the phase before, under way meanwhile, still open.
//
//   number before the first of this phase, other bit -> the key of the phase before
//   this phase's bit                                 -> this key
//   else                                             -> the next key; it opened: the next phase begins
//
// The key before is dropped once the replay window has passed its last number.
//
// Pure. Owner: one session; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "transport/security/aead.h"
#include "transport/security/replay_window.h"
#include "transport/security/secret.h"
#include "transport/wire/sealed_packet.h"

namespace gloo_bypass::security {

struct ProtectionLimits {
  // RFC 9001, 6.6, allows 2^23 datagrams under one key of AES-128-GCM, and 2^52 that are not authentic over all keys.
  std::uint64_t packetsPerKey = 1u << 20;
  std::uint64_t mostPacketsPerKey = 1u << 23;
  std::uint64_t mostForgeries = std::uint64_t{1} << 52;
};

// Which end of a session begins key changes: exactly one does.
enum class KeyChanges : std::uint8_t { kBegins, kFollows };

class PacketProtection {
 public:
  // The two directions' secrets (key_agreement.h).
  PacketProtection(const Secret& send, const Secret& receive, KeyChanges changes, MakeAead make = makeAead,
                   const ProtectionLimits& limits = {});
  ~PacketProtection();

  static constexpr std::size_t kOverheadBytes = wire::kSealTagBytes;

  // Seals a plain datagram into `out`, which has room for kOverheadBytes more; returns the sealed length. Each call
  // takes a new packet number, whether the datagram is sent or not. 0: spent().
  std::size_t seal(std::span<const std::byte> header, std::span<const std::byte> payload, std::byte* out);
  // What seal() gave last has not been sent and never will be: it does not count for the key's limits.
  void undo() {
    if (sending_.sealed > 0) --sending_.sealed;
  }

  enum class Verdict : std::uint8_t {
    kOpened,
    kNotSealed,  // a plain datagram, another version, or too short
    kReplayed,   // its number was opened before, or is too old to tell
    kForged,     // not sealed by the peer
  };
  // Opens `datagram`, at most wire::kMaxDatagramBytes, into `out`, which has as many bytes. kOpened: the plain datagram
  // is `out`'s first datagram.size() - kOverheadBytes bytes; its header has no checksum. Else nothing in `out` is
  // valid.
  Verdict open(std::span<const std::byte> datagram, std::byte* out);

  // A limit is reached: nothing is sealed or opened any more.
  bool spent() const { return spent_; }
  std::uint64_t sendPhase() const { return sending_.phase; }
  std::uint64_t receivePhase() const { return receivePhase_; }

 private:
  struct Key {
    std::unique_ptr<Aead> aead;
    Nonce iv{};
  };
  struct Sending {
    Secret secret;
    Key key;
    std::uint64_t phase = 0, sealed = 0;  // in this phase
  };

  Key keyOf(const Secret& secret) const;
  void nextSendPhase();
  void nextReceivePhase(std::uint64_t number);
  // Null: there is none.
  Key* keyFor(std::uint64_t number, bool phaseBit);

  const MakeAead make_;
  const KeyChanges changes_;
  const ProtectionLimits limits_;
  bool spent_ = false;
  Sending sending_;
  std::uint64_t nextNumber_ = 0;

  Secret nextSecret_;  // of `next_`
  Key previous_, current_, next_;
  std::uint64_t receivePhase_ = 0;
  std::uint64_t opened_ = 0;                 // in this phase
  std::uint64_t firstOfPhase_ = UINT64_MAX;  // the lowest number opened in this phase
  ReplayWindow window_;
  std::uint64_t forgeries_ = 0;
};

}  // namespace gloo_bypass::security
