"""The twin of `kernels.content_hash`: field after field, in Python's own integers."""

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


def hash_row(row: Row, ignored: Collection[str]) -> int:
    """The hash of one record."""
    state = mix(0x2545F4914F6CDD1D, row["queue_offset"])
    state = mix(state, (row["queue_id"] & 0xFFFFFFFF) << 32 | row["sys_flag"] & 0xFFFFFFFF)
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
    return mix_bytes(mix_bytes(mix_bytes(state, row["body"]), row["topic"]), properties)
