// Completions and the sessions' turns; see verbs_transport_impl.h.
#include <algorithm>
#include <array>
#include <utility>

#include "transport/channel/channel_counters.h"
#include "transport/verbs/verbs_transport_impl.h"
#include "transport/verbs/work_id.h"

namespace gloo_bypass::verbs {
namespace {

constexpr int kPollBatch = 16;
// Completions taken in one round before sessions have their turn.
constexpr int kPollRounds = 4;
// A device in software carries out a READ before its posting returns, milliseconds later. A program that does not wait may be about to
// send, and its peer waits for that: so long READs are left to who waits for an operation. What nobody waits for has time.
constexpr auto kReadGrace = std::chrono::milliseconds(5);

}  // namespace

RdmaSession* VerbsTransport::sessionOf(const ibv_wc& completion) {
  const WorkId work = decodeWorkId(completion.wr_id);
  if (work.receive) {
    const auto it = byQueuePair_.find(completion.qp_num);
    return it == byQueuePair_.end() ? nullptr : it->second;
  }
  return sessions_.find(work.session);
}

// Takes what the adapter has completed, at most some rounds of it. True if there may be more.
bool VerbsTransport::fetchCompletions() {
  bool more = false;
  std::array<ibv_wc, kPollBatch> batch;
  for (const auto& queues : rails) {
    int count = 0;
    for (int round = 0; round < kPollRounds; ++round) {
      count = ibv_poll_cq(queues->completions(), kPollBatch, batch.data());
      if (count > 0) fetched_.insert(fetched_.end(), batch.begin(), batch.begin() + count);
      if (count < kPollBatch) break;
    }
    more |= count == kPollBatch;
  }
  return more;
}

// True if there were any. Handling one may lead to drain(), which takes those of its session out of the middle.
bool VerbsTransport::handleCompletions() {
  caughtUp_ = !fetchCompletions();
  const bool any = !fetched_.empty();
  while (!fetched_.empty()) {
    const ibv_wc completion = fetched_.front();
    fetched_.pop_front();
    handle(completion);
  }
  return any;
}

void VerbsTransport::handleCompletionsOf(const RdmaSession& session) {
  (void)fetchCompletions();
  for (;;) {
    const auto next = std::find_if(fetched_.begin(), fetched_.end(),
                                   [&](const ibv_wc& completion) { return sessionOf(completion) == &session; });
    if (next == fetched_.end()) return;
    const ibv_wc completion = *next;
    fetched_.erase(next);
    handle(completion);
  }
}

void VerbsTransport::handle(const ibv_wc& completion) {
  RdmaSession* session = sessionOf(completion);
  const WorkId work = decodeWorkId(completion.wr_id);
  const bool success = completion.status == IBV_WC_SUCCESS;
  if (session == nullptr) ++strayCompletions_;  // of queue pairs that are gone
  if (work.receive) {
    if (session != nullptr && success) {
      const std::size_t length = std::min<std::size_t>(completion.byte_len, receives->slotBytes());
      session->onFrame(receives->received(work.slot, length));
    } else if (session != nullptr) {
      session->onReceiveFailed(completion.status);
    }
    receives->repost(work.slot);
  } else if (session != nullptr && success) {
    session->onSent(work.kind, work.number);
  } else if (session != nullptr) {
    session->onWorkFailed(work.kind, completion.status);
  }
}

bool VerbsTransport::drain(RdmaSession& session, const std::function<bool()>& done, Duration timeout) {
  const TimePoint deadline = monotonicNow() + timeout;
  while (!done()) {
    if (monotonicNow() >= deadline) return false;
    handleCompletionsOf(session);
    (void)receives->flush();
  }
  return true;
}

bool VerbsTransport::pumpDirty(TimePoint now, bool waits) {
  const bool deferredBefore = std::exchange(readsDeferred_, false);
  const bool mayRead = !inSoftware_ || waits || (deferredBefore && now >= readsFrom_);
  const auto turn = [&](RdmaSession& session) {
    const bool progressed = session.pump(now, mayRead);
    if (!mayRead && session.wantsToRead()) {
      readsDeferred_ = true;
      session.markDirty();
    }
    return progressed;
  };
  const bool progressed = sessions_.pump(turn, [this](RdmaSession& session) {
    std::erase_if(byQueuePair_, [&](const auto& item) { return item.second == &session; });
  });
  if (readsDeferred_ && !deferredBefore) readsFrom_ = now + Duration(kReadGrace);
  return progressed;
}

}  // namespace gloo_bypass::verbs
