// SHA-256 (FIPS 180-4) of bytes that come in pieces. OpenSSL's. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <openssl/evp.h>

namespace gloo_bypass::trainer {

class Sha256 {
 public:
  // Throws ProgramError where OpenSSL offers none.
  Sha256();
  void add(std::span<const std::byte> bytes);
  // Of all that was added, in hexadecimal. Once.
  std::string hex();

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace gloo_bypass::trainer
