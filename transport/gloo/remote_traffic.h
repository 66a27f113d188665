// Puts and gets over one connection: carries what RemoteRequests and RemoteService say and move, and takes in what the
// peer sends. Belongs to its connection, which makes it with the first of either.
//
//   Connection -- RemoteTraffic -+- RemoteRequests   what we ask of the peer
//                                `- RemoteService    what the peer asks of us
//
// Nothing is posted ahead: a message of the peer is announced, and received then. So a pair without puts and gets costs
// nothing.
//
// Thread: every method needs the progress engine's exclusive access; called from the channel's observer as well, and
// posts there. Errors: what no correct peer sends fails the connection, with the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "transport/channel/message_channel.h"
#include "transport/gloo/remote_requests.h"
#include "transport/gloo/remote_service.h"

namespace gloo_bypass::adapter {

class Connection;
class Group;

// In which of the two a token's operation is.
enum class RemoteRole : std::uint8_t { kAsks = 0, kServes = 1 };

// Memory for data that is no longer wanted. Its length is the peer's choice, up to that of the longest put
// or get there was: memory may run out, which is the connection's end only.
class DropMemory {
 public:
  DropMemory() = default;
  ~DropMemory() { release(); }
  DropMemory(const DropMemory&) = delete;
  DropMemory& operator=(const DropMemory&) = delete;

  // False: there is no memory.
  bool reserve(std::size_t length);
  void release();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t length_ = 0;
};

class RemoteTraffic {
 public:
  RemoteTraffic(Group& group, Connection& connection);

  RemoteRequests& requests() { return requests_; }
  RemoteService& service() { return service_; }

  // Tokens of operations are addresses, which never have this bit.
  static bool owns(OperationToken token) { return (token & kTokenBit) != 0; }
  void onSendComplete(OperationToken token);
  void onReceiveComplete(OperationToken token, std::size_t length);
  void onAnnounced(MessageKey key, std::size_t length);
  // The channel has forgotten everything.
  void forget();

  // For the two. False: the connection has failed.
  bool tell(const RemoteMessage& message, std::span<const std::byte> payload);
  bool sendData(RemoteRole role, std::uint64_t number, MessageKey key, const std::byte* data, std::size_t length);
  bool receiveData(RemoteRole role, std::uint64_t number, MessageKey key, std::byte* data, std::size_t length);
  // False: nothing of it was left to cancel. May fail the connection.
  bool cancelSend(RemoteRole role, std::uint64_t number);
  void cancelReceive(RemoteRole role, std::uint64_t number);
  // Takes an announced message in and forgets it, one after the other.
  void drop(MessageKey key, std::size_t length);
  // The peer did what no correct one does: fails the connection.
  void violation(const char* what);

 private:
  static constexpr OperationToken kTokenBit = OperationToken{1} << 63;
  enum class Purpose : std::uint8_t { kAskedData = 0, kServedData = 1, kMessage = 2, kDropped = 3 };
  struct Dropped {
    MessageKey key;
    std::size_t length = 0;
  };
  struct Posted {
    TimePoint at{};
    std::size_t length = 0;
  };

  static OperationToken tokenOf(Purpose purpose, std::uint64_t number);
  static OperationToken tokenOf(RemoteRole role, std::uint64_t number);
  static Purpose purposeOf(OperationToken token);
  static std::uint64_t numberOf(OperationToken token);

  bool open() const;
  bool send(const SendRequest& request);
  bool receive(const ReceiveRequest& request);
  void notePosted(OperationToken token, std::size_t length);
  bool posted(const Status& status, const char* what);
  void onMessage(std::span<const std::byte> bytes);
  void onData(OperationToken token, std::size_t length);
  void dropNext();

  Group& group_;
  Connection& connection_;
  RemoteRequests requests_;
  RemoteService service_;
  std::uint64_t nextMessage_ = 1;
  std::map<OperationToken, std::vector<std::byte>> outgoing_, incoming_;  // messages in the channel's hands
  std::deque<Dropped> toDrop_;                                            // the first is being received into dropped_
  DropMemory dropped_;
  std::map<OperationToken, Posted> posted_;  // where latencies are measured: what the channel has
};

}  // namespace gloo_bypass::adapter
