#include "transport/security/key_agreement.h"

#include <algorithm>
#include <string_view>

#include "transport/base/check.h"
#include "transport/base/fields.h"
#include "transport/security/hkdf.h"

namespace gloo_bypass::security {
namespace {

constexpr std::uint8_t kVersion = 2;  // of the offer and of the key schedule

Error differ(const char* what) { return {ErrorScope::kSession, ErrorCode::kConfiguration, what}; }

std::array<std::byte, 8> octets(std::uint64_t value) {
  std::array<std::byte, 8> out;
  storeLittle(out.data(), value);
  return out;
}

// Appends `part` behind its length, so that no two lists of parts give the same bytes.
void append(std::vector<std::byte>& to, std::span<const std::byte> part) {
  const auto length = octets(part.size());
  to.insert(to.end(), length.begin(), length.end());
  to.insert(to.end(), part.begin(), part.end());
}
void append(std::vector<std::byte>& to, std::string_view text) { append(to, std::as_bytes(std::span(text))); }
void append(std::vector<std::byte>& to, int rank) { append(to, octets(static_cast<std::uint64_t>(rank))); }

}  // namespace

KeyAgreement::KeyAgreement(std::shared_ptr<const Credentials> credentials, Party own, Ranks ranks,
                           const Secret& privateKey)
    : credentials_(std::move(credentials)), own_(std::move(own)), ranks_(ranks), privateKey_(privateKey) {
  const std::size_t keys = credentials_->preSharedKeys.size();
  GLOO_BYPASS_CHECK(keys <= kMaxPreSharedKeys);
  for (const Secret& key : credentials_->preSharedKeys) early_.push_back(extract({}, key.bytes()));
  if (early_.empty()) early_.push_back(extract({}, Secret().bytes()));
  offer_.resize(kProofsBegin + early_.size() * kProofBytes);
  FieldWriter writer(offer_.data());
  writer(kVersion, static_cast<std::uint8_t>(keys), publicKeyOf(*privateKey_));
  for (const Secret& early : early_) writer(proofOf(early, own_, ranks_, std::span(offer_).first(kProofsBegin)));
}

KeyAgreement::Proof KeyAgreement::proofOf(const Secret& early, const Party& party, Ranks ranks,
                                          std::span<const std::byte> beforeProofs) const {
  std::vector<std::byte> proven;
  append(proven, credentials_->job);
  append(proven, ranks.own);
  append(proven, ranks.peer);
  append(proven, party.address);
  append(proven, beforeProofs);
  const Secret whole = hmacSha256(deriveSecret(early, "gb address", {}).bytes(), {proven});
  Proof proof;
  std::ranges::copy(whole.bytes().first(kProofBytes), proof.begin());
  return proof;
}

const Secret* KeyAgreement::common(const Party& peer, std::span<const std::byte> beforeProofs,
                                   std::span<const Proof> proofs) const {
  const Secret* found = nullptr;
  std::size_t best = 0;
  for (std::size_t own = 0; own < early_.size(); ++own) {
    const Proof expected = proofOf(early_[own], peer, {ranks_.peer, ranks_.own}, beforeProofs);
    for (std::size_t theirs = 0; theirs < proofs.size(); ++theirs) {
      if (!equal(expected, proofs[theirs])) continue;
      const std::size_t place = own_.sessionId < peer.sessionId ? own : theirs;
      if (found == nullptr || place < best) found = &early_[own], best = place;
    }
  }
  return found;
}

// SHA-256 of all that both ranks have told each other.
Secret KeyAgreement::transcript(const Party& peer, std::span<const std::byte> peerOffer) const {
  std::vector<std::byte> all;
  append(all, "gloo-bypass sealed 1");
  append(all, credentials_->job);
  const auto add = [&all](int rank, const Party& party, std::span<const std::byte> offer) {
    append(all, rank);
    append(all, party.address);
    append(all, offer);
  };
  if (own_.sessionId < peer.sessionId) add(ranks_.own, own_, offer_);
  add(ranks_.peer, peer, peerOffer);
  if (own_.sessionId >= peer.sessionId) add(ranks_.own, own_, offer_);
  return sha256(all);
}

Status KeyAgreement::accept(const Party& peer, std::span<const std::byte> offer) {
  if (!privateKey_) return differ("this channel has used its key in an earlier connect: open a new channel");
  const Error malformed = differ("the peer's offer of keys in the rendezvous store is malformed");
  if (offer.size() < kProofsBegin) return malformed;
  std::uint8_t version = 0, keys = 0;
  PublicKey publicKey;
  FieldReader reader(offer.data());
  reader(version, keys, publicKey);
  if (version != kVersion) {
    return differ("the peer's release agrees on keys in another way: install the same version on both ranks");
  }
  std::vector<Proof> proofs(std::max<std::size_t>(keys, 1));
  if (keys > kMaxPreSharedKeys || offer.size() - kProofsBegin != proofs.size() * kProofBytes) return malformed;
  for (Proof& proof : proofs) reader(proof);
  if ((keys != 0) != hasKey()) {
    return differ(hasKey() ? "GLOO_BYPASS_KEY_FILE is set here and not on the peer: give both ranks the same key"
                           : "GLOO_BYPASS_KEY_FILE is set on the peer and not here: give both ranks the same key");
  }
  const Secret* const early = common(peer, offer.first(kProofsBegin), proofs);
  if (early == nullptr) {
    return differ(
        "the key of GLOO_BYPASS_KEY_FILE or the name in GLOO_BYPASS_JOB is another one on the peer, or its address was "
        "changed in the rendezvous store: give both ranks the same key and job");
  }
  const auto shared = sharedSecret(*privateKey_, publicKey);
  privateKey_.reset();
  if (!shared) return differ("the peer's public key in the rendezvous store is not one that a rank makes");
  const Secret derived = deriveSecret(*early, "derived", sha256({}).bytes());
  const Secret handshake = extract(derived.bytes(), shared->bytes());
  session_ = deriveSecret(handshake, "gb session", transcript(peer, offer).bytes());
  peerId_ = peer.sessionId;
  early_.clear();
  return {};
}

Secret KeyAgreement::trafficSecret(std::uint64_t senderId, std::size_t rail) const {
  GLOO_BYPASS_CHECK(session_.has_value());
  std::vector<std::byte> context;
  append(context, octets(senderId));
  append(context, octets(rail));
  return deriveSecret(*session_, "gb traffic", context);
}

Token KeyAgreement::token(std::uint64_t senderId, std::string_view what) const {
  GLOO_BYPASS_CHECK(session_.has_value());
  std::vector<std::byte> context;
  append(context, octets(senderId));
  append(context, what);
  Token token;
  expandLabel(*session_, "gb says", context, token);
  return token;
}

}  // namespace gloo_bypass::security
