#include "transport/gloo/buffer.h"

#include <unistd.h>

#include <iostream>
#include <utility>

#include <gloo/common/error.h>
#include <gloo/common/logging.h>

#include "transport/gloo/wait.h"

namespace gloo_bypass::adapter {
// Gloo's checking macros are written for its own namespace.
using ::gloo::EnforceNotMet;
using ::gloo::MakeString;

namespace {

// The peer of a bound buffer has its receiving buffer or is about to make it, so this is seldom waited for.
constexpr auto kSendLinger = std::chrono::seconds(2);

std::uint64_t tagOf(int slot) { return static_cast<std::uint32_t>(slot); }

}  // namespace

Buffer::Buffer(std::shared_ptr<Group> group, Connection& connection, int slot, void* ptr, std::size_t size,
               Direction direction)
    : ::gloo::transport::Buffer(slot, ptr, size),
      group_(std::move(group)),
      connection_(connection),
      direction_(direction) {
  if (direction == Direction::kSend) return;
  bool claimed = false;
  group_->exclusive([&] {
    claimed = connection_.claimSlot(slot);
    if (claimed) connection_.receiveAlways(state_, tagOf(slot), static_cast<std::byte*>(ptr), size);
  });
  GLOO_ENFORCE(claimed, "duplicate buffer for slot ", slot);
}

Buffer::~Buffer() {
  withdraw(*group_, state_, kSendLinger);
  if (direction_ == Direction::kSend) return;
  group_->exclusive([this] { connection_.releaseSlot(slot_); });
}

void Buffer::send(std::size_t offset, std::size_t length, std::size_t roffset) {
  // The peer's size is not known here.
  GLOO_ENFORCE_LE(offset, size_);
  GLOO_ENFORCE_LE(length, size_ - offset);
  if (debug_) {
    std::cout << "[" << getpid() << "] send " << length << " bytes to rank " << connection_.peerRank << std::endl;
  }
  Failure failure;
  bool connected = false;
  group_->exclusive([&] {
    connected = connection_.connected() || connection_.onDemand();
    failure = connection_.failure();
    if (failure || !connected) return;
    failure = connection_.send(state_, {MessageKind::kBound, tagOf(slot_)}, static_cast<std::byte*>(ptr_) + offset,
                               length, roffset);
  });
  if (failure) throwIo(failure);
  GLOO_ENFORCE(connected, "Pair is not connected (rank ", group_->rank(), " <--> rank ", connection_.peerRank, ")");
}

void Buffer::waitRecv() { wait(Direction::kReceive); }

void Buffer::waitSend() { wait(Direction::kSend); }

void Buffer::wait(Direction direction) {
  const bool sending = direction == Direction::kSend;
  const auto timeout = connection_.timeout;
  const TimePoint deadline = timeout == ::gloo::kNoTimeout ? kNever : deadlineAfter(timeout);
  Wait wait(*group_, state_, direction);
  if (sending) wait.mustBePosted();
  if (wait.until(deadline, connection_.busyPoll()) == WaitOutcome::kPending) {
    exclusiveOrThrow(*group_, [&]() -> Failure {
      if (wait()) return nullptr;
      connection_.abort(
          makeFailure(GLOO_ERROR_MSG(sending ? "Write timeout " : "Read timeout ", connection_.describePeer(),
                                     ": rank ", group_->rank(), " waited ", timeout.count(), "ms")));
      return connection_.failure();
    });
  }
  GLOO_ENFORCE(wait.outcome() != WaitOutcome::kNothingPosted, "No send to wait for");
  if (wait.outcome() == WaitOutcome::kFailed) wait.throwFailure();
}

}  // namespace gloo_bypass::adapter
