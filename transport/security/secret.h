// 32 secret bytes: a pre-shared key, a private key, or a value of the key schedule. Overwritten when they go. Pure.
#pragma once

#include <string.h>

#include <array>
#include <cstddef>
#include <span>

namespace gloo_bypass::security {

inline constexpr std::size_t kSecretBytes = 32;  // of X25519, of SHA-256, and of the key in a key file

// Overwrites `bytes`; the compiler does not drop it.
inline void wipe(std::span<std::byte> bytes) { ::explicit_bzero(bytes.data(), bytes.size()); }

// Takes the same time wherever they differ, if they have the same length; else they are not equal.
bool equal(std::span<const std::byte> a, std::span<const std::byte> b);

class Secret {
 public:
  Secret() = default;
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret() { wipe(bytes_); }

  std::span<const std::byte, kSecretBytes> bytes() const { return bytes_; }
  std::span<std::byte, kSecretBytes> writable() { return bytes_; }

 private:
  std::array<std::byte, kSecretBytes> bytes_{};
};

}  // namespace gloo_bypass::security
