"""Forms of records: made of two records that differ in numbers alone, and of no others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from reput.kernels.records.record_form import RecordForm
from tests.oracles.record_bytes import Record


@pytest.mark.parametrize(
    "text",
    [
        lambda numbers: b"x" * (1 + numbers[0] // 10**17),
        lambda numbers: b"x" if numbers[0] < 2 * 10**17 else b"y",
        lambda _: b"%d" % 10**17,
        lambda _: b"%d" % (3 * 10**17 + 1),
        lambda numbers: b"%d" % (numbers[0] + numbers[1]),
    ],
    ids=["size", "text", "looks like a number of the first", "of the second", "a sum"],
)
@pytest.mark.parametrize("part", ["body", "topic", "properties"])
def test_records_that_differ_in_more_than_their_numbers_have_no_form(
    part: str, text: Callable[[Sequence[int]], bytes]
) -> None:
    def encode(numbers: Sequence[int]) -> bytes:
        more = {"body": b"%d,%d" % (*numbers,), "topic": b"t", "properties": b"A\x01%d\x02" % numbers[1]}
        return Record(**more | {part: more[part] + text(numbers)}).pack()  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="differ in more"):
        RecordForm(encode, 2)
