// The puts and gets that one peer asks of this rank: served as they come, by whoever drives progress; the program does
// nothing for it. Belongs to the connection's RemoteTraffic.
//
//   asked --its memory is exposed--> waiting --no older one touches the same bytes--> started --> answered
//     `-- refused                                                                       |
//           put, long: receive posted, kGo sent; the data comes straight to its place --+
//           get, long: the data goes straight from its place ---------------------------'
//
// So operations of one peer on the same bytes take effect in the order in which they were asked for, unless all of them
// read.
//
// Thread: every method needs the progress engine's exclusive access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "transport/gloo/exposed_memory.h"
#include "transport/gloo/remote_message.h"

namespace gloo_bypass::adapter {

class RemoteTraffic;

class RemoteService {
 public:
  RemoteService(RemoteTraffic& traffic, ExposedMemory& memory) : traffic_(traffic), memory_(memory) {}

  // From the peer: hostile.
  void onRequest(const RemoteMessage& request, std::span<const std::byte> payload);
  void onCancel(std::uint64_t number);
  // The channel is done with the data of this operation.
  void onData(std::uint64_t number, std::size_t length);
  // Data has come for a put that is over.
  void onUnexpectedData(std::uint64_t number, std::size_t length);

  // The region's memory is not touched any more; what is not over is refused. May fail the connection.
  void conceal(std::uint64_t region);
  // The channel has forgotten everything.
  void forget();

 private:
  struct Served {
    RemoteMessage request;
    std::byte* place = nullptr;
    std::vector<std::byte> payload;  // of a short put
    bool started = false;

    bool isPut() const { return request.type == RemoteMessageType::kPut; }
    bool isShort() const { return request.length <= kInlineBytes; }
    bool conflictsWith(const Served& other) const;
  };
  using Iterator = std::map<std::uint64_t, Served>::iterator;

  void startReady();
  Iterator firstReady();
  void start(std::uint64_t number);
  void answer(std::uint64_t number, RemoteRefusal refusal, std::span<const std::byte> payload = {});

  RemoteTraffic& traffic_;
  ExposedMemory& memory_;
  std::map<std::uint64_t, Served> served_;  // not answered yet
  std::uint64_t nextNumber_ = 1;
  std::uint64_t longestPut_ = 0;
};

}  // namespace gloo_bypass::adapter
