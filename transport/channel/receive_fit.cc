#include "transport/channel/receive_fit.h"

namespace gloo_bypass {

std::string misfit(const MessageKey& key, std::size_t capacity, bool persistent, std::uint64_t length,
                   std::uint64_t remoteOffset) {
  const std::string remedy = "(slot " + std::to_string(key.tag) + "); use the same sizes on both ranks";
  if (persistent) {
    if (remoteOffset <= capacity && length <= capacity - remoteOffset) return {};
    return "a message of " + std::to_string(length) + " bytes for offset " + std::to_string(remoteOffset) +
           " does not fit the bound buffer of " + std::to_string(capacity) + " bytes " + remedy;
  }
  if (length <= capacity) return {};
  return "a message of " + std::to_string(length) + " bytes does not fit the receive of " + std::to_string(capacity) +
         " bytes it matched " + remedy;
}

}  // namespace gloo_bypass
