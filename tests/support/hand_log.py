"""A commit log written by hand, that grows, loses its end, and its first files."""

from __future__ import annotations

from pathlib import Path

from reput.formats.hosts import encode_host
from reput.formats.message import Message
from reput.formats.paths import offset_to_file_name
from reput.formats.record import encode_blank, encode_record
from reput.formats.record_layout import BLANK_SIZE

HOST = encode_host("10.0.0.1:10911")
#: In a record of a V1 topic and IPv4 hosts.
_BODY_POSITION = 88


class HandLog:
    """The log of a store at `path`; each message has a body of its own, and a later store time than all before.

    Attributes:
        bodies: the body of each record that is there, by its offset.
    """

    def __init__(self, path: Path, file_size: int = 2048, time: int = 1_700_000_000_000) -> None:
        self.path = path
        self.folder = path / "commitlog"
        self.folder.mkdir(parents=True)
        self.file_size = file_size
        self.bodies: dict[int, str] = {}
        self.end = 0
        self._time = time
        self._number = 0

    def append(self, count: int) -> list[str]:
        """Append messages; returns their bodies."""
        return [self._append() for _ in range(count)]

    def _append(self) -> str:
        self._number += 1
        self._time += 7
        body = f"{self.path.name} {self._number} ".ljust(20 + self._number * 37 % 200, ".")
        record = self._record(body)
        left = self.file_size - self.end % self.file_size
        if len(record) + BLANK_SIZE > left:
            self._write(encode_blank(left))
            self.end += left
            record = self._record(body)
        self.bodies[self.end] = body
        self._write(record)
        self.end += len(record)
        return body

    def cut(self, records: int) -> None:
        """Lose the last records and what follows, as a power cut and the recovery after it do."""
        kept = sorted(self.bodies)
        kept, lost = kept[: max(len(kept) - records, 0)], kept[max(len(kept) - records, 0) :]
        if lost:
            self.end = lost[0]
        self.bodies = {offset: self.bodies[offset] for offset in kept}
        for path in self.folder.iterdir():
            if int(path.name) > self.end:
                path.unlink()
        self._write(bytes(self.file_size - self.end % self.file_size))

    def delete_first_file(self) -> None:
        """As retention does; the last file stays."""
        first, *others = sorted(self.folder.iterdir())
        if others:
            first.unlink()
            self.bodies = {offset: body for offset, body in self.bodies.items() if offset >= int(others[0].name)}

    def damage(self, offset: int) -> None:
        """Change the last byte of a record's body, which its CRC then tells."""
        place = offset % self.file_size + _BODY_POSITION + len(self.bodies[offset]) - 1
        with self.path_of(offset).open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1]))

    def path_of(self, offset: int) -> Path:
        """The file that an offset lies in."""
        return self.folder / offset_to_file_name(offset - offset % self.file_size)

    def _record(self, body: str) -> bytes:
        return encode_record(
            Message("orders", body.encode(), keys=(str(self._number),)),
            queue_id=0,
            queue_offset=self._number,
            commit_log_offset=self.end,
            store_timestamp=self._time,
            store_host=HOST,
            born_timestamp=self._time,
            born_host=HOST,
        )

    def _write(self, data: bytes) -> None:
        path = self.path_of(self.end)
        if not path.exists():
            path.write_bytes(bytes(self.file_size))
        with path.open("r+b") as file:
            file.seek(self.end % self.file_size)
            file.write(data)
