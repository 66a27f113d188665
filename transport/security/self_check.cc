#include "transport/security/self_check.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "transport/security/aead.h"
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
    if (!openSsl().complete()) return fails("OpenSSL", "offers no AES-128-GCM, HMAC or SHA-256");
    if (!sealsZeros(*makeOpenSslAead({}))) return fails("OpenSSL", "computes AES-128-GCM wrongly");
    if (hasIpsecMb() && !sealsZeros(*makeIpsecMbAead({})))
      return fails("intel-ipsec-mb", "computes AES-128-GCM wrongly");
    Secret first, second;
    first.writable().front() = std::byte{8};
    second.writable().front() = std::byte{16};
    const auto one = sharedSecret(first, publicKeyOf(second)), other = sharedSecret(second, publicKeyOf(first));
    if (!one || !other || !std::ranges::equal(one->bytes(), other->bytes())) {
      return fails("OpenSSL", "computes X25519 wrongly");
    }
    return {};
  }();
  return checked;
}

}  // namespace gloo_bypass::security
