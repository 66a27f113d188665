// Congestion control behind one interface. Pure. A session owns one controller and replaces it when the path's
// RTT crosses SessionConfig::bbrRtt (kAuto).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>

#include "transport/base/config.h"
#include "transport/base/time.h"

namespace gloo_bypass {

// The result of processing one acknowledgement.
struct AckSample {
  TimePoint now;
  std::size_t ackedBytes = 0;     // newly acknowledged, cumulatively or selectively
  std::size_t lostBytes = 0;      // newly declared lost
  std::size_t inFlightBytes = 0;  // after both
  Duration rtt{0};                // latest sample; 0: none in this acknowledgement
  Duration returnQueue{0};        // the part of it in which the answer waited on its way back
  Duration minRtt{0}, smoothedRtt{0};
  // Delivered between the acked packet's sending and now (draft-cheng-iccrg-delivery-rate-estimation); 0: none.
  double deliveryRateBytesPerSecond = 0;
  bool appLimited = false;                // the sample was taken while the sender had too little to send
  std::uint64_t deliveredBytes = 0;       // total so far
  std::uint64_t priorDeliveredBytes = 0;  // total delivered when the newest acked packet was sent (round counting)
};

class CongestionController {
 public:
  virtual ~CongestionController() = default;
  virtual void onSent(TimePoint now, std::size_t bytes, std::size_t inFlightBytes) = 0;
  virtual void onAck(const AckSample& sample) = 0;
  // Persistent congestion (RFC 9002, 7.6): several loss probes in a row went unanswered, and the answer to a later one
  // showed losses, which the call of onAck before this one had.
  virtual void onTimeout(TimePoint now) = 0;
  // Bytes that may be in flight.
  virtual std::size_t windowBytes() const = 0;
  // Bytes per second; infinity: not paced.
  virtual double pacingRate() const { return std::numeric_limits<double>::infinity(); }
  // The path's own round trip, as far as this controller knows better than the smallest one measured lately: without a
  // queue that it keeps itself.
  virtual Duration pathRtt(Duration leastMeasured) const { return leastMeasured; }
  virtual std::string_view name() const = 0;
};

// `kind` is not kAuto. `mss`: largest datagram. `entropy` spreads probing phases.
std::unique_ptr<CongestionController> makeCongestionController(CongestionControl kind, const SessionConfig& config,
                                                               std::size_t mss, std::uint64_t entropy);

}  // namespace gloo_bypass
