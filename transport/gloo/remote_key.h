// Which memory of which rank a put or get is for. Text, so that a program can hand it to other ranks as it likes:
//
//   gloo-bypass:1:<rank>:<bytes>:<context>:<region>     decimal, decimal, 16 hexadecimal digits each
//
// Both numbers are random: they name one buffer of one context of one process, and nobody who has not been given the
// key can name it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/compatibility/gloo/remote_key.h"

namespace gloo_bypass::adapter {

class RemoteKey final : public gloo_version::RemoteKey {
 public:
  RemoteKey(int keyRank, std::size_t bytes, std::uint64_t contextId, std::uint64_t regionId)
      : gloo_version::RemoteKey(keyRank, bytes), context(contextId), region(regionId) {}

  std::string serialize() const override;

  const std::uint64_t context;
  const std::uint64_t region;
};

// Hostile text. Null: not a key of ours.
std::unique_ptr<RemoteKey> parseRemoteKey(const std::string& text);

}  // namespace gloo_bypass::adapter
