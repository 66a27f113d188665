// The session behind one message channel, for every back-end. It outlives its channel until the peer has acknowledged
// everything sent: a SessionTable owns it, and the user holds a handle.
//
// Thread: every method needs the progress engine's exclusive access.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/channel/channel_address.h"
#include "transport/channel/message_channel.h"

namespace gloo_bypass {

class ChannelSession {
 public:
  // Sessions that have something to send or to report, in the order of their turns.
  using DirtyList = std::vector<ChannelSession*>;

  // `id`: random, exchanged through the rendezvous store. `number`: the channel's name in counters. `dirtyList`: the
  // table's.
  ChannelSession(DirtyList& dirtyList, std::uint64_t id, std::uint64_t number, const ChannelOptions& options,
                 ChannelObserver* observer)
      : id_(id), options_(options), observer_(observer), number_(number), dirtyList_(dirtyList) {}
  virtual ~ChannelSession() = default;

  // As in MessageChannel; the caller marks the session dirty.
  virtual Status connect(TimePoint now, const ChannelAddress& peer) = 0;
  virtual Status postSend(const SendRequest& request) = 0;
  virtual Status postReceive(const ReceiveRequest& request) = 0;
  virtual bool cancelSend(OperationToken token) = 0;
  virtual bool cancelReceive(OperationToken token) = 0;
  virtual std::optional<TimePoint> oldestUnmatched(MessageKey key) const = 0;
  virtual void close(TimePoint now, bool abort) = 0;
  virtual ChannelState state() const = 0;
  virtual const Error& error() const = 0;
  virtual ChannelCounters counters() const = 0;
  virtual std::optional<PathFigures> path() const { return std::nullopt; }

  // When it needs a turn although nothing arrives; kNever: no timer runs.
  virtual TimePoint deadline() const = 0;
  // The deadline has passed; the turn follows.
  virtual void handleTimeout(TimePoint /*now*/) {}
  // Closed, with nothing left to do.
  virtual bool finished() const = 0;
  // The peer has acknowledged all that it should get before the process ends, or never will.
  virtual bool drained() const { return finished(); }

  // Asks for a turn soon.
  void markDirty() {
    if (dirty_) return;
    dirty_ = true;
    dirtyList_.push_back(this);
  }
  // The channel is gone: the table destroys the session once it is finished.
  void abandon() {
    abandoned_ = true;
    markDirty();
  }

  std::uint64_t id() const { return id_; }
  std::uint64_t number() const { return number_; }
  const ChannelOptions& options() const { return options_; }
  const std::string& peerName() const { return peerName_; }  // empty before connect()

 protected:
  const std::uint64_t id_;
  const ChannelOptions options_;
  ChannelObserver* observer_;  // null once closed
  std::string peerName_;

 private:
  template <typename Session>
  friend class SessionTable;

  const std::uint64_t number_;
  DirtyList& dirtyList_;
  bool dirty_ = false;  // in dirtyList_
  bool abandoned_ = false;
};

// The handle that the user of a transport holds; after close() it does not use `session` any more. `portAddress`: what
// the peer's session needs in order to connect; `offer`: of keys, or empty.
std::unique_ptr<MessageChannel> makeChannelHandle(ChannelSession& session, std::vector<std::byte> portAddress,
                                                  std::vector<std::byte> offer = {});

}  // namespace gloo_bypass
