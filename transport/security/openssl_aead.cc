#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "transport/base/check.h"
#include "transport/security/aead.h"
#include "transport/security/openssl.h"

namespace gloo_bypass::security {
namespace {

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

const unsigned char* octets(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
unsigned char* octets(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

class OpenSslAead final : public Aead {
 public:
  explicit OpenSslAead(const AeadKey& key) {
    GLOO_BYPASS_CHECK(openSsl().aes128Gcm != nullptr);
    for (const auto& [context, encrypts] : {std::pair{sealing_.get(), 1}, {opening_.get(), 0}}) {
      GLOO_BYPASS_CHECK(context != nullptr && EVP_CipherInit_ex2(context, openSsl().aes128Gcm, octets(key.data()),
                                                                 nullptr, encrypts, nullptr) == 1);
    }
  }

  void seal(const Nonce& nonce, std::span<const std::byte> associated, std::span<const std::byte> first,
            std::span<const std::byte> second, std::byte* out) override {
    EVP_CIPHER_CTX* const context = sealing_.get();
    begin(context, nonce, associated);
    update(context, first, out);
    update(context, second, out + first.size());
    std::byte* const tag = out + first.size() + second.size();
    int written = 0;
    GLOO_BYPASS_CHECK(EVP_EncryptFinal_ex(context, octets(tag), &written) == 1 && written == 0);
    GLOO_BYPASS_CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag) == 1);
  }

  bool open(const Nonce& nonce, std::span<const std::byte> associated, std::span<const std::byte> sealed,
            std::byte* out) override {
    EVP_CIPHER_CTX* const context = opening_.get();
    const auto text = sealed.first(sealed.size() - kTagBytes);
    std::array<std::byte, kTagBytes> tag;  // OpenSSL wants it writable
    std::copy(sealed.end() - kTagBytes, sealed.end(), tag.begin());
    begin(context, nonce, associated);
    update(context, text, out);
    GLOO_BYPASS_CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()) == 1);
    int written = 0;
    return EVP_DecryptFinal_ex(context, octets(out), &written) == 1;
  }

 private:
  static void begin(EVP_CIPHER_CTX* context, const Nonce& nonce, std::span<const std::byte> associated) {
    GLOO_BYPASS_CHECK(EVP_CipherInit_ex2(context, nullptr, nullptr, octets(nonce.data()), -1, nullptr) == 1);
    int taken = 0;
    if (associated.empty()) return;
    GLOO_BYPASS_CHECK(EVP_CipherUpdate(context, nullptr, &taken, octets(associated.data()),
                                       static_cast<int>(associated.size())) == 1);
  }
  static void update(EVP_CIPHER_CTX* context, std::span<const std::byte> text, std::byte* out) {
    if (text.empty()) return;
    int written = 0;
    GLOO_BYPASS_CHECK(
        EVP_CipherUpdate(context, octets(out), &written, octets(text.data()), static_cast<int>(text.size())) == 1 &&
        written == static_cast<int>(text.size()));
  }

  const Context sealing_{EVP_CIPHER_CTX_new()}, opening_{EVP_CIPHER_CTX_new()};
};

}  // namespace

std::unique_ptr<Aead> makeOpenSslAead(const AeadKey& key) { return std::make_unique<OpenSslAead>(key); }

std::unique_ptr<Aead> makeAead(const AeadKey& key) {
  return hasIpsecMb() ? makeIpsecMbAead(key) : makeOpenSslAead(key);
}

}  // namespace gloo_bypass::security
