// The sessions of one transport. The table finds them, gives a turn to each that has something to do, runs their
// timers, sums their counters, and destroys them once they are finished and their channels gone.
//
// `Session`: a ChannelSession with a key(), unique in the table and convertible to 64 bits, that its packets carry.
//
// Thread: with the progress engine's exclusive access, except for closeAll() and waitUntilDrained().
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <unordered_map>
#include <utility>

#include "transport/progress/progress_engine.h"
#include "transport/sessions/channel_session.h"

namespace gloo_bypass {

template <typename Session>
class SessionTable {
 public:
  // How long to wait, at the end of the process, for peers to receive what was sent.
  static constexpr auto kDrainTime = std::chrono::seconds(3);

  // Neither 0 nor the key of a session.
  std::uint64_t drawId() {
    std::uint64_t id = 0;
    while (id == 0 || sessions_.contains(id)) id = (static_cast<std::uint64_t>(random_()) << 32) | random_();
    return id;
  }
  ChannelSession::DirtyList& dirtyList() { return dirty_; }
  Session& add(std::unique_ptr<Session> session) {
    Session& added = *session;
    sessions_.emplace(added.key(), std::move(session));
    return added;
  }

  // Null: unknown key. Tries the session found last first.
  Session* find(std::uint64_t key) {
    if (lastFound_ != nullptr && lastFound_->key() == key) return lastFound_;
    const auto it = sessions_.find(key);
    if (it == sessions_.end()) return nullptr;
    return lastFound_ = it->second.get();
  }
  const std::unordered_map<std::uint64_t, std::unique_ptr<Session>>& all() const { return sessions_; }
  bool anyDirty() const { return !dirty_.empty(); }

  // Calls `turn` for each dirty session, which may mark others dirty, and `retired` before it destroys one. Returns
  // whether anything happened, as a turn does.
  template <typename Turn, typename Retired>
  bool pump(Turn&& turn, Retired&& retired) {
    bool progressed = false;
    pumping_.swap(dirty_);
    for (ChannelSession* pumped : pumping_) {
      Session& session = static_cast<Session&>(*pumped);
      pumped->dirty_ = false;
      progressed |= turn(session);
      nextDeadline_ = std::min(nextDeadline_, session.deadline());
      if (!session.finished()) continue;
      progressed = true;  // for threads that wait until all are drained
      if (!pumped->abandoned_ || pumped->dirty_) continue;
      retired(session);
      closedCounters_ += session.counters();
      if (lastFound_ == &session) lastFound_ = nullptr;
      sessions_.erase(session.key());
    }
    pumping_.clear();
    return progressed;
  }

  // No later than the earliest timer.
  TimePoint nextDeadline() const { return nextDeadline_; }
  void fireTimers(TimePoint now) {
    if (now < nextDeadline_) return;
    nextDeadline_ = kNever;
    for (auto& [key, session] : sessions_) {
      if (session->deadline() <= now) {
        session->handleTimeout(now);
        session->markDirty();
      } else {
        nextDeadline_ = std::min(nextDeadline_, session->deadline());
      }
    }
  }

  // As Transport::closeAll; without exclusive access. The channels remain, closed. `engine` drives the transport.
  void closeAll(ProgressEngine& engine) {
    engine.exclusive([this] {
      for (auto& [key, session] : sessions_) {
        session->close(monotonicNow(), false);
        session->markDirty();
      }
    });
    waitUntilDrained(engine);
  }
  void waitUntilDrained(ProgressEngine& engine) {
    const auto drained = [](const auto& item) { return item.second->drained(); };
    (void)engine.waitUntil([&] { return std::all_of(sessions_.begin(), sessions_.end(), drained); },
                           monotonicNow() + Duration(kDrainTime));
  }

  // Fills in the total and the channels.
  void report(TransportReport* report) const {
    report->total = closedCounters_;
    for (const auto& [key, session] : sessions_) {
      const ChannelCounters c = session->counters();
      report->total += c;
      report->channels.push_back({session->number(), session->peerName(), session->options().localRank,
                                  session->options().peerRank, c, session->path()});
    }
  }

 private:
  Session* lastFound_ = nullptr;
  ChannelSession::DirtyList dirty_, pumping_;
  TimePoint nextDeadline_ = kNever;
  ChannelCounters closedCounters_;
  std::random_device random_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;  // by key
};

}  // namespace gloo_bypass
