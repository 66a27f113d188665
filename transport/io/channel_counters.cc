#include "transport/io/channel_counters.h"

#include <nlohmann/json.hpp>

namespace gloo_bypass {

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
