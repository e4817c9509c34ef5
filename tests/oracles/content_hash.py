"""The twin of `kernels.records.content_hash`: field after field, in Python's own integers."""

from __future__ import annotations

from collections.abc import Collection

from tests.oracles.record_scan import Row

MASK = (1 << 64) - 1


def mix(state: int, word: int) -> int:
    """One step."""
    state = ((state ^ word & MASK) * 0x9FB21C651E98DF25) & MASK
    return state ^ state >> 32


def mix_bytes(state: int, data: bytes) -> int:
    """Four lanes of eight bytes, then what is left."""
    lanes = [state ^ number for number in range(4)]
    whole = len(data) - len(data) % 32
    for i in range(0, whole, 8):
        lanes[i // 8 % 4] = mix(lanes[i // 8 % 4], int.from_bytes(data[i : i + 8], "little"))
    state = lanes[0]
    for lane in lanes[1:]:
        state = mix(state, lane)
    rest = data[whole:]
    while len(rest) >= 8:
        state, rest = mix(state, int.from_bytes(rest[:8], "little")), rest[8:]
    return mix(mix(state, int.from_bytes(rest, "big")), len(data))


def mix_short(state: int, data: bytes) -> int:
    """Eight bytes after the other, then what is left."""
    whole = len(data) - len(data) % 8
    for i in range(0, whole, 8):
        state = mix(state, int.from_bytes(data[i : i + 8], "little"))
    return mix(mix(state, int.from_bytes(data[whole:], "little")), len(data))


def mix_map(state: int, text: bytes) -> int:
    """The sum of the hashes of the pairs that count, the last of each name."""
    pairs = {}
    for pair in text.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if name and value:
            pairs[name] = mix_short(mix_short(0x2545F4914F6CDD1D, name), value)
    return mix(state, sum(pairs.values()))


def hash_row(row: Row, ignored: Collection[str], *, properties_as_map: bool = False) -> int:
    """The hash of one record."""
    state = mix(0x2545F4914F6CDD1D, row["queue_offset"])
    sys_flag = row["sys_flag"] & ~sum(bit for name, bit in (("born_host", 16), ("store_host", 32)) if name in ignored)
    state = mix(state, (row["queue_id"] & 0xFFFFFFFF) << 32 | sys_flag & 0xFFFFFFFF)
    state = mix(state, row["body_crc"] & 0xFFFFFFFF)
    for name, mask in (
        ("commit_log_offset", MASK), ("prepared_transaction_offset", MASK), ("store_timestamp", MASK),
        ("born_timestamp", MASK), ("reconsume_times", 0xFFFFFFFF), ("flag", 0xFFFFFFFF), ("magic_code", 0xFFFFFFFF),
    ):  # fmt: skip
        if name not in ignored:
            state = mix(state, row[name] & mask)
    for name in ("born_host", "store_host"):
        if name not in ignored:
            state = mix_bytes(state, row[name])
    properties = row["properties"]
    head, last = properties[:-20], properties[-20:]
    is_crc = last.startswith(b"__CRC32#\x01") and last[9:19].isdigit() and last.endswith(b"\x02")
    if "property_crc" in ignored and is_crc and head[-1:] in (b"", b"\x02"):
        properties = head
    state = mix_bytes(mix_bytes(state, row["body"]), row["topic"])
    if "properties" in ignored:
        return state
    return mix_map(state, properties) if properties_as_map else mix_bytes(state, properties)
