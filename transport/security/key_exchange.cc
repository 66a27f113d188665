#include "transport/security/key_exchange.h"

#include <openssl/evp.h>

#include <memory>

#include "transport/base/check.h"
#include "transport/security/openssl.h"

namespace gloo_bypass::security {
namespace {

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;

Key privateKeyOf(const Secret& bytes) {
  Key key(EVP_PKEY_new_raw_private_key_ex(openSsl().context, "X25519", nullptr, octets(bytes.bytes()), kSecretBytes));
  GLOO_BYPASS_CHECK(key != nullptr);
  return key;
}

}  // namespace

PublicKey publicKeyOf(const Secret& privateKey) {
  const Key key = privateKeyOf(privateKey);
  PublicKey out;
  std::size_t length = out.size();
  GLOO_BYPASS_CHECK(EVP_PKEY_get_raw_public_key(key.get(), reinterpret_cast<unsigned char*>(out.data()), &length) ==
                        1 &&
                    length == out.size());
  return out;
}

std::optional<Secret> sharedSecret(const Secret& privateKey, const PublicKey& peer) {
  const Key own = privateKeyOf(privateKey);
  const Key other(EVP_PKEY_new_raw_public_key_ex(openSsl().context, "X25519", nullptr, octets(peer), peer.size()));
  const std::unique_ptr<EVP_PKEY_CTX, FreeKey> context(
      EVP_PKEY_CTX_new_from_pkey(openSsl().context, own.get(), nullptr));
  GLOO_BYPASS_CHECK(other != nullptr && context != nullptr && EVP_PKEY_derive_init(context.get()) == 1);
  // OpenSSL refuses a result of zeros (RFC 7748, 6.1).
  if (EVP_PKEY_derive_set_peer(context.get(), other.get()) != 1) return {};
  Secret out;
  std::size_t length = kSecretBytes;
  if (EVP_PKEY_derive(context.get(), reinterpret_cast<unsigned char*>(out.writable().data()), &length) != 1) return {};
  GLOO_BYPASS_CHECK(length == kSecretBytes);
  return out;
}

}  // namespace gloo_bypass::security
