#include "transport/security/hkdf.h"

#include <openssl/core_names.h>
#include <openssl/params.h>

#include <algorithm>
#include <array>
#include <memory>

#include "transport/base/check.h"
#include "transport/base/fields.h"
#include "transport/security/openssl.h"

namespace gloo_bypass::security {
namespace {

struct FreeMac {
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

}  // namespace

Secret sha256(std::span<const std::byte> bytes) {
  GLOO_BYPASS_CHECK(openSsl().sha256 != nullptr);
  Secret out;
  unsigned int written = 0;
  GLOO_BYPASS_CHECK(EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(out.writable().data()),
                               &written, openSsl().sha256, nullptr) == 1 &&
                    written == kSecretBytes);
  return out;
}

Secret hmacSha256(std::span<const std::byte> key, Parts parts) {
  GLOO_BYPASS_CHECK(openSsl().hmac != nullptr);
  const std::unique_ptr<EVP_MAC_CTX, FreeMac> context(EVP_MAC_CTX_new(openSsl().hmac));
  std::array<char, 7> digest{"SHA256"};
  const std::array parameters{OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest.data(), 0),
                              OSSL_PARAM_construct_end()};
  // OpenSSL takes a null pointer for "the key of before".
  static constexpr std::byte kNothing{};
  const auto* const keyOctets = key.empty() ? reinterpret_cast<const unsigned char*>(&kNothing) : octets(key);
  GLOO_BYPASS_CHECK(context != nullptr && EVP_MAC_init(context.get(), keyOctets, key.size(), parameters.data()) == 1);
  for (const auto part : parts) {
    GLOO_BYPASS_CHECK(EVP_MAC_update(context.get(), octets(part), part.size()) == 1);
  }
  Secret out;
  std::size_t written = 0;
  GLOO_BYPASS_CHECK(EVP_MAC_final(context.get(), reinterpret_cast<unsigned char*>(out.writable().data()), &written,
                                  kSecretBytes) == 1 &&
                    written == kSecretBytes);
  return out;
}

Secret extract(std::span<const std::byte> salt, std::span<const std::byte> keyMaterial) {
  return hmacSha256(salt, {keyMaterial});
}

void expand(std::span<const std::byte> secret, std::span<const std::byte> info, std::span<std::byte> out) {
  GLOO_BYPASS_CHECK(out.size() <= 255 * kSecretBytes);
  Secret block;
  std::span<const std::byte> previous;
  for (std::byte counter{1}; !out.empty(); counter = std::byte(std::to_integer<int>(counter) + 1)) {
    block = hmacSha256(secret, {previous, info, std::span(&counter, 1)});
    previous = block.bytes();
    const std::size_t taken = std::min(out.size(), kSecretBytes);
    std::ranges::copy(previous.first(taken), out.begin());
    out = out.subspan(taken);
  }
}

void expandLabel(const Secret& secret, std::string_view label, std::span<const std::byte> context,
                 std::span<std::byte> out) {
  static constexpr std::string_view kPrefix = "tls13 ";
  GLOO_BYPASS_CHECK(label.size() <= 255 - kPrefix.size() && context.size() <= 255);
  std::array<std::byte, 2 + 1 + 255 + 1 + 255> info;
  FieldWriter writer(info.data());
  writer(std::array{static_cast<std::byte>(out.size() >> 8), static_cast<std::byte>(out.size() & 0xff)});
  writer(static_cast<std::uint8_t>(kPrefix.size() + label.size()));
  writer.bytes(std::as_bytes(std::span(kPrefix)));
  writer.bytes(std::as_bytes(std::span(label)));
  writer(static_cast<std::uint8_t>(context.size()));
  writer.bytes(context);
  expand(secret.bytes(), {info.data(), writer.end()}, out);
}

Secret deriveSecret(const Secret& secret, std::string_view label, std::span<const std::byte> context) {
  Secret out;
  expandLabel(secret, label, context, out.writable());
  return out;
}

}  // namespace gloo_bypass::security
