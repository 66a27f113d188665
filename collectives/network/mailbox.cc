#include "collectives/network/mailbox.h"

#include <utility>

#include <fmt/format.h>

namespace gloo_bypass::collectives {

std::string Mailbox::faultOf(const Message& message, bool mayBeAny) const {
  const int size = static_cast<int>(peers_.size());
  if (mayBeAny && message.peer == Message::kAnyPeer) return "";
  if (message.peer < 0 || message.peer >= size)
    return fmt::format("there is no rank {} in a group of {}", message.peer, size);
  return message.peer == rank_ ? fmt::format("rank {} cannot send to itself or receive from itself", rank_) : "";
}

void Mailbox::send(const Message& message, Done done) {
  if (std::string fault = faultOf(message, false); !fault.empty()) {
    return done({ErrorScope::kOperation, ErrorCode::kInvalidArgument, "send: " + fault}, message.peer);
  }
  underWay_.push_back({{}, message, std::move(done), false, {}});
  post(std::prev(underWay_.end()), *peers_[static_cast<std::size_t>(message.peer)], true);
}

void Mailbox::receive(const Message& message, Done done) {
  if (std::string fault = faultOf(message, true); !fault.empty()) {
    return done({ErrorScope::kOperation, ErrorCode::kInvalidArgument, "receive: " + fault}, message.peer);
  }
  if (message.peer != Message::kAnyPeer) {
    underWay_.push_back({{}, message, std::move(done), false, {}});
    return post(std::prev(underWay_.end()), *peers_[static_cast<std::size_t>(message.peer)], false);
  }
  if (Peer* sender = oldest(message.tag)) {
    underWay_.push_back({{}, message, std::move(done), false, {}});
    return post(std::prev(underWay_.end()), *sender, false);
  }
  if (const Error* why = allEnded()) return done(*why, Message::kAnyPeer);
  fromAny_.push_back({{}, message, std::move(done), false, {}});
}

void Mailbox::post(Letters::iterator letter, Peer& peer, bool sends) {
  letter->transfer.owner = this;
  letter->transfer.bytes = letter->message.bytes;
  Transfer& transfer = letter->transfer;
  const MessageKey key = programKey(letter->message.tag);
  // The channel may complete it, or fail, before it returns.
  letter->posting = true;
  // The peer gets a program's message however this process ends.
  const Status posted = sends ? peer.send(transfer, key, letter->message.data, transfer.bytes, /*confirmed=*/true)
                              : peer.receive(transfer, key, letter->message.data, transfer.bytes);
  letter->posting = false;
  if (!posted.ok() && !letter->outcome) letter->outcome = posted;
  if (!letter->outcome) return;
  Letters ended;
  ended.splice(ended.end(), underWay_, letter);
  cancel(std::move(ended), Status(*letter->outcome));
}

Peer* Mailbox::oldest(std::uint32_t tag) const {
  Peer* oldest = nullptr;
  TimePoint since = kNever;
  for (const auto& peer : peers_) {
    const auto arrived = peer == nullptr ? std::nullopt : peer->channel().oldestUnmatched(programKey(tag));
    if (!arrived || *arrived >= since) continue;
    oldest = peer.get();
    since = *arrived;
  }
  return oldest;
}

const Error* Mailbox::allEnded() const {
  const Error* why = nullptr;
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    if (peer->ended() == nullptr) return nullptr;
    why = peer->ended();
  }
  return why;
}

void Mailbox::onAnnounced(Peer& peer, std::uint32_t tag) {
  for (auto letter = fromAny_.begin(); letter != fromAny_.end(); ++letter) {
    if (letter->message.tag != tag) continue;
    if (!peer.channel().oldestUnmatched(programKey(tag))) return;
    underWay_.splice(underWay_.end(), fromAny_, letter);
    return post(letter, peer, false);
  }
}

void Mailbox::onTransferEnd(Transfer& transfer, std::size_t length) noexcept {
  for (auto letter = underWay_.begin(); letter != underWay_.end(); ++letter) {
    if (&letter->transfer != &transfer) continue;
    const int peer = transfer.peer->rank();
    Status status;
    if (!transfer.sends && length != transfer.bytes) {
      status = Status(ErrorScope::kSession, ErrorCode::kInvalidArgument,
                      fmt::format("rank {} sent {} bytes with tag {}, and rank {} receives {}", peer, length,
                                  letter->message.tag, rank_, transfer.bytes));
    }
    return end(underWay_, letter, status, peer);
  }
}

void Mailbox::end(Letters& of, Letters::iterator letter, const Status& status, int peer) {
  if (letter->posting) {
    if (!letter->outcome) letter->outcome = status;
    return;
  }
  const Done done = std::move(letter->done);
  of.erase(letter);
  done(status, peer);
}

Mailbox::Letters Mailbox::taken(const Peer* peer, const Error& error) {
  Letters letters;
  for (auto letter = underWay_.begin(); letter != underWay_.end();) {
    const auto next = std::next(letter);
    const bool wanted = peer == nullptr || letter->transfer.peer == peer;
    if (wanted && !letter->posting) letters.splice(letters.end(), underWay_, letter);
    if (wanted && letter->posting && !letter->outcome) letter->outcome = Status(error);
    letter = next;
  }
  return letters;
}

void Mailbox::cancel(Letters letters, Status status) {
  while (!letters.empty()) {
    Peer& peer = *letters.front().transfer.peer;
    peer.cancel(letters.front().transfer);
    end(letters, letters.begin(), status, peer.rank());
  }
}

void Mailbox::onEnded(Peer& peer) {
  cancel(taken(&peer, *peer.ended()), *peer.ended());  // a peer may have ended while its channel goes on
  const Error* why = allEnded();
  while (why != nullptr && !fromAny_.empty()) end(fromAny_, fromAny_.begin(), *why, Message::kAnyPeer);
}

void Mailbox::fail(const Error& error) {
  cancel(taken(nullptr, error), error);
  while (!fromAny_.empty()) end(fromAny_, fromAny_.begin(), error, Message::kAnyPeer);
}

}  // namespace gloo_bypass::collectives
