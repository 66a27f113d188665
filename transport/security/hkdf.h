// SHA-256, HKDF with it (RFC 5869) and TLS 1.3's labels (RFC 8446, 7.1), on OpenSSL's hash and HMAC.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "transport/security/secret.h"

namespace gloo_bypass::security {

Secret sha256(std::span<const std::byte> bytes);
// Of the parts, one after the other.
using Parts = std::initializer_list<std::span<const std::byte>>;
Secret hmacSha256(std::span<const std::byte> key, Parts parts);

// HKDF-Extract; an empty salt is one of zeros.
Secret extract(std::span<const std::byte> salt, std::span<const std::byte> keyMaterial);
// HKDF-Expand, at most 255 x 32 bytes.
void expand(std::span<const std::byte> secret, std::span<const std::byte> info, std::span<std::byte> out);
// HKDF-Expand-Label: `info` is out's length, "tls13 " + `label` and `context`, each with its length. At most 249 bytes
// of label and 255 of context.
void expandLabel(const Secret& secret, std::string_view label, std::span<const std::byte> context,
                 std::span<std::byte> out);
Secret deriveSecret(const Secret& secret, std::string_view label, std::span<const std::byte> context);

}  // namespace gloo_bypass::security
