#include "transport/io/channel_counters.h"

#include <nlohmann/json.hpp>

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

nlohmann::json toJson(const ChannelCounters& c) {
  return {{"messages_sent", c.messagesSent},
          {"messages_received", c.messagesReceived},
          {"payload_bytes_sent", c.payloadBytesSent},
          {"payload_bytes_received", c.payloadBytesReceived},
          {"packets_sent", c.packetsSent},
          {"packets_received", c.packetsReceived},
          {"wire_bytes_sent", c.wireBytesSent},
          {"wire_bytes_received", c.wireBytesReceived},
          {"retransmits", c.retransmits},
          {"spurious_retransmits", c.spuriousRetransmits},
          {"retransmit_timeouts", c.retransmitTimeouts},
          {"tail_loss_probes", c.tailLossProbes},
          {"repair_frames_sent", c.repairFramesSent},
          {"repair_frames_received", c.repairFramesReceived},
          {"frames_recovered", c.framesRecovered},
          {"frames_unrepaired", c.framesUnrepaired},
          {"duplicates_received", c.duplicatesReceived},
          {"corrupted_received", c.corruptedReceived},
          {"invalid_received", c.invalidReceived},
          {"eager_messages", c.eagerMessages},
          {"rendezvous_messages", c.rendezvousMessages},
          {"buffered_sends", c.bufferedSends},
          {"staged_receives", c.stagedReceives}};
}

}  // namespace gloo_bypass
