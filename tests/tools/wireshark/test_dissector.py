"""The Wireshark dissector, by tshark, on captures that sample_capture.cc writes with the transport's own codec."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

DISSECTOR = pathlib.Path(__file__).resolve().parents[3] / "tools/wireshark/gloo_bypass.lua"
TSHARK, SAMPLE = os.environ["TSHARK"], os.environ["SAMPLE_CAPTURE"]
KINDS = [
    "HELLO",
    "ACK",
    "PROBE",
    "PROBE-REPLY",
    "DATA",
    "ANNOUNCE",
    "GRANT",
    "WITHDRAW",
    "CREDIT",
    "DATA",
    "CLOSE",
    "RESET",
    "REPAIR",
    "ACK",
    "PIECE",
    "CHUNK",
    "GRANTED-CHUNK",
]
RIGHT, CUT = "1", "2"
NOBODY = 65534


def unprivileged():
    """The user that runs tshark: later versions run no Lua scripts as root."""
    if os.geteuid() != 0:
        return {}
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    try:
        subprocess.run(["true"], check=True, **who)
    except (OSError, subprocess.SubprocessError):
        return {}  # a user namespace without such a user
    return who


def tshark(capture, *options):
    # An empty home without anyone's settings; open to any user, unlike tmp_path.
    with tempfile.TemporaryDirectory(prefix="gloo-bypass-tshark-") as home:
        os.chmod(home, 0o755)
        script = shutil.copy(DISSECTOR, home)
        os.chmod(script, 0o644)
        with capture.open("rb") as frames:
            result = subprocess.run(
                [TSHARK, "-X", f"lua_script:{script}", "-r", "-", *options],
                stdin=frames,
                capture_output=True,
                text=True,
                timeout=50,
                check=False,
                cwd=home,
                env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": home},
                **unprivileged(),
            )
    assert result.returncode == 0, result.stderr
    assert "lua" not in result.stderr.lower() and "Lua Error" not in result.stdout, result.stderr + result.stdout
    return result.stdout


def frames_of(tmp_path, snap_length):
    capture = tmp_path / "sample.pcap"
    subprocess.run([SAMPLE, capture, str(snap_length)], check=True, timeout=20)
    text = tshark(capture, "-T", "json", "--no-duplicate-keys")
    return [packet["_source"]["layers"].get("gloo_bypass") for packet in json.loads(text)]


def lines_of(tmp_path, snap_length=65535):
    capture = tmp_path / "sample.pcap"
    subprocess.run([SAMPLE, capture, str(snap_length)], check=True, timeout=20)
    return tshark(capture, "-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info").splitlines()


def flattened(layer):
    """All values by field name, at any depth."""
    found = {}
    for key, value in (layer or {}).items():
        if isinstance(value, dict):
            found.update(flattened(value))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for part in value:
                found.update(flattened(part))
        else:
            found[key] = value
    return found


def test_Dissector_EveryKind_IsNamedWithItsNumbers(tmp_path):
    lines = lines_of(tmp_path)
    assert [line.split("\t")[0] for line in lines[:17]] == ["gloo-bypass"] * 17
    assert [line.split("\t")[1].split()[0] for line in lines[:17]] == KINDS
    assert lines[4].endswith("DATA seq 10 ack 41 2 sack msg 7 [4096 +300) of 327680 len 300")
    assert lines[6].endswith("GRANT seq 12 ack 41 msg 7")
    assert lines[9].split("\t")[1].startswith("DATA seq 10 (again)")
    assert lines[10].endswith("2 messages in all")
    assert lines[11].endswith("peer vanished")
    assert lines[12].endswith("2 of 2 for 6 frames from 10 len 300")
    assert lines[13].endswith("3 recovered")
    assert lines[14].endswith("number 8 of the 9000 bytes of frame 16 len 300")
    assert lines[15].endswith("CHUNK seq 17 ack 41 msg 7 [4396 +300) len 300")
    assert lines[16].endswith("GRANTED-CHUNK seq 18 ack 41 msg 7 [4396 +300) len 300")


def test_Dissector_Data_HasEveryField(tmp_path):
    data = flattened(frames_of(tmp_path, 65535)[4])
    expected = {
        "magic": "0x4267",
        "version": "1",
        "type": "16",
        "receiver": "0x1122334455667788",
        "flags": "0x06",
        "sequence": "10",
        "acknowledged": "41",
        "timestamp": "1000",
        "echo": "2000",
        "echo_delay": "3",
        "message_limit": "99",
        "byte_limit": "123456789012",
        "sack.count": "2",
        "header_length": "121",
        "message.id": "7",
        "message.tag": "0x0000000000abcdef",
        "message.length": "327680",
        "message.remote_offset": "64",
        "chunk.offset": "4096",
        "chunk.length": "300",
        "message.kind": "2",
        "checksum.status": RIGHT,
        "payload_checksum.status": RIGHT,
    }
    for name, value in expected.items():
        assert data[f"gloo_bypass.{name}"] == value, name
    assert data["gloo_bypass.sack.begin"] == ["50", "45"] and data["gloo_bypass.sack.end"] == ["53", "47"]
    assert data["gloo_bypass.payload"].split(":") == ["5a"] * 300
    assert len(data["gloo_bypass.padding"].split(":")) == 5
    assert not [name for name in data if "expert" in name]


@pytest.mark.parametrize("frame, kind", [(15, "22"), (16, "23")])
def test_Dissector_Chunk_HasItsPlaceAndNoLimits(tmp_path, frame, kind):
    chunk = flattened(frames_of(tmp_path, 65535)[frame])
    expected = {
        "type": kind,
        "sack.count": "0",
        "header_length": "60",
        "echo_delay": "3",
        "message.id": "7",
        "chunk.offset": "4396",
        "checksum.status": RIGHT,
        "payload_checksum.status": RIGHT,
    }
    for name, value in expected.items():
        assert chunk[f"gloo_bypass.{name}"] == value, name
    assert chunk["gloo_bypass.payload"].split(":") == ["5a"] * 300
    assert not [name for name in chunk if "expert" in name or "limit" in name]


def test_Dissector_HelloProbeAndClose_HaveTheirBodies(tmp_path):
    frames = [flattened(frame) for frame in frames_of(tmp_path, 65535)]
    hello = frames[0]
    assert (hello["gloo_bypass.hello.sender"], hello["gloo_bypass.hello.rendezvous_bytes"]) == (
        "0x0000000000000099",
        "65536",
    )
    assert hello["gloo_bypass.hello.chunks"] in ("1", "True") and hello["gloo_bypass.hello.pieces"] in ("0", "False")
    assert (hello["gloo_bypass.hello.initial_sequence"], hello["gloo_bypass.hello.max_datagram_bytes"]) == (
        "10",
        "1472",
    )
    assert "gloo_bypass.sequence" not in hello and hello["gloo_bypass.next_sequence"] == "10"
    assert frames[2]["gloo_bypass.probe.size"] == frames[3]["gloo_bypass.probe.size"] == "1400"
    assert frames[10]["gloo_bypass.close.messages"] == "2"
    assert frames[11]["gloo_bypass.reset.reason"] == "5"
    assert [frames[12][f"gloo_bypass.repair.{name}"] for name in ("first", "sources", "index", "count")] == [
        "10",
        "6",
        "1",
        "2",
    ]
    assert frames[13]["gloo_bypass.recovered"] == "3"
    assert [frames[14][f"gloo_bypass.piece.{name}"] for name in ("frame", "symbol", "index")] == ["16", "9000", "7"]
    assert frames[14]["gloo_bypass.piece.small"] in ("1", "True")
    assert all(frame["gloo_bypass.checksum.status"] == RIGHT for frame in frames[:17])


@pytest.mark.parametrize(
    "frame, expert, said",
    [
        (17, "checksum", "header's checksum is wrong"),
        (18, "payload_checksum", "payload's checksum is wrong"),
        (19, "version", "Another version"),
        (20, "malformed", "Unknown type 9"),
        (21, "malformed", "The header ends within the message's id"),
        (22, "malformed", "8 bytes too many"),
        (23, "malformed", "Impossible header length 200"),
        (24, "malformed", "More than 64 SACK ranges"),
        (25, "malformed", "The chunk has 30 bytes, and 29 follow"),
        (26, "malformed", "The header ends within where the chunk lies"),
        (27, "malformed", "8 bytes too many"),
    ],
)
def test_Dissector_FaultyFrame_IsFlagged(tmp_path, frame, expert, said):
    capture = tmp_path / "sample.pcap"
    subprocess.run([SAMPLE, capture, "65535"], check=True, timeout=20)
    flagged = tshark(
        capture,
        "-Y",
        f"gloo_bypass.expert.{expert} && frame.number == {frame + 1}",
        "-T",
        "fields",
        "-e",
        "_ws.expert.message",
    )
    assert said in flagged


def test_Dissector_ForeignDatagramWithTheMagic_IsLeftAlone(tmp_path):
    frames = frames_of(tmp_path, 65535)
    assert len(frames) == 35 and frames[28] is None


def test_Dissector_OwnCollectives_AreNamedByNumberAndKind(tmp_path):
    lines = lines_of(tmp_path)[29:]
    assert "operation 3222784.0 reduce of 4096 bfloat16, binomial" in lines[0]  # tags have 24 bits of the number
    assert "operation 3222784.2" in lines[1] and "bfloat16" not in lines[1]
    assert "control message of collectives" in lines[2]
    assert "tag 77" in lines[3]
    frames = [flattened(frame) for frame in frames_of(tmp_path, 65535)[29:]]
    header = {
        name: frames[0][f"gloo_bypass.operation.{name}"] for name in ("kind", "type", "reduction", "root", "count")
    }
    assert header == {"kind": "1", "type": "7", "reduction": "4", "root": "3", "count": "4096"}
    assert frames[0]["gloo_bypass.operation.number"] == "20000000"
    assert frames[3]["gloo_bypass.program_tag"] == "77"


def test_Dissector_Sealed_HasWhatIsInClear(tmp_path):
    lines = lines_of(tmp_path)
    assert lines[33].split("\t")[1] == "sealed CHUNK number 77 len 344"
    sealed = flattened(frames_of(tmp_path, 65535)[33])
    expected = {"version": "2", "type": "22", "key_phase": "1", "packet_number": "77", "receiver": "0x1122334455667788"}
    for name, value in expected.items():
        assert sealed[f"gloo_bypass.{name}"] == value, name
    assert sealed["gloo_bypass.tag"].split(":") == ["33"] * 16
    assert len(sealed["gloo_bypass.sealed"].split(":")) == 344
    assert not [name for name in sealed if "expert" in name or "sequence" in name]
    short = flattened(frames_of(tmp_path, 65535)[34])
    assert [name for name in short if "malformed" in name]


@pytest.mark.parametrize("snap_length", [128, 100, 62, 44])
def test_Dissector_CutFrames_AreReadAsFarAsTheyGo(tmp_path, snap_length):
    frames = [flattened(frame) for frame in frames_of(tmp_path, snap_length)]
    if snap_length < 42 + 20:  # too little to be known by
        assert not any(frames)
        return
    data = frames[4]
    assert data["gloo_bypass.type"] == "16" and data["gloo_bypass.receiver"] == "0x1122334455667788"
    assert ("gloo_bypass.sequence" in data) == (snap_length >= 42 + 28)
    assert ("gloo_bypass.message.id" in data) == (snap_length >= 42 + 56 + 16 + 8)
    assert "gloo_bypass.expert.cut" in json.dumps(data) or any("cut" in name for name in data)
    if snap_length == 128:
        assert data["gloo_bypass.checksum.status"] == CUT
        assert frames[1]["gloo_bypass.checksum.status"] == RIGHT
