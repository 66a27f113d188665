"""Whether UDP goes between two hosts, each way alone, and up to which size. One host listens, the other probes: over
TCP, which ranks need anyway, they agree on a token and at the end exchange what has arrived. Meanwhile both send
datagrams of each size, as ranks do that connect to each other, so that firewalls which let answers in do so here too.

What comes from the network is checked before it is used, and every wait is bounded. Imports Python's own library only:
gloo-bypass-doctor has this module, and so has `python3 -m gloo_bypass`, in the wheel too."""

import argparse
import hmac
import ipaddress
import json
import os
import secrets
import socket
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Sequence, Tuple
from urllib.parse import urlsplit

Place = Tuple[str, int]  # host and port
Message = Dict[str, Any]
DEFAULT_PORT = 47777
MOST_SECONDS = 86400
HELP = """\
Between two hosts: --listen on one, --probe ADDRESS on the other. UDP packets of several sizes go both ways for two \
seconds; each way is judged by itself. They need a TCP connection to the same port.
ADDRESS is a name or an address, with :PORT after it where another port than the first of GLOO_BYPASS_UDP_PORT \
(47777) is to be used, as in 10.0.0.2:47790 or [fd00::2]:47790."""
# Bytes of an IP packet: the least that a session can use, what tunnels leave of 1500, Ethernet's, and jumbo frames.
SIZES = (576, 1000, 1228, 1280, 1400, 1420, 1450, 1480, 1500, 4000, 8900, 9000)
USUAL_MTU = 1500  # a session tries packets of this size first, where its own interface carries them
ROUNDS, ROUND_SECONDS, GRACE_SECONDS = 10, 0.1, 1.0
CONTROL_SECONDS = 5.0
MOST_LINE_BYTES = 4096
MAGIC, TOKEN_BYTES = b"gBprobe1", 16
TO_LISTENER, TO_PROBER = b">", b"<"
# Linux: packets are not fragmented, and what the kernel has learned of the path's MTU does not count.
IP_MTU_DISCOVER, IP_MTU, IPV6_MTU_DISCOVER, IPV6_MTU, PMTUDISC_PROBE = 10, 14, 23, 24, 3


class ProbeError(Exception):
    """No probe could be made; one line says why."""


def listening_time(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 to {MOST_SECONDS}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--probe", metavar="ADDRESS", help="whether UDP goes there and back, and up to which size")
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        nargs="?",
        const="",
        help="answer those that probe this host (default: at all its addresses)",
    )
    parser.add_argument("--seconds", type=listening_time, default=600, help="how long to listen (default 600)")


def read_places(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Makes places of --probe and --listen, or ends with one line."""
    first = os.environ.get("GLOO_BYPASS_UDP_PORT", "").partition("-")[0]  # a firewall lets that range through
    port = int(first) if first.isdecimal() and 0 < int(first) < 65536 else DEFAULT_PORT
    for name in ("probe", "listen"):
        if getattr(options, name) is None:
            continue
        try:
            setattr(options, name, place(getattr(options, name), port))
            if name == "probe" and not options.probe[0]:
                raise ProbeError("it names no host")
        except ProbeError as error:
            parser.error(f"--{name}: {error}")


def place(text: str, default_port: int) -> Place:
    """(host, port) of 10.0.0.2, 10.0.0.2:47777, fd00::2, [fd00::2]:47777, node1:47777, :47777 or nothing."""
    try:
        return str(ipaddress.ip_address(text)), default_port
    except ValueError:
        pass
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        raise ProbeError(f"'{text}' is no ADDRESS or ADDRESS:PORT") from None
    if parts.path or parts.query or parts.fragment or parts.username is not None or port == 0:
        raise ProbeError(f"'{text}' is no ADDRESS or ADDRESS:PORT")
    return parts.hostname or "", port or default_port


def shown(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def reason(error: Exception) -> str:
    number = getattr(error, "errno", None)  # a UnicodeError has none
    return os.strerror(number) if number and number > 0 else str(error)


def headers(family: int) -> int:
    return 48 if family == socket.AF_INET6 else 28  # IP and UDP


def udp_socket(family: int, address: str, port: int) -> socket.socket:
    """Bound to the port, or to any where another process has it; connected to nobody."""
    one = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, PMTUDISC_PROBE)
    else:
        one.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_PROBE)
    try:
        one.bind((address, port))
    except OSError:
        one.bind((address, 0))
    return one


def interface_mtu(family: int, address: str, peer: str) -> int:
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.bind((address, 0))
        one.connect((peer, 9))
        option = (socket.IPPROTO_IPV6, IPV6_MTU) if family == socket.AF_INET6 else (socket.IPPROTO_IP, IP_MTU)
        return min(one.getsockopt(*option), 65535)


def send_line(control: socket.socket, message: Message) -> None:
    control.sendall(json.dumps(message).encode() + b"\n", socket.MSG_NOSIGNAL)  # SIGPIPE ends a command


def receive_line(control: socket.socket) -> Message:
    """A JSON object from the other end; ProbeError where it is none, or comes too late."""
    end, text = time.monotonic() + CONTROL_SECONDS + ROUNDS * ROUND_SECONDS + GRACE_SECONDS, b""
    while not text.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0:
            raise ProbeError("the other end does not answer")
        control.settimeout(left)
        try:
            piece = control.recv(MOST_LINE_BYTES - len(text))
        except OSError as error:
            raise ProbeError(f"the other end does not answer: {error}") from None
        text += piece
        if not piece or len(text) >= MOST_LINE_BYTES:
            raise ProbeError("the other end is no probe of gloo-bypass, or has gone")
    try:
        message = json.loads(text)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise ProbeError("the other end is no probe of gloo-bypass")
    return message


def number(message: Message, key: str, least: int, most: int) -> int:
    value = message.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ProbeError(f"the other end sent an impossible {key}: use the same release on both")
    return value


def token_of(message: Message) -> bytes:
    try:
        token = bytes.fromhex(message.get("token", ""))
    except (TypeError, ValueError):
        token = b""
    if len(token) != TOKEN_BYTES:
        raise ProbeError("the other end sent no token: use the same release on both")
    return token


@dataclass
class Arrived:
    """What one end has received."""

    sizes: Dict[int, int]  # datagrams by the size of their packets
    source: str  # from where the last one came; empty: none came

    def as_message(self) -> Message:
        return {"sizes": sorted(self.sizes), "source": self.source}

    @staticmethod
    def of_message(message: Message) -> "Arrived":
        sizes, source = message.get("sizes"), message.get("source")
        if (
            not isinstance(sizes, list)
            or len(sizes) > len(SIZES) + 2
            or not all(type(size) is int and 0 < size <= 65535 for size in sizes)
            or not isinstance(source, str)
            or len(source) > 80
            or not source.isprintable()
        ):
            raise ProbeError("the other end sent an impossible report: use the same release on both")
        return Arrived(dict.fromkeys(sizes, 1), source)


def exchange(
    udp: socket.socket, peer: Place, token: bytes, mtus: Sequence[int], outgoing: bytes, incoming: bytes
) -> Arrived:
    """Sends probes of each size up to the larger MTU to `peer`, for about two seconds; what arrives meanwhile."""
    overhead = headers(udp.family)
    sizes = sorted({size for size in (*SIZES, *mtus) if size <= max(mtus)})
    arrived: "Counter[int]" = Counter()
    source = ""
    start = time.monotonic()
    end, rounds = start + ROUNDS * ROUND_SECONDS + GRACE_SECONDS, 0
    while (now := time.monotonic()) < end:
        if rounds < ROUNDS and now >= start + rounds * ROUND_SECONDS:
            rounds += 1
            for size in sizes:
                begin = MAGIC + token + outgoing + size.to_bytes(2, "big")
                try:
                    udp.sendto(begin.ljust(size - overhead, b"\0"), peer)
                except OSError:
                    pass  # larger than this interface's packets; or a firewall of this host's own forbids it
        udp.settimeout(ROUND_SECONDS / 4)
        try:
            data, sender = udp.recvfrom(65535)
        except OSError:
            continue
        begin, size = MAGIC + token + incoming, len(data) + overhead
        if hmac.compare_digest(data[: len(begin)], begin) and data[len(begin) : len(begin) + 2] == size.to_bytes(
            2, "big"
        ):
            if size in sizes:
                arrived[size] += 1
                source = shown(*sender[:2])
    return Arrived(dict(arrived), source)


def listening_socket(host: str, port: int) -> socket.socket:
    """For IPv4 and IPv6 where no host is named."""
    try:
        if host:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, port), family=family)
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except (OSError, UnicodeError) as error:
        raise ProbeError(f"cannot listen at {shown(host or '*', port)}: {reason(error)}") from None


def listen(where: Place, seconds: int, say: Callable[[str], None], program: str) -> None:
    """Serves one prober after the other for so many seconds; `say` gets a line for each. `program`: the user's name for
    this."""
    host, port = where
    with listening_socket(host, port) as server:
        say(
            f"listens at {shown(host or '*', port)} for {seconds} s; on the other host run: {program} "
            f"--probe {shown(host or 'ADDRESS', port)}"
        )
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            server.settimeout(left)
            try:
                control, _ = server.accept()
            except socket.timeout:
                return
            with control:
                try:
                    say(serve(control, port))
                except (ProbeError, OSError) as error:
                    say(f"a connection that ended without a probe: {error}")


def addresses(control: socket.socket) -> Tuple[int, str, str]:
    """(family, own address, peer's address) of a TCP connection; IPv4 where it comes over an IPv6 socket."""
    own, peer = control.getsockname()[0], control.getpeername()[0]
    mapped = [getattr(ipaddress.ip_address(one.partition("%")[0]), "ipv4_mapped", None) for one in (own, peer)]
    if all(mapped):
        return socket.AF_INET, str(mapped[0]), str(mapped[1])
    return control.family, own, peer


def serve(control: socket.socket, port: int) -> str:
    """One prober, at the address that its TCP connection comes from and nowhere else."""
    family, own, peer = addresses(control)
    request = receive_line(control)
    token, peer_port = token_of(request), number(request, "port", 1, 65535)
    peer_mtu = number(request, "mtu", 68, 65535)
    mtu = interface_mtu(family, own, peer)
    with udp_socket(family, own, port) as udp:
        send_line(control, {"port": udp.getsockname()[1], "mtu": mtu})
        arrived = exchange(udp, (peer, peer_port), token, (mtu, peer_mtu), TO_PROBER, TO_LISTENER)
    send_line(control, arrived.as_message())
    largest = max(arrived.sizes, default=0)
    what = f"packets of up to {largest} bytes arrive" if largest else "nothing arrives over UDP"
    return f"from {shown(peer, peer_port)}: {what}"


@dataclass
class Direction:
    """One way between the two hosts."""

    begin: str  # addresses, with ports
    end: str
    largest: int  # bytes of the largest packet that arrived; 0: none
    mtu: int  # of the interface that they leave by
    source: str  # where they came from, as the other end saw it; empty: none came

    @property
    def name(self) -> str:
        return f"{self.begin} to {self.end}"

    @property
    def problem(self) -> str:
        """One line; empty: ranks can use it."""
        if not self.largest:
            return "blocked: nothing arrives"
        if self.source != self.begin:
            return f"arrives from {self.source}: an address translation lies between, and ranks know only {self.begin}"
        return ""

    @property
    def is_narrow(self) -> bool:
        """Ranks find that out by themselves, from what is lost at first."""
        return self.largest < min(USUAL_MTU, self.mtu)

    @property
    def advice(self) -> str:
        """What to do; empty: nothing."""
        if not self.largest:
            return (
                f"# let UDP to {self.end} through: a firewall of either host, of the network between them or of "
                "the cloud drops it"
            )
        if self.source != self.begin:
            return "# use addresses that are the same on both sides: a VPN or an overlay network has such"
        return f"export GLOO_BYPASS_MTU={self.largest}   # on all ranks" if self.is_narrow else ""


def probe(where: Place, program: str) -> List[Direction]:
    """The two directions between this host and one that listens; ProbeError where there is no TCP between them."""
    host, port = where
    try:
        control = socket.create_connection((host, port), timeout=CONTROL_SECONDS)
    except (OSError, UnicodeError) as error:  # the latter: a name that cannot be one
        raise ProbeError(
            f"no TCP connection to {shown(host, port)} ({reason(error)}), which ranks need for "
            f"MASTER_PORT as well: start {program} --listen there first"
        ) from None
    try:
        return probed(control, port)
    except OSError as error:
        raise ProbeError(
            f"the probe of {shown(host, port)} broke off ({reason(error)}): start both sides again"
        ) from None


def probed(control: socket.socket, port: int) -> List[Direction]:
    """Over this connection, which is closed then."""
    with control:
        family, own, peer = addresses(control)
        token, mtu = secrets.token_bytes(TOKEN_BYTES), interface_mtu(family, own, peer)
        with udp_socket(family, own, port) as udp:
            own_port = udp.getsockname()[1]
            send_line(control, {"token": token.hex(), "port": own_port, "mtu": mtu})
            answer = receive_line(control)
            peer_port, peer_mtu = number(answer, "port", 1, 65535), number(answer, "mtu", 68, 65535)
            here = exchange(udp, (peer, peer_port), token, (mtu, peer_mtu), TO_LISTENER, TO_PROBER)
        there = Arrived.of_message(receive_line(control))
    here_name, there_name = shown(own, own_port), shown(peer, peer_port)
    return [
        Direction(here_name, there_name, max(there.sizes, default=0), mtu, there.source),
        Direction(there_name, here_name, max(here.sizes, default=0), peer_mtu, here.source),
    ]
