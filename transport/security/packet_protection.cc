#include "transport/security/packet_protection.h"

#include <algorithm>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/sequence.h"
#include "transport/security/hkdf.h"

namespace gloo_bypass::security {
namespace {

Secret nextOf(const Secret& secret) { return deriveSecret(secret, "gb ku", {}); }

// RFC 9001, 5.3: the IV xor the number, big-endian at its end.
Nonce nonceOf(const Nonce& iv, std::uint64_t number) {
  Nonce nonce = iv;
  for (std::size_t i = 0; i < sizeof number; ++i) {
    nonce[nonce.size() - 1 - i] ^= static_cast<std::byte>(number >> (8 * i) & 0xff);
  }
  return nonce;
}

}  // namespace

PacketProtection::PacketProtection(const Secret& send, const Secret& receive, KeyChanges changes, MakeAead make,
                                   const ProtectionLimits& limits)
    : make_(make), changes_(changes), limits_(limits), nextSecret_(nextOf(receive)) {
  sending_.secret = send;
  sending_.key = keyOf(send);
  current_ = keyOf(receive);
  next_ = keyOf(nextSecret_);
}

PacketProtection::~PacketProtection() {
  for (Key* key : {&sending_.key, &previous_, &current_, &next_}) wipe(key->iv);
}

PacketProtection::Key PacketProtection::keyOf(const Secret& secret) const {
  AeadKey bytes;
  expandLabel(secret, "gb key", {}, bytes);
  Key key{.aead = make_(bytes)};
  wipe(bytes);
  expandLabel(secret, "gb iv", {}, key.iv);
  return key;
}

void PacketProtection::nextSendPhase() {
  sending_.secret = nextOf(sending_.secret);
  sending_.key = keyOf(sending_.secret);
  ++sending_.phase;
  sending_.sealed = 0;
}

std::size_t PacketProtection::seal(std::span<const std::byte> header, std::span<const std::byte> payload,
                                   std::byte* out) {
  GLOO_BYPASS_CHECK(header.size() >= wire::kSealedHeaderBytes);
  // Before the peer has been heard in this phase it may not have its key, and could not tell the next but one from it.
  const bool heard = receivePhase_ == sending_.phase && window_.next() > 0;
  const bool due = std::max(sending_.sealed, opened_) >= limits_.packetsPerKey;
  if (changes_ == KeyChanges::kBegins && due && heard) nextSendPhase();
  if (sending_.sealed >= limits_.mostPacketsPerKey) spent_ = true;
  if (spent_) return 0;
  ++sending_.sealed;
  const std::uint64_t number = nextNumber_++;
  const std::span<std::byte> written(out, wire::kSealedHeaderBytes);
  wire::writeSealedHeader({.type = wire::typeOf(header),
                           .keyPhase = (sending_.phase & 1) != 0,
                           .number = truncateSequence(number),
                           .receiverId = wire::receiverIdOf(header)},
                          written);
  sending_.key.aead->seal(nonceOf(sending_.key.iv, number), written, header.subspan(wire::kSealedHeaderBytes), payload,
                          out + wire::kSealedHeaderBytes);
  return header.size() + payload.size() + kOverheadBytes;
}

PacketProtection::Key* PacketProtection::keyFor(std::uint64_t number, bool phaseBit) {
  if (phaseBit == ((receivePhase_ & 1) != 0)) return &current_;
  if (number < firstOfPhase_ && receivePhase_ > 0) return previous_.aead ? &previous_ : nullptr;
  return &next_;
}

void PacketProtection::nextReceivePhase(std::uint64_t number) {
  previous_ = std::move(current_);
  current_ = std::move(next_);
  nextSecret_ = nextOf(nextSecret_);
  next_ = keyOf(nextSecret_);
  ++receivePhase_;
  firstOfPhase_ = number;
  opened_ = 0;
  if (sending_.phase < receivePhase_) nextSendPhase();
}

PacketProtection::Verdict PacketProtection::open(std::span<const std::byte> datagram, std::byte* out) {
  const auto header = wire::parseSealedHeader(datagram);
  if (!header || spent_) return Verdict::kNotSealed;
  const std::uint64_t number = expandSequence(header->number, window_.next());
  if (!window_.mayBeNew(number)) return Verdict::kReplayed;
  Key* const key = keyFor(number, header->keyPhase);
  if (key == nullptr) return Verdict::kReplayed;  // its key is gone with its place in the window
  if (!key->aead->open(nonceOf(key->iv, number), datagram.first(wire::kSealedHeaderBytes),
                       datagram.subspan(wire::kSealedHeaderBytes), out + wire::kSealedHeaderBytes)) {
    if (++forgeries_ >= limits_.mostForgeries) spent_ = true;
    return Verdict::kForged;
  }
  window_.accept(number);
  ++opened_;
  if (key == &next_) {
    nextReceivePhase(number);
  } else if (key == &current_) {
    firstOfPhase_ = std::min(firstOfPhase_, number);
  }
  if (previous_.aead && window_.lowest() >= firstOfPhase_) previous_ = {};
  wire::writePlainBeginning(header->type, header->receiverId, std::span(out, wire::kSealedHeaderBytes));
  return Verdict::kOpened;
}

}  // namespace gloo_bypass::security
