"""What a 64-bit little-endian ELF file needs: its DT_NEEDED entries. Enough of the format for that."""

import struct

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB = 1, 5
_MOST_ENTRIES = 10_000


def needed_libraries(path):
    """Names of the libraries that `path` asks for; ValueError if it is no such file, OSError if it cannot be read."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no 64-bit ELF file")
    try:
        return _needed(data)
    except (struct.error, StopIteration, IndexError) as error:
        raise ValueError(f"{path} is a damaged ELF file") from error


def _needed(data):
    (offset,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x36)
    # type flags offset vaddr paddr filesz
    headers = [struct.unpack_from("<IIQQQQ", data, offset + i * size) for i in range(count)]
    dynamic = next((h for h in headers if h[0] == _PT_DYNAMIC), None)
    if dynamic is None:
        return []
    entries = []
    for i in range(min(dynamic[5] // 16, _MOST_ENTRIES)):
        tag, value = struct.unpack_from("<qQ", data, dynamic[2] + i * 16)
        if tag == 0:
            break
        entries.append((tag, value))
    table = next(value for tag, value in entries if tag == _DT_STRTAB)
    segment = next(h for h in headers if h[0] == _PT_LOAD and h[3] <= table < h[3] + h[5])
    strings = segment[2] + table - segment[3]
    return [
        data[strings + value : data.index(b"\0", strings + value)].decode()
        for tag, value in entries
        if tag == _DT_NEEDED
    ]
