"""BloomFilter: the bits that the filter of a group sets in the bit map of a consume queue ext unit."""

from __future__ import annotations

import math
from dataclasses import dataclass

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def murmur3_128(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0, unsigned, as `Hashing.murmur3_128().asLong()` of Guava."""
    first = second = 0
    whole = len(data) - len(data) % 16
    for i in range(0, whole, 16):
        first ^= _mix(int.from_bytes(data[i : i + 8], "little"), _C1, 31, _C2)
        first = (_rotate(first, 27) + second) * 5 + 0x52DCE729 & _MASK
        second ^= _mix(int.from_bytes(data[i + 8 : i + 16], "little"), _C2, 33, _C1)
        second = (_rotate(second, 31) + first) * 5 + 0x38495AB5 & _MASK
    tail = data[whole:]
    second ^= _mix(int.from_bytes(tail[8:], "little"), _C2, 33, _C1)
    first ^= _mix(int.from_bytes(tail[:8], "little"), _C1, 31, _C2)
    first, second = first ^ len(data), second ^ len(data)
    first = first + second & _MASK
    second = second + first & _MASK
    return _finish(first) + _finish(second) & _MASK


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _mix(block: int, before: int, bits: int, after: int) -> int:
    return _rotate(block * before & _MASK, bits) * after & _MASK


def _finish(value: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * factor & _MASK
    return value ^ value >> 33


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """Sizes of a Bloom filter (`BloomFilter.createByFn`).

    Args:
        error_rate: Wanted rate of false hits in percent, 1 to 99.
        consumers: Expected number of consumers.
    """

    error_rate: int
    consumers: int

    @property
    def hash_count(self) -> int:
        """Bits of one name."""
        return math.ceil(math.log(self.error_rate / 100) / math.log(0.5))

    @property
    def bit_num(self) -> int:
        """Bits of a bit map; a multiple of 8."""
        bits = self.consumers * (math.log(1 / (self.error_rate / 100)) / math.log(2)) * (1 / math.log(2))
        return 8 * math.ceil(math.ceil(bits) / 8)

    def bit_positions(self, name: str) -> tuple[int, ...]:
        """The bits of a name, of which two may be the same one (`calcBitPositions`)."""
        hashed = murmur3_128(name.encode(errors="replace"))
        return tuple(self._position(hashed, i) for i in range(1, self.hash_count + 1))

    def _position(self, hashed: int, number: int) -> int:
        combined = hashed + number * (hashed >> 32) & 0xFFFFFFFF
        return (combined if combined < 1 << 31 else combined ^ 0xFFFFFFFF) % self.bit_num
