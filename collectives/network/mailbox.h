// A program's own messages (torch.distributed's send and recv) over the peers' channels, beside the collectives.
//
// Messages of one tag between two ranks arrive in the order sent. A receive from any takes the message that has waited
// longest. A message of another length than its receive is an error: a shorter one of that receive (kInvalidArgument),
// a longer one of the connection (kMessageTooLong), since the channel cannot skip it.
//
// Thread: the engine's exclusive access.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/group.h"
#include "collectives/network/peer.h"

namespace gloo_bypass::collectives {

class Mailbox final : private TransferOwner {
 public:
  // Runs with exclusive access: it must not call the executor, and not block.
  using Done = std::function<void(Status, int peer)>;

  Mailbox(int rank, std::span<const std::unique_ptr<Peer>> peers) : rank_(rank), peers_(peers) {}

  void send(const Message& message, Done done);
  void receive(const Message& message, Done done);
  // A message without a receive is there.
  void onAnnounced(Peer& peer, std::uint32_t tag);
  void onEnded(Peer& peer);
  // Ends all with the error; their memory is not touched any more.
  void fail(const Error& error);

 private:
  struct Letter {
    Transfer transfer;
    Message message;
    Done done;
    bool posting = false;           // its channel has not returned from the post: it must not go
    std::optional<Status> outcome;  // that it had meanwhile
  };
  using Letters = std::list<Letter>;

  void onTransferEnd(Transfer& transfer, std::size_t length) noexcept override;
  std::string faultOf(const Message& message, bool mayBeAny) const;
  Peer* oldest(std::uint32_t tag) const;
  // Null while some rank may still send.
  const Error* allEnded() const;
  void post(Letters::iterator letter, Peer& peer, bool sends);
  void end(Letters& of, Letters::iterator letter, const Status& status, int peer);
  // The letters of this peer, or of all (null), out of the list; those that are being posted get the error later.
  Letters taken(const Peer* peer, const Error& error);
  // Letters that are in no list: to cancel one may end its channel, and with that the others of its peer. `status` is a
  // copy: it may come from one of them.
  void cancel(Letters letters, Status status);

  const int rank_;
  const std::span<const std::unique_ptr<Peer>> peers_;
  Letters underWay_;
  Letters fromAny_;  // not matched yet, in the order posted
};

}  // namespace gloo_bypass::collectives
