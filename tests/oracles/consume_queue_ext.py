"""RocketMQ's ConsumeQueueExt, one unit after the other (docs/formats/consume-queue-ext.md)."""

from __future__ import annotations

import struct

_FIRST_ADDRESS = -(2**63)


class Extension:
    """The extension of one queue as bytes, all files one behind the other."""

    def __init__(self, file_size: int) -> None:
        self.file_size = file_size
        self.data = bytearray()

    def put(self, tags_code: int, store_timestamp: int, bit_map: bytes) -> int:
        """Append a unit and return its address, or the tags code where no file holds the unit."""
        size = 20 + len(bit_map)
        if size > min(0x7FFF, self.file_size - 4):
            return tags_code
        room = self.file_size - len(self.data) % self.file_size
        if size > room - 4:
            self.data += b"\xff\xff" + bytes(room - 2)
        address = _FIRST_ADDRESS + len(self.data)
        self.data += struct.pack(">hqqh", size, tags_code, store_timestamp, len(bit_map)) + bit_map
        return address

    def files(self) -> list[bytes]:
        """The content of each file."""
        return [
            bytes(self.data[start : start + self.file_size]).ljust(self.file_size, b"\0")
            for start in range(0, len(self.data), self.file_size)
        ]

    def tags_code(self, address: int) -> int | None:
        """What the unit at an address holds; None where no whole unit begins there."""
        position = address - _FIRST_ADDRESS
        inside = position % self.file_size
        data = self.files()[position // self.file_size] if position < len(self.data) else b""
        if inside + 20 > len(data):
            return None
        size, tags_code, _, bit_map_size = struct.unpack_from(">hqqh", data, inside)
        whole = 20 <= size <= len(data) - inside and bit_map_size == size - 20
        return tags_code if whole else None
