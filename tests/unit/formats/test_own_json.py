"""JSON of reput's own files: back as it went, and no value is believed that is out of its range."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.own_json import decode_json, decode_with_crc, encode_with_crc, number

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = st.recursive(
    st.none() | st.booleans() | INT64 | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text().filter(lambda name: name != "crc32"), VALUES, max_size=4)


@given(OBJECTS, st.sampled_from([None, 1, "\t"]))
def test_an_object_comes_back_as_it_went(content: dict[str, object], indent: int | str | None) -> None:
    data = encode_with_crc(content, indent)
    assert decode_with_crc(data, may_lack=False) == content
    assert decode_with_crc(json.dumps(content).encode()) == content


def test_a_wrong_or_missing_crc_is_told() -> None:
    data = encode_with_crc({"a": 1})
    with pytest.raises(ValueError, match=r"its CRC is [0-9a-f]{8}, expected [0-9a-f]{8}"):
        decode_with_crc(data.replace(b"1", b"2", 1))
    with pytest.raises(ValueError, match="its CRC is None"):
        decode_with_crc(b'{"a": 1}', may_lack=False)


@pytest.mark.parametrize(
    "text",
    [
        *("9223372036854775808", "-9223372036854775809", "1" + "0" * 5000, "1e999", "NaN", "-Infinity"),
        *("[" * 100_000, "", "{", '{"a": 9223372036854775808}', "\xff"),
    ],
)
def test_what_no_reput_writes_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_json(text.encode("latin-1"))


@pytest.mark.parametrize("data", [b"[]", b"null", b"1", b'"x"'])
def test_a_file_is_an_object(data: bytes) -> None:
    with pytest.raises(ValueError, match="expected an object"):
        decode_with_crc(data)


@pytest.mark.parametrize("value", [-1, 8, True, 1.0, "1", None, [], {}])
def test_a_number_is_an_integer_within_its_bounds(value: object) -> None:
    assert [number(good, 0, 7) for good in (0, 7)] == [0, 7]
    with pytest.raises(ValueError, match="expected a number from 0 to 7, found"):
        number(value, 0, 7)
