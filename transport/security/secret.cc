#include "transport/security/secret.h"

#include <openssl/crypto.h>

namespace gloo_bypass::security {

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace gloo_bypass::security
