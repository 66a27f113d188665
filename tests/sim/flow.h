// A congestion controller and a pacer with endless data to send over a link, without the rest of a session: for judging
// controllers alone. Acknowledgements are immediate and come back after a fixed delay, unharmed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "tools/simulation/core/link.h"
#include "tools/simulation/core/simulation.h"
#include "transport/core/congestion.h"
#include "transport/core/congestion/pacer.h"

namespace gloo_bypass::sim {

class Flow final : public Actor, public DatagramSink {
 public:
  static constexpr std::size_t kDatagramBytes = 1472;

  Flow(Simulation& simulation, Link& link, Duration ackDelay, std::unique_ptr<CongestionController> controller);

  void start() { send(); }
  // The value that a handshake before all traffic would have measured.
  void setHandshakeRtt(Duration rtt) { minRtt_ = smoothedRtt_ = rtt; }
  // Limits the data to at most this many bytes a second; 0: endless.
  void setOfferedRate(double bytesPerSecond) { offeredRate_ = bytesPerSecond; }
  const CongestionController& controller() const { return *controller_; }
  std::uint64_t deliveredBytes() const { return deliveredBytes_; }
  Duration minRtt() const { return minRtt_; }
  Duration smoothedRtt() const { return smoothedRtt_; }

  TimePoint nextWake() const override;
  void wake(TimePoint now) override;
  void onDatagram(TimePoint now, std::span<const std::byte> datagram) override;

 private:
  struct Sent {
    TimePoint time;
    TimePoint deliveredTime;  // of the latest delivery then
    TimePoint firstSentTime;  // of the sending that this delivery interval began with
    std::uint64_t deliveredBytes;
    bool acked = false, appLimited = false;
  };
  struct Ack {
    TimePoint time;
    std::uint64_t sequence;
  };

  void send();
  void handleAck(TimePoint now, std::uint64_t sequence);
  bool offered(TimePoint now) const;

  Simulation& simulation_;
  Link& link_;
  const Duration ackDelay_;
  std::unique_ptr<CongestionController> controller_;
  Pacer pacer_;
  double offeredRate_ = 0;
  std::uint64_t offeredBytes_ = 0;
  TimePoint nextOffer_ = Simulation::kStart;
  std::deque<Sent> sent_;  // from first_ on
  std::uint64_t first_ = 0;
  std::deque<Ack> acks_;
  std::size_t inFlightBytes_ = 0;
  std::uint64_t deliveredBytes_ = 0;
  TimePoint deliveredTime_, firstSentTime_;
  TimePoint lastProgress_;
  Duration minRtt_{0}, smoothedRtt_{0};
  bool appLimited_ = false;
};

}  // namespace gloo_bypass::sim
