// A session with what an endpoint does for it: times it, carries its datagrams to a link and its events to an observer.
// A host can stop (SIGSTOP: datagrams pile up in a bounded socket buffer), resume, and vanish (kill -9, a cut cable). A
// session that its user has closed and that is drained is gone, as in an endpoint: it answers nothing any more.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tools/simulation/core/link.h"
#include "tools/simulation/core/simulation.h"
#include "transport/core/session.h"

namespace gloo_bypass::sim {

// What an endpoint does to a host's datagrams on their way out and in, as a seal does. What it returns is valid until
// the next call; empty: the datagram is dropped.
class DatagramFilter {
 public:
  virtual ~DatagramFilter() = default;
  virtual std::span<const std::byte> leaving(std::span<const std::byte> header, std::span<const std::byte> payload) = 0;
  virtual std::span<const std::byte> arriving(std::span<const std::byte> datagram) = 0;
};

class Host final : public Actor, public DatagramSink {
 public:
  using Observer = std::function<void(const SessionEvent&)>;

  Host(Simulation& simulation, const SessionConfig& config, std::uint64_t id, std::uint64_t entropy);
  // The end of a rail of the lead's session, which must outlive this.
  Host(Simulation& simulation, const SessionConfig& config, std::uint64_t id, std::uint64_t entropy, Host& lead);

  // Where this host's datagrams go; before connect.
  void attach(Link& out, DatagramSink& peer) {
    out_ = &out;
    peer_ = &peer;
  }
  // Before connect; outlives this.
  void setFilter(DatagramFilter& filter) { filter_ = &filter; }
  void setObserver(Observer observer) { observer_ = std::move(observer); }
  std::uint64_t id() const { return id_; }
  Session& session() { return session_; }
  const Session& session() const { return session_; }

  // Runs `operation` on the session as a user would, then carries out what follows from it. May be called from the
  // observer. A stopped host does it when it resumes, a vanished one never.
  void operate(const std::function<void(Session&, TimePoint)>& operation);
  void connect(const Host& peer, std::size_t maxDatagramBytes);

  void stop() { stopped_ = true; }
  void resume();
  void vanish() { vanished_ = true; }

  std::size_t maxMemoryBytes() const { return maxMemoryBytes_; }

  TimePoint nextWake() const override;
  void wake(TimePoint now) override;
  void onDatagram(TimePoint now, std::span<const std::byte> datagram) override;

 private:
  // A memory ring would push back; here it is as long as it takes.
  static constexpr std::size_t kSocketBufferDatagrams = 256, kRingDatagrams = SIZE_MAX;

  bool isGone() const { return session_.state() == SessionState::kClosed && session_.drained(); }
  void take(TimePoint now, std::span<const std::byte> datagram);
  void pump();
  bool pumpEvents();
  bool pumpDatagrams();
  bool send(TimePoint now, const SessionDatagram& datagram);

  Simulation& simulation_;
  const std::uint64_t id_;
  const std::size_t bufferDatagrams_;
  Session session_;
  Host* const lead_ = nullptr;
  std::vector<Host*> rails_;
  Link* out_ = nullptr;
  DatagramSink* peer_ = nullptr;
  DatagramFilter* filter_ = nullptr;
  Observer observer_;
  bool pumping_ = false;
  bool stopped_ = false, vanished_ = false;
  TimePoint refusedUntil_ = kNever;  // the link was full
  std::vector<std::vector<std::byte>> socketBuffer_;
  std::vector<std::function<void(Session&, TimePoint)>> deferred_;
  std::size_t maxMemoryBytes_ = 0;
};

}  // namespace gloo_bypass::sim
