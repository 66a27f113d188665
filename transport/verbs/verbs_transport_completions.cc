// Completions and the sessions' turns; see verbs_transport_impl.h.
#include <algorithm>
#include <utility>

#include "transport/verbs/verbs_transport_impl.h"
#include "transport/verbs/work_id.h"

namespace gloo_bypass::verbs {
namespace {

// A device in software carries out a READ before its posting returns, milliseconds later. A program that does not wait
// may be about to send, and its peer waits for that. So for this long only a thread that waits for an operation posts
// READs; others can wait.
constexpr auto kReadGrace = std::chrono::milliseconds(5);

}  // namespace

// Fetches completions from the adapters, at most some rounds. True if there may be more.
bool VerbsTransport::fetchCompletions() {
  bool more = false;
  for (const auto& queues : rails) more |= queues->completions().take(&fetched_);
  return more;
}

// True if there were any. Handling one may lead to drain(), which takes its session's completions out of the middle.
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
    const auto next = std::find_if(fetched_.begin(), fetched_.end(), [&](const ibv_wc& completion) {
      return decodeWorkId(completion.wr_id).session == session.index();
    });
    if (next == fetched_.end()) return;
    const ibv_wc completion = *next;
    fetched_.erase(next);
    handle(completion);
  }
}

void VerbsTransport::handle(const ibv_wc& completion) {
  const WorkId work = decodeWorkId(completion.wr_id);
  RdmaSession* const session = sessions_.find(work.session);
  if (session == nullptr) {
    ++strayCompletions_;  // of queue pairs that are gone
  } else if (work.kind == WorkKind::kReceive) {
    session->onReceived(work.number, completion);
  } else if (completion.status == IBV_WC_SUCCESS) {
    session->onSent(work.kind, work.number);
  } else {
    session->onWorkFailed(work.kind, work.number, completion.status);
  }
}

bool VerbsTransport::drain(RdmaSession& session, const std::function<bool()>& done, Duration timeout) {
  const TimePoint deadline = monotonicNow() + timeout;
  while (!done()) {
    if (monotonicNow() >= deadline) return false;
    handleCompletionsOf(session);
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
  const bool progressed = sessions_.pump(turn, [](RdmaSession&) {});
  if (readsDeferred_ && !deferredBefore) readsFrom_ = now + Duration(kReadGrace);
  return progressed;
}

}  // namespace gloo_bypass::verbs
