// Remote keys (put and get on another rank's memory), with one interface for every generation of Gloo. For a Gloo that
// has none, the classes here provide the same functions by the same names.
//
//   GLOO_BYPASS_GLOO_REMOTE_KEYS  unbound buffers and contexts have remote keys
//
// Thread and errors: as Gloo's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#if GLOO_BYPASS_GLOO_REMOTE_KEYS
#include <gloo/transport/remote_key.h>
#endif

namespace gloo_bypass::gloo_version {

#if GLOO_BYPASS_GLOO_REMOTE_KEYS

inline constexpr bool kGlooHasRemoteKeys = true;
using RemoteKey = ::gloo::transport::RemoteKey;
using RemoteKeyBuffer = ::gloo::transport::UnboundBuffer;
using RemoteKeyContext = ::gloo::transport::Context;

#else

inline constexpr bool kGlooHasRemoteKeys = false;

class RemoteKey {
 public:
  RemoteKey(int keyRank, std::size_t keySize) : rank(keyRank), size(keySize) {}
  virtual ~RemoteKey() = default;

  virtual std::string serialize() const = 0;

  const int rank;
  const std::size_t size;
};

class RemoteKeyBuffer : public ::gloo::transport::UnboundBuffer {
 public:
  using ::gloo::transport::UnboundBuffer::UnboundBuffer;

  virtual std::unique_ptr<RemoteKey> getRemoteKey() const = 0;
  virtual void put(const RemoteKey& key, std::uint64_t slot, std::size_t offset, std::size_t roffset,
                   std::size_t nbytes) = 0;
  virtual void get(const RemoteKey& key, std::uint64_t slot, std::size_t offset, std::size_t roffset,
                   std::size_t nbytes) = 0;
};

class RemoteKeyContext : public ::gloo::transport::Context {
 public:
  using ::gloo::transport::Context::Context;

  virtual std::unique_ptr<RemoteKey> deserializeRemoteKey(const std::string& serialized) = 0;
};

#endif

// A program calls it on Gloo's own context. Throws if Gloo has no remote keys.
inline std::unique_ptr<RemoteKey> deserializeRemoteKey([[maybe_unused]] ::gloo::Context& context,
                                                       [[maybe_unused]] const std::string& serialized) {
#if GLOO_BYPASS_GLOO_REMOTE_KEYS
  return context.deserializeRemoteKey(serialized);
#else
  throw std::runtime_error("this Gloo's contexts have no remote keys");
#endif
}

}  // namespace gloo_bypass::gloo_version
