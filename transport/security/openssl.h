// Private to transport/security: what it fetched from OpenSSL, once a process.
//
// A library context of its own: OpenSSL's cleanup at exit, which runs before the last datagrams leave when other code
// of the process began to use OpenSSL later, does not free it. It reads no openssl.cnf.
//
// Thread: any; constant once made, never destroyed.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <span>

namespace gloo_bypass::security {

struct OpenSsl {
  OSSL_LIB_CTX* context = nullptr;
  // Null: this OpenSSL does not offer it.
  EVP_CIPHER* aes128Gcm = nullptr;
  EVP_MAC* hmac = nullptr;
  EVP_MD* sha256 = nullptr;
  EVP_KEYMGMT* x25519 = nullptr;

  bool complete() const { return aes128Gcm != nullptr && hmac != nullptr && sha256 != nullptr && x25519 != nullptr; }
};

const OpenSsl& openSsl();

inline const unsigned char* octets(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace gloo_bypass::security
