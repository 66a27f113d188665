// X25519 (RFC 7748), by OpenSSL. Pure: the private key comes in as 32 random bytes. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "transport/security/secret.h"

namespace gloo_bypass::security {

using PublicKey = std::array<std::byte, 32>;

PublicKey publicKeyOf(const Secret& privateKey);
// The secret that both ends compute. nullopt: the peer's key is one of the few that make it known to everybody.
std::optional<Secret> sharedSecret(const Secret& privateKey, const PublicKey& peer);

}  // namespace gloo_bypass::security
