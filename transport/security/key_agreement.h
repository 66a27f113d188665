// How two ranks get the keys of a session, before its first datagram (RFC 8446, 7.1, with labels of our own).
//
//   each rank   a fresh X25519 key; the public part is in its offer, which goes to the peer with its address
//   early       HKDF-Extract(0, pre-shared key; without one 32 zeros)
//   session     HKDF-Expand-Label(HKDF-Extract(HKDF-Expand-Label(early, "derived"), X25519), "gb session", transcript)
//   traffic     HKDF-Expand-Label(session, "gb traffic", the sender's session id | rail)
//   key, IV     HKDF-Expand-Label(traffic, "gb key", "gb iv"); after a key change of its "gb ku"
//   token       HKDF-Expand-Label(session, "gb says", the sender's session id | what it says)
//
// The transcript is SHA-256 of the job's name and of both ranks' numbers, addresses and offers, lower session id first.
// So whoever exchanges, changes or repeats a part of what travels through the rendezvous store gets other keys.
//
// Without a pre-shared key this holds off everyone who cannot write to the store; with one also those who can.
//
// A rank may have two pre-shared keys, the one it prefers first, while users replace one by the other. The session's is
// one that both ranks have; if they have both keys, the rank with the lower session id says by its order which.
//
// A proof in an offer is an HMAC over the address and the offer before the proofs, with a key made from one pre-shared
// key. Proofs tell ranks with different keys, jobs or ranks apart when they connect, in one line. They show nothing of
// the keys, which have 256 random bits.
//
//   the offer, little-endian: u8 version 2 | u8 number of pre-shared keys, 0 to 2 | public key 32
//                             | proof 16 with each key, or one without a key
//
// Pure: the private key comes in as 32 random bytes. Owner: one session; one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/status.h"
#include "transport/security/key_exchange.h"
#include "transport/security/secret.h"

namespace gloo_bypass::security {

inline constexpr std::size_t kProofBytes = 16, kTokenBytes = 16;
using Token = std::array<std::byte, kTokenBytes>;
inline constexpr std::size_t kMaxPreSharedKeys = 2;
inline constexpr std::size_t kProofsBegin = 2 + sizeof(PublicKey);
inline constexpr std::size_t kLongestOffer = kProofsBegin + kMaxPreSharedKeys * kProofBytes;

// What the sessions of one process share.
struct Credentials {
  std::vector<Secret> preSharedKeys;  // at most kMaxPreSharedKeys, the preferred one first
  std::string job;
};

// One rank's part: its address in the store without the offer, and the session id in it.
struct Party {
  std::uint64_t sessionId = 0;
  std::vector<std::byte> address;
};

// Their numbers, as each rank knows them.
struct Ranks {
  int own = -1, peer = -1;
};

class KeyAgreement {
 public:
  KeyAgreement(std::shared_ptr<const Credentials> credentials, Party own, Ranks ranks, const Secret& privateKey);

  const std::vector<std::byte>& offer() const { return offer_; }
  // `peer` and `offer`: hostile bytes from the store. The error names what the two ranks must have alike; it can be
  // called again then. Once it has used the private key that is gone, and another call is an error.
  Status accept(const Party& peer, std::span<const std::byte> offer);

  // After accept(): of what the session with `senderId` (the first rail's) sends over `rail`.
  Secret trafficSecret(std::uint64_t senderId, std::size_t rail) const;
  // The same: what the session with `senderId` shows to prove that it says `what`, at most 100 characters. Only the two
  // ranks know it; whoever sees it can repeat it, so it says the same thing for the whole life of the session.
  Token token(std::uint64_t senderId, std::string_view what) const;
  std::uint64_t ownId() const { return own_.sessionId; }
  std::uint64_t peerId() const { return peerId_; }

 private:
  using Proof = std::array<std::byte, kProofBytes>;
  bool hasKey() const { return !credentials_->preSharedKeys.empty(); }
  Proof proofOf(const Secret& early, const Party& party, Ranks ranks, std::span<const std::byte> beforeProofs) const;
  // The early secret of the pre-shared key that this session uses; nullptr: the ranks have none in common.
  const Secret* common(const Party& peer, std::span<const std::byte> beforeProofs, std::span<const Proof> proofs) const;
  Secret transcript(const Party& peer, std::span<const std::byte> peerOffer) const;

  const std::shared_ptr<const Credentials> credentials_;
  const Party own_;
  const Ranks ranks_;
  std::uint64_t peerId_ = 0;
  std::vector<Secret> early_;         // of each pre-shared key, in their order
  std::optional<Secret> privateKey_;  // nullopt: accept() has used it
  std::vector<std::byte> offer_;
  std::optional<Secret> session_;
};

}  // namespace gloo_bypass::security
