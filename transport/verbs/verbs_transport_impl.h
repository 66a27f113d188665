// The transport behind makeVerbsTransport(): its sessions, and the rounds that bring them completions, timers and
// events. verbs_transport.cc makes it, sleeps and checks the device's events; verbs_transport_completions.cc takes
// completions and lets sessions send. Private to transport/verbs.
//
// Thread: with the progress engine's exclusive access, except wake() and block().
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/doorbell.h"
#include "transport/base/file_descriptor.h"
#include "transport/channel/message_channel.h"
#include "transport/security/key_agreement.h"
#include "transport/sessions/polled_transport.h"
#include "transport/sessions/session_table.h"
#include "transport/verbs/rdma_device.h"
#include "transport/verbs/rdma_session.h"

namespace gloo_bypass::verbs {

class VerbsTransport final : public PolledTransport, private RdmaDevice {
 public:
  static Result<std::unique_ptr<PolledTransport>> make(const VerbsApi& api, const TransportConfig& config) {
    auto transport = std::unique_ptr<VerbsTransport>(new VerbsTransport(api, config));
    if (Status status = transport->open(); !status) return status;
    return std::unique_ptr<PolledTransport>(std::move(transport));
  }
  ~VerbsTransport() override { drainAndStop(sessions_); }

  std::string describe() const override { return description_; }
  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions& options,
                                                      ChannelObserver* observer) override;
  void closeAll() override { sessions_.closeAll(progress()); }
  TransportReport report() const override;
  int doorbell() const override { return wakeup_.rungAt(); }

 private:
  VerbsTransport(const VerbsApi& verbs, const TransportConfig& configuration) : RdmaDevice(verbs, configuration) {}
  Status open();
  Status watch(int fd);

  // Pollable
  bool poll(TimePoint now) noexcept override;
  void flush(TimePoint now) noexcept override;
  void drivenBy(bool waiter) noexcept override { waiterDrives_ = waiter; }
  TimePoint nextDeadline() const noexcept override {
    const TimePoint timers = std::min(sessions_.nextDeadline(), control->deadline());
    return readsDeferred_ ? std::min(timers, readsFrom_) : timers;
  }
  void armWakeup() noexcept override;
  void disarmWakeup() noexcept override;
  void block(Duration timeout) noexcept override;
  void wake() noexcept override;

  // RdmaDevice
  bool drain(RdmaSession& session, const std::function<bool()>& done, Duration timeout) override;
  void takeCompletions() override {
    while (fetchCompletions()) {
    }
  }
  bool caughtUp() const override { return caughtUp_ && fetched_.empty(); }

  bool fetchCompletions();
  bool handleCompletions();
  void handleCompletionsOf(const RdmaSession& session);
  void handle(const ibv_wc& completion);
  void handleEvents();
  void handleEvent(RailQueues& queues, const ibv_async_event& event);
  std::vector<RdmaSession*> allSessions() const;
  void fail(const Error& error, const std::function<bool(const RdmaSession&)>& concerned);
  bool pumpDirty(TimePoint now, bool waits);
  std::vector<PortFigure> portFigures(const ChannelCounters& total) const;

  std::string description_;
  std::shared_ptr<const security::Credentials> credentials_;  // null: sessions have no keys
  FileDescriptor epoll_;
  const Doorbell wakeup_;
  std::uint32_t nextIndex_ = 1;
  // Fetched from the adapter, not handled yet, the oldest first. Bounded by the reservations in the completion queues.
  std::deque<ibv_wc> fetched_;
  bool caughtUp_ = false;  // the last round emptied the completion queues
  TimePoint nextTick_{};
  bool inSoftware_ = false, waiterDrives_ = false;
  bool readsDeferred_ =
      false;  // dirty sessions keep their READs until a waiter polls, or any thread from readsFrom_ on
  TimePoint readsFrom_{};
  std::uint64_t strayCompletions_ = 0, portDowns_ = 0;
  SessionTable<RdmaSession> sessions_;  // by index; their destructors use all of the above
};

}  // namespace gloo_bypass::verbs
