"""Bodies of messages as a column."""

from __future__ import annotations

import pyarrow as pa


def body_array(*texts: bytes | None) -> pa.BinaryArray:
    return pa.array(texts, pa.binary())
