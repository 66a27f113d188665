#include "transport/sessions/channel_keys.h"

#include <optional>
#include <utility>

#include "transport/sessions/credentials.h"

namespace gloo_bypass {
namespace {

static_assert(security::kLongestOffer <= kMaxOfferBytes);

// What keys are bound to of an address: the description is for people.
security::Party partyOf(std::uint64_t sessionId, const std::vector<std::byte>& portAddress) {
  return {sessionId,
          encodeChannelAddress({.sessionId = sessionId, .portAddress = portAddress, .description = {}, .offer = {}})};
}

}  // namespace

Result<std::unique_ptr<security::KeyAgreement>> makeKeyAgreement(
    const std::shared_ptr<const security::Credentials>& credentials, std::uint64_t sessionId,
    const std::vector<std::byte>& portAddress, const ChannelOptions& options) {
  if (credentials == nullptr) return std::unique_ptr<security::KeyAgreement>();
  const std::optional<security::Secret> drawn = drawSecret();
  if (!drawn) {
    return Error{
        ErrorScope::kDevice, ErrorCode::kUnavailable,
        "GLOO_BYPASS_SECURITY='encrypt': the system gives no random bytes (getrandom): a sandbox refuses the call"};
  }
  return std::make_unique<security::KeyAgreement>(credentials, partyOf(sessionId, portAddress),
                                                  security::Ranks{options.localRank, options.peerRank}, *drawn);
}

Status agreeOnKeys(security::KeyAgreement* own, const ChannelAddress& peer) {
  const bool offers = !peer.offer.empty();
  if (offers != (own != nullptr)) {
    return {ErrorScope::kSession, ErrorCode::kConfiguration,
            offers ? "GLOO_BYPASS_SECURITY is off here and encrypt on the peer; give both ranks the same setting"
                   : "GLOO_BYPASS_SECURITY is encrypt here and off on the peer; give both ranks the same setting"};
  }
  if (!offers) return {};
  return own->accept(partyOf(peer.sessionId, peer.portAddress), peer.offer);
}

}  // namespace gloo_bypass
