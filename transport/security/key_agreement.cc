#include "transport/security/key_agreement.h"

#include <algorithm>
#include <string_view>

#include "transport/base/check.h"
#include "transport/base/fields.h"
#include "transport/security/hkdf.h"

namespace gloo_bypass::security {
namespace {

constexpr std::uint8_t kVersion = 2;  // of the offer and of the key schedule
constexpr std::size_t kBeforeProof = kOfferBytes - kProofBytes;

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
  const Secret none;
  early_ = extract({}, hasKey() ? credentials_->preSharedKey->bytes() : none.bytes());
  offer_.resize(kOfferBytes);
  FieldWriter writer(offer_.data());
  writer(kVersion, hasKey(), publicKeyOf(*privateKey_));
  writer(proofOf(own_, ranks_, std::span(offer_).first(kBeforeProof)));
}

KeyAgreement::Proof KeyAgreement::proofOf(const Party& party, Ranks ranks,
                                          std::span<const std::byte> beforeProof) const {
  std::vector<std::byte> proven;
  append(proven, credentials_->job);
  append(proven, ranks.own);
  append(proven, ranks.peer);
  append(proven, party.address);
  append(proven, beforeProof);
  const Secret whole = hmacSha256(deriveSecret(early_, "gb address", {}).bytes(), {proven});
  Proof proof;
  std::ranges::copy(whole.bytes().first(kProofBytes), proof.begin());
  return proof;
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
  if (offer.size() != kOfferBytes) return differ("the peer's offer of keys in the rendezvous store is malformed");
  std::uint8_t version = 0, withKey = 0;
  PublicKey publicKey;
  Proof proof;
  FieldReader reader(offer.data());
  reader(version, withKey, publicKey, proof);
  if (version != kVersion) {
    return differ("the peer's release agrees on keys in another way: install the same version on both ranks");
  }
  if ((withKey != 0) != hasKey()) {
    return differ(hasKey() ? "GLOO_BYPASS_KEY_FILE is set here and not on the peer: give both ranks the same key"
                           : "GLOO_BYPASS_KEY_FILE is set on the peer and not here: give both ranks the same key");
  }
  const Proof expected = proofOf(peer, {ranks_.peer, ranks_.own}, offer.first(kBeforeProof));
  if (!equal(expected, proof)) {
    return differ(
        "the key of GLOO_BYPASS_KEY_FILE or the name in GLOO_BYPASS_JOB is another one on the peer, or its address was "
        "changed in the rendezvous store: give both ranks the same key and job");
  }
  const auto shared = sharedSecret(*privateKey_, publicKey);
  privateKey_.reset();
  if (!shared) return differ("the peer's public key in the rendezvous store is not one that a rank makes");
  const Secret derived = deriveSecret(early_, "derived", sha256({}).bytes());
  const Secret handshake = extract(derived.bytes(), shared->bytes());
  session_ = deriveSecret(handshake, "gb session", transcript(peer, offer).bytes());
  peerId_ = peer.sessionId;
  early_ = {};
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
