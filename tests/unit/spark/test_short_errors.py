"""What is told of Spark's errors."""

import pytest

from reput.spark.short_errors import reason_of

TRACEBACK = "[STREAM_FAILED] a\nTraceback (most recent call last):\n  File x\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TRACEBACK + "reput.errors.DataLossError: s: gone: 5\n SQLSTATE: 1", "s: gone: 5"),
        ("\n" + TRACEBACK + "ValueError: no", "[STREAM_FAILED] a"),
        ("", ""),
    ],
)
def test_our_own_error_is_what_one_of_sparks_says(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason
