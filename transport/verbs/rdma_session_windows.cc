// The peer's right to read, of rdma_session.h: from the announcement of a message until the peer has confirmed it.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "transport/progress/progress_engine.h"
#include "transport/verbs/rdma_session.h"

namespace gloo_bypass::verbs {
namespace {

// How long a bind or an invalidation, which only this machine's adapter carries out, may take.
constexpr auto kPatience = std::chrono::seconds(2);
// How long to wait for windows that other sessions hold: until their receivers have read. As Gloo's default time-out.
constexpr auto kWindowPatience = std::chrono::seconds(30);
constexpr auto kWindowPause = std::chrono::milliseconds(5);

}  // namespace

// Registers the message's buffer and begins to bind windows to it. kAnnounced: it is in announced_, as offered_.
// kWaits: for requests or windows of earlier messages, or for windows of other sessions.
RdmaSession::Offer RdmaSession::offer(const SendRequest& request) {
  AnnouncedSend send{.token = request.token, .length = request.length};
  if (request.length > 0) {
    auto registration = device_.registrations->acquire(request.data, request.length, RegistrationUse::kRemoteRead);
    if (!registration) {
      fail({ErrorScope::kSession, registration.error().code, registration.error().message});
      return Offer::kFailed;
    }
    send.registration = registration.value();
    std::size_t rails = 0;
    if (send.registration->needsWindow && (!windowRoom() || (rails = takeWindows(send)) < reads_.size())) {
      const int error = errno;
      device_.registrations->release(send.registration);
      if (!announced_.empty() || mayGetWindows()) return Offer::kWaits;
      fail({ErrorScope::kSession, ErrorCode::kExhausted,
            fmt::format("RDMA device {}: no memory window more ({}); it allows {} to all processes together",
                        device_.rails[rails]->rail().deviceName, std::strerror(error),
                        device_.rails[rails]->limits().max_mw)});
      return Offer::kFailed;
    }
  }
  windowsUntil_ = kNever;
  offered_ = nextAnnounceId_++;
  announced_.at(offered_) = send;
  if (send.windows[0] == nullptr) return Offer::kAnnounced;
  if (Status status = bindWindows(offered_, request.data); !status) {
    fail(status.error());
    return Offer::kFailed;
  }
  return Offer::kAnnounced;
}

bool RdmaSession::windowRoom() const {
  for (const ReadsRail& rail : reads_) {
    if (rail.windowWork.size() >= windowDepth_) return false;
  }
  return true;
}

// The rails that gave one: all, or with errno those before the one whose device allows no more, and `send` has none.
std::size_t RdmaSession::takeWindows(AnnouncedSend& send) {
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    send.windows[i] = device_.rails[i]->windows().take();
    if (send.windows[i] != nullptr) continue;
    const int error = errno;
    giveWindows(send);
    errno = error;
    return i;
  }
  return reads_.size();
}

void RdmaSession::giveWindows(AnnouncedSend& send) {
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    if (ibv_mw* const window = std::exchange(send.windows[i], nullptr)) device_.rails[i]->windows().give(window);
  }
}

// After takeWindows() failed: other sessions hold some, and it is not too late. Sets the time to try again.
bool RdmaSession::mayGetWindows() {
  const bool held = std::any_of(device_.rails.begin(), device_.rails.end(),
                                [](const auto& rail) { return rail->windows().taken() > 0; });
  const TimePoint now = monotonicNow();
  if (windowsUntil_ == kNever) windowsUntil_ = now + Duration(kWindowPatience);
  if (!held || now >= windowsUntil_) return false;
  windowsAt_ = now + Duration(kWindowPause);
  return true;
}

void RdmaSession::destroyWindows(AnnouncedSend& send) {
  for (std::size_t i = 0; i < send.windows.size(); ++i) {
    if (ibv_mw* const window = std::exchange(send.windows[i], nullptr)) device_.rails[i]->windows().destroy(window);
  }
}

// Takes the right to read away at once, wherever a message stands. Before the queue pairs and the registrations go.
void RdmaSession::destroyWindows() {
  announced_.forEach([this](std::uint64_t, AnnouncedSend& send) { destroyWindows(send); });
}

Status RdmaSession::postWindowWork(std::uint64_t id, std::size_t rail, ibv_send_wr& work) {
  work.wr_id = workId(index(), WorkKind::kWindow, static_cast<std::uint32_t>(rail));
  work.send_flags = IBV_SEND_SIGNALED;
  if (Status status = reads_[rail].served->post(&work); !status) return status;
  reads_[rail].windowWork.pushBack(id);
  ++announcedSend(id).windowWork;
  return {};
}

// Each bind gives the window another key, so that an earlier message's is worth nothing.
Status RdmaSession::bindWindows(std::uint64_t id, const std::byte* data) {
  const AnnouncedSend send = announcedSend(id);
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    ibv_mw* const window = send.windows[i];
    ibv_send_wr work{};
    work.opcode = IBV_WR_BIND_MW;
    work.bind_mw.mw = window;
    work.bind_mw.rkey = ibv_inc_rkey(window->rkey);
    work.bind_mw.bind_info.mr = send.registration->regions[i];
    work.bind_mw.bind_info.addr = reinterpret_cast<std::uintptr_t>(data);
    work.bind_mw.bind_info.length = send.length;
    work.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
    if (Status status = postWindowWork(id, i, work); !status) return status;
    window->rkey = work.bind_mw.rkey;  // the caller's to keep, for a post (ibv_post_send(3))
  }
  return {};
}

// Invalidates the windows of confirmed messages.
bool RdmaSession::pumpEnds() {
  bool any = false;
  while (!toEnd_.empty() && windowRoom()) {
    const std::uint64_t id = toEnd_.popFront();
    const auto windows = announcedSend(id).windows;
    for (std::size_t i = 0; i < reads_.size(); ++i) {
      ibv_send_wr work{};
      work.opcode = IBV_WR_LOCAL_INV;
      work.invalidate_rkey = windows[i]->rkey;
      if (Status status = postWindowWork(id, i, work); !status) {
        fail(status.error());
        return true;
      }
    }
    any = true;
  }
  return any;
}

// What the peer has confirmed is complete, now that no window is left to invalidate. The observer hears of it once the
// session has ended: it may cancel, receive or close.
void RdmaSession::endConfirmed() {
  std::vector<std::uint64_t> confirmed;
  announced_.forEach([&](std::uint64_t id, const AnnouncedSend& send) {
    if (send.stage == AnnouncedSend::Stage::kEnding) confirmed.push_back(id);
  });
  for (const std::uint64_t id : confirmed) {
    if (const AnnouncedSend done = endAnnounced(id); !done.cancelled) ended_.push_back(done.token);
  }
}

void RdmaSession::onWindow(ReadsRail& rail) {
  const std::uint64_t id = rail.windowWork.popFront();
  markDirty();
  AnnouncedSend& send = announcedSend(id);
  if (--send.windowWork > 0) return;
  if (send.stage == AnnouncedSend::Stage::kEnding) finishSend(id);
}

// The head of outgoing_ is cancelled before the peer has heard of it.
void RdmaSession::withdrawOffer() {
  const auto bound = [this] { return offered_ == 0 || announcedSend(offered_).windowWork == 0; };
  if (!device_.drain(*this, bound, kPatience)) {
    fail({ErrorScope::kSession, ErrorCode::kCancelled,
          "a send was cancelled while the device bound a window to its buffer, and the device did not finish"});
  }
  if (offered_ == 0) return;  // the session has failed, and released it
  outgoing_.front().cancelled = true;
  AnnouncedSend* const send = announced_.find(std::exchange(offered_, 0));
  destroyWindows(*send);
  if (send->registration != nullptr) device_.registrations->release(send->registration);
  announced_.eraseFound(send);
}

// A send is cancelled that the peer has confirmed.
void RdmaSession::awaitEnd(std::uint64_t id) {
  announcedSend(id).cancelled = true;
  const auto ended = [this, id] {
    (void)pumpEnds();
    return announced_.find(id) == nullptr;
  };
  if (device_.drain(*this, ended, kPatience)) return;
  fail({ErrorScope::kSession, ErrorCode::kCancelled,
        "a send was cancelled after the peer had read it, and the device did not end the right to read it"});
}

}  // namespace gloo_bypass::verbs
