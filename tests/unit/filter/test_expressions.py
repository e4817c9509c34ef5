"""Properties whose bytes are no UTF-8."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from reput.filter.columns import Columns
from reput.filter.compiled_expressions import compile_expression


@pytest.mark.parametrize(
    ("expression", "letter"),
    [
        ("a = 'x'", "F"), ("a CONTAINS 'x'", "T"), ("a IN ('x')", "F"), ("a STARTSWITH 'x'", "T"), ("a > 5", "E"),
        ("a = 5.0", "E"), ("a = TRUE", "F"), ("a = a", "T"), ("a IS NULL", "F"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_text_are_compared_as_they_are(expression: str, letter: str) -> None:
    condition = compile_expression(expression)
    texts = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"x\xff")]
    )
    codes = np.broadcast_to(condition.evaluate(Columns({"a": texts}, 1)), 1)
    assert "FTNE"[codes[0]] == letter
