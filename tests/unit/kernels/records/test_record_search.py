"""The search for whole records in a map: what it costs."""

from __future__ import annotations

import mmap
import time
from pathlib import Path

import numpy as np
import pytest

from reput.files import PAGE_SIZE
from reput.formats.record_layout import MagicCode
from reput.kernels.records.record_search import find_record

SIZE, HEADS = 256 << 20, 30_000


@pytest.mark.parametrize("code", [MagicCode.MESSAGE_V1, MagicCode.MESSAGE_V2])
def test_forged_sizes_ask_for_no_pages(code: MagicCode, tmp_path: Path) -> None:
    """A body of 4 MiB has room for half a million: each would ask for all pages of its size, here for 25 s in all."""
    with (tmp_path / "log").open("w+b") as file:
        file.truncate(SIZE)
        file.write(((SIZE - (1 << 20)).to_bytes(4, "big") + int(code).to_bytes(4, "big", signed=True)) * HEADS)
        file.flush()
        data = np.frombuffer(mmap.mmap(file.fileno(), SIZE, prot=mmap.PROT_READ), np.uint8)
    begin = time.process_time()
    assert find_record(data, 0, records=1, page_size=PAGE_SIZE) == -1
    assert time.process_time() - begin < 5
