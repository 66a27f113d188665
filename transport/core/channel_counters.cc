#include "transport/core/channel_counters.h"

namespace gloo_bypass {

ChannelCounters& operator+=(ChannelCounters& sum, const ChannelCounters& c) {
  sum.messagesSent += c.messagesSent;
  sum.messagesReceived += c.messagesReceived;
  sum.payloadBytesSent += c.payloadBytesSent;
  sum.payloadBytesReceived += c.payloadBytesReceived;
  sum.packetsSent += c.packetsSent;
  sum.packetsReceived += c.packetsReceived;
  sum.wireBytesSent += c.wireBytesSent;
  sum.wireBytesReceived += c.wireBytesReceived;
  sum.retransmits += c.retransmits;
  sum.spuriousRetransmits += c.spuriousRetransmits;
  sum.retransmitTimeouts += c.retransmitTimeouts;
  sum.tailLossProbes += c.tailLossProbes;
  sum.repairFramesSent += c.repairFramesSent;
  sum.repairFramesReceived += c.repairFramesReceived;
  sum.framesRecovered += c.framesRecovered;
  sum.framesUnrepaired += c.framesUnrepaired;
  sum.duplicatesReceived += c.duplicatesReceived;
  sum.corruptedReceived += c.corruptedReceived;
  sum.invalidReceived += c.invalidReceived;
  sum.eagerMessages += c.eagerMessages;
  sum.rendezvousMessages += c.rendezvousMessages;
  sum.bufferedSends += c.bufferedSends;
  sum.stagedReceives += c.stagedReceives;
  return sum;
}

}  // namespace gloo_bypass
