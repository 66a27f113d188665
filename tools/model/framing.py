"""What headers, notices and acknowledgements add to one message of Gloo's ring, by path. Pure.

Bytes are those of captured frames: from the Ethernet header on, without preamble, check sequence and gap (24 bytes a
frame on a wire, which a capture does not see). Nothing is lost or repeated. Sources: gloo/transport/tcp/pair.cc,
transport/wire/packet.h, transport/verbs/rdma_frame.h, the InfiniBand architecture (RoCEv2 annex).
"""

import math
from dataclasses import dataclass

ETHERNET_BYTES, IPV4_BYTES, UDP_BYTES = 14, 20, 8
TCP_BYTES = 20 + 12  # with timestamps
TCP_FRAME_BYTES = ETHERNET_BYTES + IPV4_BYTES + TCP_BYTES
# Six size_t before each of Gloo's messages. Each send is announced and each receive asks, by a preamble alone in a
# frame.
GLOO_PREAMBLE_BYTES = 48
LARGEST_OFFLOADED_PACKET_BYTES = 65535  # what the kernel hands to an interface that segments by itself

UDP_FRAME_BYTES = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
COMMON_HEADER_BYTES, MESSAGE_HEADER_BYTES, MAX_PADDING_BYTES = 56, 44, 63
DATA_HEADER_BYTES = COMMON_HEADER_BYTES + MESSAGE_HEADER_BYTES
# Of the chunks after the frame that describes their message, but for memory links.
SHORT_HEADER_BYTES, CHUNK_HEADER_BYTES = 44, 16
CHUNK_FRAME_HEADER_BYTES = SHORT_HEADER_BYTES + CHUNK_HEADER_BYTES
GRANT_BYTES = COMMON_HEADER_BYTES + 8
RENDEZVOUS_BYTES = 32768  # longer messages wait for a grant on short paths with loss
FRAMES_AN_ACKNOWLEDGEMENT, LOSSLESS_FRAMES_AN_ACKNOWLEDGEMENT = 8, 64
# Where data goes both ways most acknowledgements ride on it; one for 10 to 20 frames goes alone (measured through the
# fabric).
FRAMES_AN_ACKNOWLEDGEMENT_BOTH_WAYS = 12
# A memory link gives credit anew after a quarter of GLOO_BYPASS_EAGER_BYTES.
CREDIT_STEP_BYTES = 2**20

# Base transport header, invariant CRC; acknowledgement and RDMA extensions.
ROCE_FRAME_BYTES = UDP_FRAME_BYTES + 12 + 4
ROCE_ACK_EXTENSION_BYTES, ROCE_READ_EXTENSION_BYTES = 4, 16
RDMA_FRAME_HEADER_BYTES, RDMA_ANNOUNCE_BYTES = 48, 48 + 16 + 4
RDMA_EAGER_BYTES, RDMA_CHUNK_BYTES = 32768, 1 << 20


@dataclass(frozen=True)
class Cost:
    """Bytes that go with a message (payload included) and, for it, against it; frames of both."""

    forward: float
    backward: float
    frames: float

    def __add__(self, other):
        return Cost(self.forward + other.forward, self.backward + other.backward, self.frames + other.frames)

    def __mul__(self, times):
        return Cost(self.forward * times, self.backward * times, self.frames * times)

    @property
    def total(self):
        return self.forward + self.backward


NOTHING = Cost(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class TcpPath:
    """Gloo over the kernel's TCP. `frame_payload`: bytes of data a captured frame carries."""

    name: str
    about: str
    frame_payload: int
    # Frames of data for each acknowledgement that goes alone: one for two, unless data the other way carries it.
    frames_an_acknowledgement: float = 2.0

    def message(self, size, both_ways):
        """Data both ways between the same two ranks (two ranks in all) carry each other's acknowledgements."""
        frames = math.ceil((GLOO_PREAMBLE_BYTES + size) / self.frame_payload)
        notice = TCP_FRAME_BYTES + GLOO_PREAMBLE_BYTES
        alone = 0 if both_ways else frames / self.frames_an_acknowledgement
        return Cost(
            size + GLOO_PREAMBLE_BYTES + frames * TCP_FRAME_BYTES + notice,
            notice + alone * TCP_FRAME_BYTES,
            frames + 2 + alone,
        )


@dataclass(frozen=True)
class DatagramPath:
    """This project's protocol over UDP. `datagram`: bytes of the largest datagram; `lossless`: a memory link."""

    name: str
    about: str
    datagram: int
    lossless: bool = False
    # What aligns a chunk in the frame as it is in memory, on memory links: 50 bytes where buffers begin at a cache
    # line.
    padding: int = 50

    @property
    def chunk(self):
        """Bytes of a long message in a full frame."""
        if not self.lossless:
            return self.datagram - CHUNK_FRAME_HEADER_BYTES
        return (self.datagram - DATA_HEADER_BYTES - MAX_PADDING_BYTES) // 64 * 64

    def message(self, size, both_ways):
        if self.lossless:
            frames = math.ceil(size / self.chunk) if size else 1
            around = Cost(size + frames * (UDP_FRAME_BYTES + DATA_HEADER_BYTES + self.padding), 0.0, frames)
        else:
            announced = size > RENDEZVOUS_BYTES
            described = 0 if announced else min(size, self.datagram - DATA_HEADER_BYTES)
            chunks = math.ceil((size - described) / self.chunk)
            frames = chunks + (0 if announced else 1)
            around = Cost(
                size + UDP_FRAME_BYTES + DATA_HEADER_BYTES + chunks * (UDP_FRAME_BYTES + CHUNK_FRAME_HEADER_BYTES),
                UDP_FRAME_BYTES + GRANT_BYTES if announced else 0.0,
                chunks + (2 if announced else 1),
            )
        alone = self.alone(frames, size, both_ways)
        return around + Cost(0.0, alone * (UDP_FRAME_BYTES + COMMON_HEADER_BYTES), alone)

    def alone(self, frames, size, both_ways):
        """Acknowledgements and credits that no data carries."""
        if self.lossless:
            return size / CREDIT_STEP_BYTES + (0 if both_ways else frames / LOSSLESS_FRAMES_AN_ACKNOWLEDGEMENT)
        return frames / (FRAMES_AN_ACKNOWLEDGEMENT_BOTH_WAYS if both_ways else FRAMES_AN_ACKNOWLEDGEMENT)


@dataclass(frozen=True)
class RocePath:
    """RDMA over RoCEv2: short messages by SEND, longer ones announced and fetched by READ. `mtu`: payload bytes of a
    packet."""

    name: str
    about: str
    mtu: int

    def send(self, size):
        """A SEND and its acknowledgement."""
        packets = math.ceil(size / self.mtu)
        return Cost(size + packets * ROCE_FRAME_BYTES, ROCE_FRAME_BYTES + ROCE_ACK_EXTENSION_BYTES, packets + 1)

    def message(self, size, both_ways):
        del both_ways  # acknowledgements are the adapter's, and alone
        if size <= RDMA_EAGER_BYTES:
            return self.send(RDMA_FRAME_HEADER_BYTES + size)
        done = self.send(RDMA_FRAME_HEADER_BYTES)
        cost = self.send(RDMA_ANNOUNCE_BYTES) + Cost(done.backward, done.forward, done.frames)
        whole, rest = divmod(size, RDMA_CHUNK_BYTES)
        for times, chunk in ((whole, RDMA_CHUNK_BYTES), (1 if rest else 0, rest)):
            packets = math.ceil(chunk / self.mtu)
            # The first and the last answer carry an acknowledgement extension.
            answer = chunk + packets * ROCE_FRAME_BYTES + min(2, packets) * ROCE_ACK_EXTENSION_BYTES
            cost += Cost(answer, ROCE_FRAME_BYTES + ROCE_READ_EXTENSION_BYTES, packets + 1) * times
        return cost


def tcp_payload(mtu):
    return mtu - IPV4_BYTES - TCP_BYTES


def offloaded_payload(mtu):
    """Data of the largest packet before an interface segments it: whole segments."""
    return (LARGEST_OFFLOADED_PACKET_BYTES - IPV4_BYTES - TCP_BYTES) // tcp_payload(mtu) * tcp_payload(mtu)


def paths(mtu=1500, memif_frame=61440):
    """Every path that the project measures, for interfaces of this MTU."""
    segment, offloaded, datagram = tcp_payload(mtu), offloaded_payload(mtu), mtu - IPV4_BYTES - UDP_BYTES
    return (
        TcpPath("TCP", f"{segment:,} bytes of data, as on a wire", segment),
        TcpPath("TCP, offloaded", f"{offloaded:,} bytes of data, as a bridge sees them", offloaded),
        DatagramPath("DPDK netdev, pci", f"datagrams of {datagram:,} bytes", datagram),
        DatagramPath("DPDK memif", f"frames of {memif_frame:,} bytes", memif_frame - UDP_FRAME_BYTES, lossless=True),
        RocePath("RDMA, RoCEv2 1024", "path MTU 1,024 bytes", 1024),
        RocePath("RDMA, RoCEv2 4096", "path MTU 4,096 bytes", 4096),
    )


def event_cost(path, ranks, segments):
    """All of one all-reduce's frames. `segments`: (how many, bytes) of the ring's segments of one vector, each of which
    crosses N-1 edges in either half of the ring."""
    total = NOTHING
    for times, size in segments:
        total += path.message(size, both_ways=ranks == 2) * (times * 2 * (ranks - 1))
    return total
