"""A client is imported quickly: nothing that only Arrow needs is loaded with it."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import sys, time
begun = time.process_time()
import asyncio, dataclasses, json, ssl
standard = time.process_time()
from reput.client import Message, Producer
print(standard - begun, time.process_time() - begun)
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"numpy", "numba", "pyarrow", "typer", "rich"}))
rooms = ("reput.store", "reput.broker", "reput.kernels", "reput.log")
print(*sorted(name for name in sys.modules if name.startswith(rooms)))
"""


def imported() -> tuple[float, float, str, str]:
    """What an import of the client takes and loads.

    Seconds of the processor for the modules of Python that it needs, and in all; heavy packages; rooms of a store.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=env).stdout
    seconds, packages, rooms = told.split("\n")[:3]
    standard, whole = map(float, seconds.split())
    return standard, whole, packages, rooms


def test_neither_numpy_nor_a_store_is_loaded() -> None:
    assert imported()[2:] == ("", "")


def test_the_import_takes_less_than_150_ms() -> None:
    """Or, where even Python's own modules take 75 ms, twice as long as they do: beside other tests a core is slow."""
    tries = (imported() for _ in range(20))
    assert any(whole < max(0.15, 2 * standard) for standard, whole, *_ in tries)
