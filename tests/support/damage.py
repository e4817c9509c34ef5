"""Damage to files, in one vocabulary: `flip` bits, `cut` files, `overwrite` bytes. For kills see `kills`."""

from __future__ import annotations

import os
from pathlib import Path


def flip(file: Path, position: int, mask: int = 1) -> None:
    """Turn the bits of `mask` over in the byte at a position; a negative one counts from the file's end."""
    data = bytearray(file.read_bytes())
    data[position] ^= mask
    file.write_bytes(data)


def overwrite(file: Path, position: int, data: bytes) -> None:
    """Put other bytes at a position."""
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(data)


def cut(file: Path, size: int) -> None:
    """Leave the first bytes of a file, and nothing behind them."""
    os.truncate(file, size)


def at(store: Path, offset: int) -> tuple[Path, int]:
    """The log file that a commit log offset lies in, and the position there: `flip(*at(store, offset))`."""
    file = max(file for file in (store / "commitlog").iterdir() if int(file.name) <= offset)
    return file, offset - int(file.name)
