"""Dispatch by another process: what it is given, and what it makes of that."""

from __future__ import annotations

from pathlib import Path

import reput
from tests.support.faulty_files import FaultyFiles
from tests.support.further_units import BOTH


def put(path: Path, begin: int, end: int) -> None:
    """Messages of several queues, with keys, some of which name a light queue; the store is closed afterwards."""
    with reput.MessageStore.open(path, files=FaultyFiles(), **BOTH) as store:
        for number in range(begin, end):
            properties = {"INNER_MULTI_DISPATCH": "%LMQ%a"} if number % 5 == 0 else {}
            body = bytes([number % 256]) * (40 + number * 37 % 200)
            message = reput.Message(f"topic-{number % 2}", body, tags="t", keys=[f"k{number}"], properties=properties)
            store.put_message(message, number % 3)


def derived(path: Path) -> dict[str, bytes]:
    """Every file of queues, extensions and index; these are named by their order. Files without a byte do not count."""
    found = {
        str(file.relative_to(path)): file.read_bytes()
        for folder in ("consumequeue", "consumequeue_ext")
        for file in (path / folder).glob("*/*/*")
    }
    found |= {f"index/{n}": file.read_bytes() for n, file in enumerate(sorted((path / "index").glob("*")))}
    return {name: data for name, data in found.items() if any(data)}
