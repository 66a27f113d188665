#include "transport/gloo/unbound_buffer.h"

#include <cstring>
#include <sstream>
#include <utility>

#include <gloo/common/error.h>
#include <gloo/common/logging.h>

#include "transport/gloo/remote_key.h"
#include "transport/gloo/wait.h"

namespace gloo_bypass::adapter {
// Gloo's checking macros are written for its own namespace.
using ::gloo::EnforceNotMet;
using ::gloo::MakeString;

namespace {

// How long the destructor waits for unacknowledged sends.
constexpr auto kSendLinger = std::chrono::milliseconds(100);
// Grace period for a peer's put or get when the buffer is destroyed.
constexpr auto kServiceLinger = std::chrono::milliseconds(100);

}  // namespace

UnboundBuffer::UnboundBuffer(std::shared_ptr<Context> context, void* memory, std::size_t bytes)
    : gloo_version::RemoteKeyBuffer(memory, bytes), context_(std::move(context)), group_(context_->group()) {}

UnboundBuffer::~UnboundBuffer() {
  if (region_ != 0) group_.conceal(region_, kServiceLinger);
  withdraw(group_, state_, kSendLinger);
}

bool UnboundBuffer::waitRecv(int* rank, std::chrono::milliseconds timeout) {
  return wait(Direction::kReceive, rank, timeout);
}

bool UnboundBuffer::waitSend(int* rank, std::chrono::milliseconds timeout) {
  return wait(Direction::kSend, rank, timeout);
}

bool UnboundBuffer::wait(Direction direction, int* rank, std::chrono::milliseconds timeout) {
  if (timeout == ::gloo::transport::kUnsetTimeout) timeout = context_->getTimeout();
  Wait wait(group_, state_, direction);
  std::string peers;
  if (wait.until(deadlineAfter(timeout), group_.busyPoll()) == WaitOutcome::kPending) {
    // It may have ended between the deadline and now.
    group_.exclusive([&] {
      if (!wait()) peers = giveUp(direction);
    });
  }
  switch (wait.outcome()) {
    case WaitOutcome::kCompleted:
      if (rank != nullptr) *rank = wait.rank();
      return true;
    case WaitOutcome::kAborted:
      return false;
    case WaitOutcome::kFailed:
      wait.throwFailure();
    case WaitOutcome::kPending:
    case WaitOutcome::kNothingPosted:
      break;
  }
  const bool sending = direction == Direction::kSend;
  throw ::gloo::IoException(GLOO_ERROR_MSG("Timed out waiting ", timeout.count(), "ms for ", sending ? "send" : "recv",
                                           " operation to complete: rank ", group_.rank(), sending ? ", to" : ", from",
                                           peers.empty() ? " no one, nothing is pending" : peers));
}

// As over TCP, all pairs of the context are closed: the program will not wait for what is under way.
std::string UnboundBuffer::giveUp(Direction direction) {
  std::ostringstream peers;
  for (Operation* o = state_.operations.next(); o != nullptr; o = o->byBuffer.next()) {
    if (o->direction != direction) continue;
    if (o->connection != nullptr) peers << " " << o->connection->describePeer();
    for (const int source : o->sources) peers << " rank " << source;
  }
  group_.failAll(makeFailure(GLOO_ERROR_MSG("Application timeout caused pair closure (rank ", group_.rank(), ")")));
  return peers.str();
}

void UnboundBuffer::abortWaitRecv() { abortWait(Direction::kReceive); }

void UnboundBuffer::abortWaitSend() { abortWait(Direction::kSend); }

void UnboundBuffer::abortWait(Direction direction) {
  group_.exclusive([&] { state_.of(direction).abort = true; });
}

Connection& UnboundBuffer::connection(int rank) const {
  Connection* connection = group_.connection(rank);
  GLOO_ENFORCE(connection != nullptr, "Rank ", group_.rank(), " has no pair for rank ", rank);
  return *connection;
}

// As over TCP: an empty message may have any offset.
std::byte* UnboundBuffer::checkedRange(std::size_t offset, std::size_t nbytes) const {
  auto* begin = static_cast<std::byte*>(ptr);
  if (nbytes == 0) return begin;
  GLOO_ENFORCE_LE(offset, size);
  GLOO_ENFORCE_LE(nbytes, size - offset);
  return begin + offset;
}

// Without a length: up to the buffer's end.
std::size_t UnboundBuffer::lengthFrom(std::size_t offset, std::size_t nbytes) const {
  if (nbytes != kUnspecifiedByteCount) return nbytes;
  GLOO_ENFORCE_LE(offset, size);
  return size - offset;
}

void UnboundBuffer::send(int dstRank, std::uint64_t slot, std::size_t offset, std::size_t nbytes) {
  nbytes = lengthFrom(offset, nbytes);
  send(connection(dstRank), slot, offset, nbytes);
}

void UnboundBuffer::recv(int srcRank, std::uint64_t slot, std::size_t offset, std::size_t nbytes) {
  nbytes = lengthFrom(offset, nbytes);
  recv(connection(srcRank), slot, offset, nbytes);
}

void UnboundBuffer::recv(std::vector<int> srcRanks, std::uint64_t slot, std::size_t offset, std::size_t nbytes) {
  if (nbytes == kUnspecifiedByteCount) GLOO_ENFORCE_LT(offset, size);  // as over TCP
  nbytes = lengthFrom(offset, nbytes);
  std::byte* data = checkedRange(offset, nbytes);
  exclusiveOrThrow(group_, [&] { return group_.receiveFromAny(state_, slot, data, nbytes, std::move(srcRanks)); });
}

void UnboundBuffer::send(Connection& connection, std::uint64_t slot, std::size_t offset, std::size_t nbytes) {
  std::byte* data = checkedRange(offset, nbytes);
  exclusiveOrThrow(
      group_, [&] { return connection.send(state_, {MessageKind::kUnbound, slot}, data, nbytes, /*remoteOffset=*/0); });
}

void UnboundBuffer::recv(Connection& connection, std::uint64_t slot, std::size_t offset, std::size_t nbytes) {
  std::byte* data = checkedRange(offset, nbytes);
  exclusiveOrThrow(group_, [&] { return connection.receive(state_, slot, data, nbytes); });
}

std::unique_ptr<gloo_version::RemoteKey> UnboundBuffer::getRemoteKey() const {
  std::uint64_t context = 0, region = 0;
  group_.exclusive([&] {
    if (region_ == 0) region_ = group_.expose(static_cast<std::byte*>(ptr), size);
    region = region_;
    context = group_.exposedMemory().context();
  });
  return std::make_unique<RemoteKey>(group_.rank(), size, context, region);
}

void UnboundBuffer::put(const gloo_version::RemoteKey& key, std::uint64_t /*slot*/, std::size_t offset,
                        std::size_t roffset, std::size_t nbytes) {
  access(RemoteMessageType::kPut, key, offset, roffset, nbytes);
}

void UnboundBuffer::get(const gloo_version::RemoteKey& key, std::uint64_t /*slot*/, std::size_t offset,
                        std::size_t roffset, std::size_t nbytes) {
  access(RemoteMessageType::kGet, key, offset, roffset, nbytes);
}

void UnboundBuffer::access(RemoteMessageType type, const gloo_version::RemoteKey& key, std::size_t offset,
                           std::size_t roffset, std::size_t nbytes) {
  const auto* own = dynamic_cast<const RemoteKey*>(&key);
  GLOO_ENFORCE(own != nullptr, "Rank ", group_.rank(), ": not a remote key of this transport");
  GLOO_ENFORCE_LE(offset, size);
  GLOO_ENFORCE_LE(nbytes, size - offset);
  GLOO_ENFORCE_LE(roffset, key.size);
  GLOO_ENFORCE_LE(nbytes, key.size - roffset);
  const RemoteMessage request{
      .type = type, .context = own->context, .region = own->region, .offset = roffset, .length = nbytes};
  std::byte* local = checkedRange(offset, nbytes);
  if (key.rank == group_.rank()) {
    accessOwn(request, local);
    return;
  }
  Connection& peer = connection(key.rank);
  exclusiveOrThrow(group_, [&] { return peer.access(state_, request, local); });
}

// A refusal is found by waitSend, as that of another rank would be.
void UnboundBuffer::accessOwn(const RemoteMessage& request, std::byte* local) {
  group_.exclusive([&] {
    const ExposedMemory::Place place = group_.exposedMemory().find(request);
    if (place.refusal != RemoteRefusal::kNone) {
      state_.fail(
          makeFailure(GLOO_ERROR_MSG("Rank ", group_.rank(), ": put or get on its own memory of ", request.length,
                                     " bytes at offset ", request.offset, " was refused: ", describe(place.refusal))),
          remoteControlKey());
      return;
    }
    const bool put = request.type == RemoteMessageType::kPut;
    if (request.length > 0) std::memmove(put ? place.data : local, put ? local : place.data, request.length);
    Progress& progress = state_.of(Direction::kSend);
    progress.completions++;
    progress.rank = group_.rank();
  });
}

}  // namespace gloo_bypass::adapter
