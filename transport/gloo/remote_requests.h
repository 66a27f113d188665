// The puts and gets that this rank asks of one peer, from the program's call to the peer's answer. Belongs to the
// connection's RemoteTraffic.
//
//   queued --fewer than kMaxRemoteOperations unanswered--> asked --kDone, and the data is through--> complete
//                                                            |                                    (kRefused: failed)
//        put, long: --kGo--> its data is being sent ---------+
//        get, long: its receive is posted before it is asked for
//
// An operation that the program withdraws stays here, without its memory, until the peer has answered.
//
// Thread: every method needs the progress engine's exclusive access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>

#include "transport/gloo/operation.h"
#include "transport/gloo/remote_message.h"

namespace gloo_bypass::adapter {

class Connection;
class RemoteTraffic;

class RemoteRequests {
 public:
  RemoteRequests(RemoteTraffic& traffic, Connection& connection) : traffic_(traffic), connection_(connection) {}

  // `request`: all but the operation's number. `local` must stay until `operation` is over or withdrawn.
  void ask(Operation& operation, const RemoteMessage& request, std::byte* local);
  // Its memory is not touched any more; who calls it releases the operation. May fail the connection.
  void withdraw(Operation& operation);

  // From the peer: hostile.
  void onAnswer(const RemoteMessage& answer, std::span<const std::byte> payload);
  // The channel is done with the data of this operation.
  void onData(std::uint64_t number, std::size_t length);
  // Data has come for a get that nobody waits for any more.
  void onUnexpectedData(std::uint64_t number, std::size_t length);

  // The channel has forgotten everything, and the connection ends the operations.
  void forget();

 private:
  struct Asked {
    RemoteMessage request;
    Operation* operation = nullptr;  // null: complete, or withdrawn
    std::byte* local = nullptr;
    bool granted = false;   // a long put, and its kGo has come
    bool underWay = false;  // the channel has `local`
    bool answered = false;
    Failure failure;

    bool isPut() const { return request.type == RemoteMessageType::kPut; }
    bool isShort() const { return request.length <= kInlineBytes; }
  };

  void askNext();
  void onGo(Asked& asked);
  void onDone(Asked& asked, std::span<const std::byte> payload);
  void onRefused(Asked& asked, RemoteRefusal refusal);
  // Ends the operation if nothing of it is left to wait for.
  void conclude(std::uint64_t number);

  RemoteTraffic& traffic_;
  Connection& connection_;
  std::deque<Asked> queue_;
  std::map<std::uint64_t, Asked> asked_;
  std::uint64_t nextNumber_ = 1;
  std::uint64_t longestGet_ = 0;
};

}  // namespace gloo_bypass::adapter
