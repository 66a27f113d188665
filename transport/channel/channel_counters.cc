#include "transport/channel/channel_counters.h"

namespace gloo_bypass {
namespace {

using C = ChannelCounters;

constexpr ChannelCounterRow kRows[] = {
    {&C::messagesSent, "messages_sent", "messages_sent_total", "Messages handed over to peers",
     "channel_messages_sent_total", "Messages handed over to this peer"},
    {&C::messagesReceived, "messages_received", "messages_received_total", "Messages that have arrived from peers",
     "channel_messages_received_total", "Messages that have arrived from this peer"},
    {&C::payloadBytesSent, "payload_bytes_sent", "payload_sent_bytes_total",
     "Bytes of messages sent, first transmissions only", "channel_payload_sent_bytes_total",
     "Bytes of messages sent to this peer"},
    {&C::payloadBytesReceived, "payload_bytes_received", "payload_received_bytes_total", "Bytes of messages received",
     "channel_payload_received_bytes_total", "Bytes of messages received from this peer"},
    {&C::packetsSent, "packets_sent", "packets_sent_total",
     "Datagrams or frames sent, retransmissions and acknowledgements included"},
    {&C::packetsReceived, "packets_received", "packets_received_total", "Datagrams or frames received"},
    {&C::wireBytesSent, "wire_bytes_sent", "wire_sent_bytes_total",
     "Bytes of datagrams or frames sent, our headers included"},
    {&C::wireBytesReceived, "wire_bytes_received", "wire_received_bytes_total",
     "Bytes of datagrams or frames received"},
    {&C::retransmits, "retransmits", "retransmits_total", "Frames retransmitted", "channel_retransmits_total",
     "Frames retransmitted to this peer"},
    {&C::spuriousRetransmits, "spurious_retransmits", "spurious_retransmits_total",
     "Of them, of frames that had arrived, as far as known"},
    {&C::retransmitTimeouts, "retransmit_timeouts", "retransmit_timeouts_total",
     "Times a peer did not answer a tail-loss probe: requested again", "channel_retransmit_timeouts_total",
     "Times a silent peer's acknowledgement was requested again"},
    {&C::tailLossProbes, "tail_loss_probes", "tail_loss_probes_total",
     "Silences after which an acknowledgement was requested"},
    {&C::repairFramesSent, "repair_frames_sent", "repair_frames_sent_total",
     "Frames sent for the peer to recover lost ones from"},
    {&C::repairFramesReceived, "repair_frames_received", "repair_frames_received_total", "Such frames received"},
    {&C::framesRecovered, "frames_recovered", "frames_recovered_total", "Lost frames recovered from repair frames"},
    {&C::framesUnrepaired, "frames_unrepaired", "frames_unrepaired_total",
     "Frames retransmitted although repair frames covered them"},
    {&C::duplicatesReceived, "duplicates_received", "duplicates_received_total", "Frames that had arrived before"},
    {&C::corruptedReceived, "corrupted_received", "corrupted_received_total", "Datagrams dropped for a wrong checksum"},
    {&C::invalidReceived, "invalid_received", "invalid_received_total", "Datagrams dropped for impossible fields"},
    {&C::eagerMessages, "eager_messages", "eager_messages_total", "Messages sent without asking the receiver"},
    {&C::rendezvousMessages, "rendezvous_messages", "rendezvous_messages_total",
     "Messages that waited for the receiver"},
    {&C::bufferedSends, "buffered_sends", "buffered_sends_total", "Sends copied into the send buffer"},
    {&C::stagedReceives, "staged_receives", "staged_receives_total", "Messages kept until a receive took them"},
};
// A field without a row would be missing from every report.
static_assert(sizeof(ChannelCounters) == sizeof(std::uint64_t) * std::size(kRows));

}  // namespace

std::span<const ChannelCounterRow> channelCounterRows() { return kRows; }

ChannelCounters& operator+=(ChannelCounters& sum, const ChannelCounters& c) {
  for (const ChannelCounterRow& row : kRows) sum.*row.field += c.*row.field;
  return sum;
}

}  // namespace gloo_bypass
