"""Op messages of both forms."""

from __future__ import annotations

from reput.formats.op_message import op_offsets


def test_op_messages_of_5_and_of_4() -> None:
    assert op_offsets(b"5,6,", "d") == [5, 6]
    assert op_offsets(b"3", "d") == [3]
    assert op_offsets(b"3", "x") == op_offsets(b"3", None) == op_offsets(b"", "d") == []
    assert op_offsets(b"3,x,\xff", "d") == [3, -1, -1]
