// One direction of traffic between two hosts, and the checks on its arrival: every message bit-exact, in order of its
// key, once; buffers untouched outside the time in which they are lent. traffic.h says what the messages are.
//
// If its session ends early, what is posted later is refused, and no completion may come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tools/simulation/core/host.h"
#include "tools/simulation/core/random.h"
#include "tools/simulation/core/traffic.h"

namespace gloo_bypass::sim {

// Bytes that depend on seed and position, so that a shifted, swapped or stale block shows.
void fillPattern(std::span<std::byte> buffer, std::uint64_t seed);
bool matchesPattern(std::span<const std::byte> buffer, std::uint64_t seed);

class Conversation {
 public:
  Conversation(Simulation& simulation, Host& sender, Host& receiver, const TrafficModel& model, std::uint64_t seed);
  // `plan` as orderTraffic() orders it. `lossless`: as in TrafficModel.
  Conversation(Simulation& simulation, Host& sender, Host& receiver, const std::vector<PlannedMessage>& plan,
               bool lossless, std::uint64_t seed);
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  // The plan's times count from now on. The hosts' observers must pass events on.
  void start();
  void onSenderEvent(const SessionEvent& event);
  void onReceiverEvent(const SessionEvent& event);

  bool done() const { return openSends_ == 0 && openReceives_ == 0; }
  // At the end: checks that returned buffers have not changed. Empty: no faults.
  void checkBuffers();
  const std::vector<std::string>& faults() const { return faults_; }
  std::string progress() const;

  bool allReceived() const { return openReceives_ == 0; }
  // Messages that the sender's session has taken, and that were neither received nor withdrawn at either end.
  std::size_t undelivered() const;
  std::uint64_t messagesDelivered() const { return messagesDelivered_; }
  std::uint64_t bytesDelivered() const { return bytesDelivered_; }

 private:
  struct Message : PlannedMessage {
    MessageKey messageKey;
    std::uint64_t remoteOffset = 0;
    std::uint64_t pattern = 0;
    std::vector<std::byte> sendBuffer, receiveBuffer;
    bool sendPosted = false, sendOpen = false, sendCancelled = false, received = false;
    // kWithdrawn: the buffer of the cancelled receive, and its contents at that time.
    std::vector<std::byte> withdrawnBuffer, withdrawnCopy;
    bool withdrawnOpen = false, withdrawnCancelled = false;
  };

  MessageKey keyOf(const PlannedMessage& message) const;
  void layOutRegion();
  void postSend(std::size_t index);
  void postReceive(std::size_t index);
  void postPersistent();
  void postWithdrawn(std::size_t index);
  void withdraw(std::size_t index);
  void onReceived(OperationToken token, std::size_t length);
  void onPersistentReceived(std::size_t length);
  void onAnnounced(MessageKey key, std::size_t length);
  void postAnnounced();
  void onWithdrawnAnnounced(MessageKey key);
  void judge(Message& message, std::span<const std::byte> bytes, std::size_t length);
  // The session took no post: a fault if it lives.
  void refused(const Host& host, const char* what, std::size_t index, const Status& status);
  void fault(std::string text);

  Simulation& simulation_;
  Host& sender_;
  Host& receiver_;
  const bool lossless_;
  Random random_;
  std::deque<Message> messages_;  // in the order of sending; a deque keeps addresses valid
  std::vector<std::byte> region_;
  std::deque<std::size_t> persistentOrder_;  // messages of the persistent key not yet received
  std::deque<std::size_t> announcedOrder_;   // sent on the announced key, not yet announced
  std::deque<std::size_t> announcedToPost_;  // announced, their receive not yet posted
  std::uint64_t tagBase_ = 0;
  std::size_t openSends_ = 0, openReceives_ = 0;
  std::uint64_t messagesDelivered_ = 0, bytesDelivered_ = 0;
  std::uint64_t completedBytes_ = 0, confirmedBytes_ = 0;  // of sends that have completed
  std::vector<std::string> faults_;
};

}  // namespace gloo_bypass::sim
