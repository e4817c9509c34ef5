"""Lines of `reput dump --what index`: the header and the entries of each index file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reput.config.message_store import MessageStoreConfig
from reput.files import File
from reput.formats.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    decode_entry,
    decode_header,
    entry_position,
    slot_position,
)
from reput.log.directory import StoreDirectory
from reput.log.geometry.index_geometry import index_geometry

#: Count of entries that are read at once.
_ENTRIES_OF_A_READ = 50_000


def index_lines(
    directory: StoreDirectory, key_hash: int | None, config: MessageStoreConfig, *, as_hex: bool
) -> Iterator[dict[str, Any]]:
    """Lines of each file's header and of its entries in order; with `key_hash`, only entries of its slot, newest first.

    `config` has the slots and entries to assume if the files' length fits them.
    """
    index_files = directory.index_files()
    slots, capacity = index_geometry(index_files, config.max_hash_slot_num, config.max_index_num, directory.files)
    for entry_file in index_files:
        with directory.files.open(entry_file.path) as file:
            header = decode_header(file.read(0, HEADER_SIZE).ljust(HEADER_SIZE, b"\x00"))
            line: dict[str, Any] = {"path": file.path, "slots": slots, "entries": capacity, **header._asdict()}
            if not 0 <= header.index_count <= capacity:
                yield line | {"damage": f"the header counts {header.index_count} entries of {capacity}", "position": 0}
                continue
            yield line
            if key_hash is None:
                lines = _all_lines(file, slots, header, as_hex)
            else:
                lines = _chain_lines(file, slots, header, key_hash % slots, as_hex)
            yield from lines


def _all_lines(file: File, slots: int, header: IndexHeader, as_hex: bool) -> Iterator[dict[str, Any]]:
    for first in range(1, header.index_count, _ENTRIES_OF_A_READ):
        count = min(_ENTRIES_OF_A_READ, header.index_count - first)
        data = file.read(entry_position(slots, first), count * ENTRY_SIZE)
        for i in range(len(data) // ENTRY_SIZE):
            entry = data[i * ENTRY_SIZE : (i + 1) * ENTRY_SIZE]
            yield _entry_line(file, slots, header, first + i, entry, as_hex)


def _chain_lines(file: File, slots: int, header: IndexHeader, slot: int, as_hex: bool) -> Iterator[dict[str, Any]]:
    """Lines of the entries of a slot's chain, which ends where it is damaged."""
    position = slot_position(slot)
    number = int.from_bytes(file.read(position, SLOT_SIZE), "big", signed=True)
    if not 0 <= number < max(header.index_count, 1):
        reason = f"slot {slot} leads to entry {number}, expected one below {header.index_count}"
        yield {"path": file.path, "slot": slot, "damage": reason, "position": position}
        return
    while number > 0:
        data = file.read(entry_position(slots, number), ENTRY_SIZE)
        line = _entry_line(file, slots, header, number, data, as_hex)
        yield line
        number = 0 if "damage" in line else line["slot_value"]


def _entry_line(file: File, slots: int, header: IndexHeader, number: int, data: bytes, as_hex: bool) -> dict[str, Any]:
    entry = decode_entry(data)
    damage = None
    if entry.key_hash < 0:
        damage = f"key hash {entry.key_hash}, expected 0 or more"
    elif not 0 <= entry.slot_value < number:
        damage = f"leads to entry {entry.slot_value}, expected an earlier one"
    elif entry.phy_offset < 0:
        damage = f"commit log offset {entry.phy_offset}, expected 0 or more"
    fault = {"damage": damage, "path": file.path, "position": entry_position(slots, number)}
    return {
        "entry": number,
        "slot": entry.key_hash % slots,
        **entry._asdict(),
        "about_timestamp": header.begin_timestamp + 1000 * entry.time_diff,
        **(fault if damage else {}),
        **({"hex": data.hex()} if as_hex else {}),
    }
