#include "transport/security/self_check.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "transport/security/aead.h"
#include "transport/security/hkdf.h"
#include "transport/security/key_exchange.h"
#include "transport/security/openssl.h"

namespace gloo_bypass::security {
namespace {

Status fails(const char* library, const char* what) {
  return {ErrorScope::kDevice, ErrorCode::kUnavailable,
          std::string("GLOO_BYPASS_SECURITY='encrypt': ") + library + " " + what + ": repair its installation"};
}

// AES-128-GCM with a key, nonce and text of zeros: test case 2 of the specification submitted to NIST.
constexpr std::array<unsigned char, 32> kSealedZeros = {
    0x03, 0x88, 0xda, 0xce, 0x60, 0xb6, 0xa3, 0x92, 0xf3, 0x28, 0xc2, 0xb9, 0x71, 0xb2, 0xfe, 0x78,
    0xab, 0x6e, 0x47, 0xd4, 0x2c, 0xec, 0x13, 0xbd, 0xf5, 0x3a, 0x67, 0xb2, 0x12, 0x57, 0xbd, 0xdf};

// HKDF-Extract of zeros and the "derived" secret of it, with SHA-256 and HMAC beneath: RFC 8448, 3.
constexpr std::array<unsigned char, 32> kDerived = {0x6f, 0x26, 0x15, 0xa1, 0x08, 0xc7, 0x02, 0xc5, 0x67, 0x8f, 0x54,
                                                    0xfc, 0x9d, 0xba, 0xb6, 0x97, 0x16, 0xc0, 0x76, 0x18, 0x9c, 0x48,
                                                    0x25, 0x0c, 0xeb, 0xea, 0xc3, 0x57, 0x6c, 0x36, 0x11, 0xba};
// RFC 7748, 5.2: a private and a public key, and what they give.
constexpr std::array<unsigned char, 32> kPrivate = {0xa5, 0x46, 0xe3, 0x6b, 0xf0, 0x52, 0x7c, 0x9d, 0x3b, 0x16, 0x15,
                                                    0x4b, 0x82, 0x46, 0x5e, 0xdd, 0x62, 0x14, 0x4c, 0x0a, 0xc1, 0xfc,
                                                    0x5a, 0x18, 0x50, 0x6a, 0x22, 0x44, 0xba, 0x44, 0x9a, 0xc4};
constexpr std::array<unsigned char, 32> kPublic = {0xe6, 0xdb, 0x68, 0x67, 0x58, 0x30, 0x30, 0xdb, 0x35, 0x94, 0xc1,
                                                   0xa4, 0x24, 0xb1, 0x5f, 0x7c, 0x72, 0x66, 0x24, 0xec, 0x26, 0xb3,
                                                   0x35, 0x3b, 0x10, 0xa9, 0x03, 0xa6, 0xd0, 0xab, 0x1c, 0x4c};
constexpr std::array<unsigned char, 32> kShared = {0xc3, 0xda, 0x55, 0x37, 0x9d, 0xe9, 0xc6, 0x90, 0x8e, 0x94, 0xea,
                                                   0x4d, 0xf2, 0x8d, 0x08, 0x4f, 0x32, 0xec, 0xcf, 0x03, 0x49, 0x1c,
                                                   0x71, 0xf7, 0x54, 0xb4, 0x07, 0x55, 0x77, 0xa2, 0x85, 0x52};

bool derives() {
  const Secret early = extract({}, Secret{}.bytes());
  const Secret derived = deriveSecret(early, "derived", sha256({}).bytes());
  return std::ranges::equal(derived.bytes(), std::as_bytes(std::span(kDerived)));
}

bool exchanges() {
  Secret own;
  PublicKey peer;
  std::ranges::copy(std::as_bytes(std::span(kPrivate)), own.writable().begin());
  std::ranges::copy(std::as_bytes(std::span(kPublic)), peer.begin());
  const auto shared = sharedSecret(own, peer);
  return shared && std::ranges::equal(shared->bytes(), std::as_bytes(std::span(kShared)));
}

bool sealsZeros(Aead& aead) {
  constexpr std::array<std::byte, 16> kZeros{};
  std::array<std::byte, kSealedZeros.size()> sealed;
  std::array<std::byte, kZeros.size()> opened;
  aead.seal({}, {}, kZeros, {}, sealed.data());
  const auto expected = std::as_bytes(std::span(kSealedZeros));
  if (!std::ranges::equal(sealed, expected) || !aead.open({}, {}, sealed, opened.data()) || opened != kZeros) {
    return false;
  }
  sealed.back() ^= std::byte{1};
  return !aead.open({}, {}, sealed, opened.data());
}

}  // namespace

Status checkLibraries() {
  static const Status checked = []() -> Status {
    if (!openSsl().complete()) return fails("OpenSSL", "offers not all of AES-128-GCM, HMAC, SHA-256 and X25519");
    if (!sealsZeros(*makeOpenSslAead({}))) return fails("OpenSSL", "computes AES-128-GCM wrongly");
    if (hasIpsecMb() && !sealsZeros(*makeIpsecMbAead({})))
      return fails("intel-ipsec-mb", "computes AES-128-GCM wrongly");
    if (!derives()) return fails("OpenSSL", "computes SHA-256 or HMAC wrongly");
    if (!exchanges()) return fails("OpenSSL", "computes X25519 wrongly");
    return {};
  }();
  return checked;
}

}  // namespace gloo_bypass::security
