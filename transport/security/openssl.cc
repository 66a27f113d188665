#include "transport/security/openssl.h"

namespace gloo_bypass::security {

const OpenSsl& openSsl() {
  static const OpenSsl& made = *new OpenSsl([] {
    OpenSsl parts;
    parts.context = OSSL_LIB_CTX_new();
    if (parts.context == nullptr) return parts;
    parts.aes128Gcm = EVP_CIPHER_fetch(parts.context, "AES-128-GCM", nullptr);
    parts.hmac = EVP_MAC_fetch(parts.context, "HMAC", nullptr);
    parts.sha256 = EVP_MD_fetch(parts.context, "SHA256", nullptr);
    parts.x25519 = EVP_KEYMGMT_fetch(parts.context, "X25519", nullptr);
    return parts;
  }());
  return made;
}

}  // namespace gloo_bypass::security
