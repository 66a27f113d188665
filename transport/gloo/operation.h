// One posted send or receive, from post to completion, and the two lists it stands in: its buffer's (to withdraw it
// when the buffer goes) and its connection's (to fail it when the connection does).
//
// Everything here is touched with the progress engine's exclusive access only, BufferState::pending excepted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/time.h"
#include "transport/channel/message.h"

namespace gloo_bypass::adapter {

class Connection;
struct Operation;

// Why something failed: text for an exception that is thrown later, on the caller's thread. Null: it did not.
using Failure = std::shared_ptr<const std::string>;
inline Failure makeFailure(std::string text) { return std::make_shared<const std::string>(std::move(text)); }

// Place in a circular, intrusive list; the list itself is a hook without an operation.
class ListHook {
 public:
  explicit ListHook(Operation* operation = nullptr) : previous_(this), next_(this), operation_(operation) {}
  ListHook(const ListHook&) = delete;
  ListHook& operator=(const ListHook&) = delete;

  bool empty() const { return next_ == this; }
  // Of a list: its first operation, null if it has none. Of a member: the one after it, null at the end.
  Operation* next() const { return next_->operation_; }
  void append(ListHook& member) {
    member.previous_ = previous_;
    member.next_ = this;
    previous_->next_ = &member;
    previous_ = &member;
  }
  void unlink() {
    previous_->next_ = next_;
    next_->previous_ = previous_;
    previous_ = next_ = this;
  }

 private:
  ListHook* previous_;
  ListHook* next_;
  Operation* const operation_;
};

// Whether the message belongs to an operation of all ranks, so that the failure of one is that of all. Gloo has a
// collective's kind in the first byte of a slot (gloo/types.h, class Slot); PyTorch's send and recv have tags of 32
// bits. A bound buffer does not show what it is for: its pair stands for itself.
constexpr bool isCollective(MessageKey key) { return key.kind == MessageKind::kUnbound && (key.tag >> 56) != 0; }

enum class Direction : std::uint8_t { kSend = 0, kReceive = 1 };

// The progress of a buffer's operations in one direction.
struct Progress {
  int completions = 0;  // not yet taken by a wait
  int pending = 0;      // posted, neither complete nor failed; a persistent receive is not counted
  int rank = -1;        // peer of the latest completion
  bool abort = false;   // the next wait returns at once
};

// The part of a bound or unbound buffer that operations know.
struct BufferState {
  Progress progress[2];
  Failure failure;                // of any operation of this buffer; for ever, as over TCP
  bool collectiveFailed = false;  // `failure` is of a collective
  ListHook operations;
  // How many operations may still touch this object. The only member that is read without exclusive access: once
  // zero, and no call is posting, the buffer may go without asking for it.
  std::atomic<int> references{0};

  Progress& of(Direction direction) { return progress[static_cast<int>(direction)]; }
  // The first failure stays.
  void fail(const Failure& why, MessageKey key) {
    if (failure) return;
    failure = why;
    collectiveFailed = isCollective(key);
  }
};

// Aligned so that a token can carry a generation in the address's low bits.
struct alignas(64) Operation {
  Operation() : byBuffer(this), byPlace(this) {}

  OperationToken token() const { return reinterpret_cast<OperationToken>(this) | (generation % 64); }
  static Operation& fromToken(OperationToken token) {
    auto* operation = reinterpret_cast<Operation*>(token & ~OperationToken{63});
    GLOO_BYPASS_CHECK(operation->token() == token);  // a completion for an operation that is over
    return *operation;
  }

  Direction direction = Direction::kSend;
  bool persistent = false;
  bool sent = false;               // complete, but behind an earlier send of the same buffer, peer and key
  bool remote = false;             // a put or get; those are waited for as sends
  std::uint64_t remoteNumber = 0;  // of a put or get: 0 until the peer has been asked for it
  MessageKey key;
  std::byte* data = nullptr;
  std::size_t length = 0;
  TimePoint postedAt{};  // where latencies are measured
  BufferState* buffer = nullptr;
  Connection* connection = nullptr;  // null: a receive from any of `sources`, not matched yet
  std::vector<int> sources;
  ListHook byBuffer;
  ListHook byPlace;  // in its connection's list, or the group's of receives from any
  std::uint32_t generation = 0;
  Operation* nextFree = nullptr;
};

// Memory of operations; grows to the most that were ever pending at once, never with slots used.
class OperationPool {
 public:
  // Linked into `buffer`'s list; in no place yet.
  Operation* acquire(BufferState& buffer, Direction direction) {
    if (free_ == nullptr) grow();
    Operation* operation = free_;
    free_ = operation->nextFree;
    operation->direction = direction;
    operation->buffer = &buffer;
    buffer.operations.append(operation->byBuffer);
    buffer.references.fetch_add(1, std::memory_order_relaxed);
    return operation;
  }

  // The buffer may be gone when this returns.
  void release(Operation* operation) {
    BufferState* buffer = operation->buffer;
    operation->byBuffer.unlink();
    operation->byPlace.unlink();
    operation->sources.clear();
    operation->buffer = nullptr;
    operation->connection = nullptr;
    operation->persistent = operation->sent = operation->remote = false;
    operation->remoteNumber = 0;
    ++operation->generation;
    operation->nextFree = free_;
    free_ = operation;
    buffer->references.fetch_sub(1, std::memory_order_release);
  }

 private:
  static constexpr std::size_t kSlabOperations = 16;

  void grow() {
    slabs_.push_back(std::make_unique<Operation[]>(kSlabOperations));
    for (std::size_t i = kSlabOperations; i-- > 0;) {
      slabs_.back()[i].nextFree = free_;
      free_ = &slabs_.back()[i];
    }
  }

  std::vector<std::unique_ptr<Operation[]>> slabs_;
  Operation* free_ = nullptr;
};

}  // namespace gloo_bypass::adapter
