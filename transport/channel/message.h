// The vocabulary of messages that the protocol core, every back-end and the Gloo adapter share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/flat_map.h"

namespace gloo_bypass {

// Two name spaces of tags: Gloo's unbound buffers (64-bit slots) and its older bound buffers (int slots).
enum class MessageKind : std::uint8_t { kUnbound = 0, kBound = 1 };

struct MessageKey {
  MessageKind kind = MessageKind::kUnbound;
  std::uint64_t tag = 0;
  bool operator==(const MessageKey&) const = default;
};

// `seed`: as in MixHash.
struct MessageKeyHash {
  std::uint64_t seed = 0;
  std::uint64_t operator()(const MessageKey& key) const {
    return mixBits((key.tag + 0x9e3779b97f4a7c15ull * (static_cast<std::uint64_t>(key.kind) + 1)) ^ seed);
  }
};

// The caller chooses it (a pointer, say), unique among the channel's live operations of that direction.
using OperationToken = std::uint64_t;

struct SendRequest {
  OperationToken token = 0;
  MessageKey key;
  const std::byte* data = nullptr;  // readable until onSendComplete or cancelSend
  std::size_t length = 0;           // zero is a message like any other
  std::uint64_t remoteOffset = 0;   // offset in a persistent receive's region; 0 for unbound
  // If the network may lose the message, it completes only once the peer has it: it then arrives however this process
  // ends. Without the flag a send completes once the port or adapter has taken it, and no one retransmits it after this
  // process has ended.
  bool confirmed = false;
};

// Takes the bytes of one message from where they arrived, instead of a copy of them: to add them to others, say.
struct BytesConsumer {
  // `bytes` lie in the message from `offset` on, and are valid during the call. Runs come in any order and of any
  // length; each byte of a correct peer comes once. With exclusive access, before onReceiveComplete and not after
  // cancelReceive; it must not call the channel.
  void (*consume)(void* context, std::size_t offset, std::span<const std::byte> bytes) noexcept = nullptr;
  void* context = nullptr;
};

struct ReceiveRequest {
  OperationToken token = 0;
  MessageKey key;
  std::byte* data = nullptr;  // writable until onReceiveComplete or cancelReceive
  std::size_t capacity = 0;   // a longer message fails the CHANNEL with kMessageTooLong, as in Gloo's TCP
  // For a bound buffer: the receive stays posted, every message of the key is written at data + its remoteOffset, and
  // each calls onReceiveComplete. At most one persistent receive a key, and no other receive with it.
  bool persistent = false;
  // If it has a function: the message goes there, and not to `data`. That must be writable for `capacity` all the same:
  // an adapter that writes by itself (RDMA) does so there first. Not for a persistent receive.
  BytesConsumer consumer{};
};

}  // namespace gloo_bypass
