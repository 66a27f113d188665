#include "transport/gloo/pair.h"

#include <utility>

#include <gloo/common/error.h>
#include <gloo/common/logging.h>

#include "transport/gloo/buffer.h"
#include "transport/gloo/unbound_buffer.h"
#include "transport/gloo/wait.h"

namespace gloo_bypass::adapter {
namespace {

// As over TCP, where no timeout of a connecting pair means no end.
constexpr auto kLongestWait = std::chrono::hours(100);

}  // namespace

Pair::Pair(std::shared_ptr<Group> group, int peerRank, std::chrono::milliseconds timeout, ConnectMode mode)
    : group_(std::move(group)) {
  exclusiveOrThrow(*group_, [&]() -> Failure {
    connection_ = &group_->addConnection(peerRank, timeout, mode);
    if (mode == ConnectMode::kOnDemand) return nullptr;
    if (Failure failure = connection_->open()) return failure;
    address_ = Address(encodeAddress(connection_->localAddress()), group_->transport().describe());
    return nullptr;
  });
}

Pair::~Pair() {
  group_->exclusive([this] { connection_->close("destroyed its pair"); });
}

void Pair::connect(const std::vector<char>& bytes) {
  if (connection_->onDemand()) GLOO_THROW_INVALID_OPERATION_EXCEPTION("this pair connects when it is first used");
  if (bytes == address_.bytes()) GLOO_THROW_INVALID_OPERATION_EXCEPTION("cannot connect to self");
  group_->exclusive([&] { connection_->connectTo(bytes); });
  waitUntilConnected();
}

void Pair::waitUntilConnected() {
  Failure failure;
  // A peer may connect, do its work and end before this thread looks: it was met, and the next use fails.
  auto arrived = [&] {
    const bool met = connection_->hasMet();
    failure = met ? nullptr : connection_->failure();
    return met || failure != nullptr;
  };
  const bool bounded = connection_->timeout > ::gloo::kNoTimeout && connection_->timeout < kLongestWait;
  const auto timeout = bounded ? connection_->timeout : std::chrono::milliseconds(kLongestWait);
  if (!group_->progress().waitUntil(std::ref(arrived), deadlineAfter(timeout))) {
    group_->exclusive([&] {
      if (arrived()) return;
      connection_->abort(makeFailure(GLOO_ERROR_MSG("Connect timeout ", connection_->describePeer(), ": rank ",
                                                    group_->rank(), " waited ", timeout.count(), "ms")));
      failure = connection_->failure();
    });
  }
  if (failure) throwIo(failure);
}

void Pair::close() {
  group_->exclusive([this] { connection_->close("closed its connection"); });
}

void Pair::setSync(bool enable, bool busyPoll) {
  if (!enable) GLOO_THROW_INVALID_OPERATION_EXCEPTION("Can only switch to sync mode");
  group_->exclusive([this] { (void)connection_->wake(); });
  waitUntilConnected();
  connection_->setBusyPoll(busyPoll);
  if (busyPoll) group_->setBusyPoll();
}

std::unique_ptr<::gloo::transport::Buffer> Pair::createSendBuffer(int slot, void* ptr, std::size_t size) {
  return std::make_unique<Buffer>(group_, *connection_, slot, ptr, size, Direction::kSend);
}

std::unique_ptr<::gloo::transport::Buffer> Pair::createRecvBuffer(int slot, void* ptr, std::size_t size) {
  return std::make_unique<Buffer>(group_, *connection_, slot, ptr, size, Direction::kReceive);
}

void Pair::send(::gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset, std::size_t nbytes) {
  static_cast<UnboundBuffer*>(buffer)->send(*connection_, tag, offset, nbytes);
}

void Pair::recv(::gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset, std::size_t nbytes) {
  static_cast<UnboundBuffer*>(buffer)->recv(*connection_, tag, offset, nbytes);
}

bool Pair::connectedNow() {
  bool connected = false;
  group_->exclusive([&] { connected = connection_->connected(); });
  return connected;
}

}  // namespace gloo_bypass::adapter
