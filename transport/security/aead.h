// AES-128-GCM (NIST SP 800-38D), by libraries: intel-ipsec-mb where the processor has AES instructions, else OpenSSL.
// Both give the same bytes.
//
// Purpose: seals and opens one datagram. Owner: one PacketProtection; one thread at a time. A failure inside a library,
// which checkLibraries() (self_check.h) has tried before, ends the process: nothing leaves unsealed.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

namespace gloo_bypass::security {

inline constexpr std::size_t kKeyBytes = 16, kNonceBytes = 12, kTagBytes = 16;
using AeadKey = std::array<std::byte, kKeyBytes>;
using Nonce = std::array<std::byte, kNonceBytes>;

class Aead {
 public:
  virtual ~Aead() = default;
  // Encrypts `first` and `second`, one after the other, to `out`, and appends the tag: first.size() + second.size() +
  // kTagBytes in all. `associated` is authenticated and not written. In place: `out` may begin where `first` does, if
  // `second` follows it there. A nonce must never come twice under one key.
  virtual void seal(const Nonce& nonce, std::span<const std::byte> associated, std::span<const std::byte> first,
                    std::span<const std::byte> second, std::byte* out) = 0;
  // `sealed`: what seal() wrote, at least kTagBytes. Writes sealed.size() - kTagBytes to `out`, which may be its
  // beginning. False: it is not authentic, and nothing in `out` may be used.
  [[nodiscard]] virtual bool open(const Nonce& nonce, std::span<const std::byte> associated,
                                  std::span<const std::byte> sealed, std::byte* out) = 0;
};

using MakeAead = std::unique_ptr<Aead> (*)(const AeadKey& key);

std::unique_ptr<Aead> makeOpenSslAead(const AeadKey& key);
// Whether intel-ipsec-mb is in this build, and this processor has the instructions that make it the faster one.
bool hasIpsecMb();
// Only where hasIpsecMb().
std::unique_ptr<Aead> makeIpsecMbAead(const AeadKey& key);
// The faster one.
std::unique_ptr<Aead> makeAead(const AeadKey& key);

}  // namespace gloo_bypass::security
