import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.java import body_crc, index_hash, parse_long, string_hash
from reput.formats.properties import tags_code

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "vectors.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS["javaHashCode"], ids=lambda vector: ascii(vector["s"])[:30])
def test_hashes_are_java_s(vector):
    text = vector["s"]
    assert len(text.encode("utf-16-be", "surrogatepass")) // 2 == vector["utf16Units"]
    assert string_hash(text) == vector["hashCode"]
    assert tags_code(text).to_bytes(8, "big", signed=True).hex() == vector["tagsCodeInt64Hex"]
    assert index_hash(text) == vector["indexHash"]
    assert index_hash(text) % 5_000_000 == vector["slotOf5000000"]


@given(st.text(st.characters()))
def test_hash_is_the_polynomial_of_the_utf16_units(text):
    encoded = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(encoded[i : i + 2], "big") for i in range(0, len(encoded), 2)]
    polynomial = sum(unit * 31**power for power, unit in enumerate(reversed(units)))
    assert string_hash(text) == (polynomial + 2**31) % 2**32 - 2**31
    assert 0 <= index_hash(text) < 2**31


def test_tags_code_without_tags_is_0():
    assert tags_code(None) == tags_code("") == 0


@pytest.mark.parametrize("vector", VECTORS["bodyCrc"], ids=lambda vector: ascii(vector["utf8"]))
def test_body_crc_is_crc32_without_its_top_bit(vector):
    body = vector["utf8"].encode()
    assert body_crc(body) == vector["bodyCRC"] == int(vector["fullCrc32"], 16) & 0x7FFFFFFF
    assert body_crc(memoryview(body)) == body_crc(bytearray(body)) == vector["bodyCRC"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("0", 0), ("15", 15), ("-3", -3), ("+7", 7), ("", -1), ("x", -1), ("1_0", -1), (" 1", -1), ("-", -1)],
        *[("0" * 9000 + "4", 4), ("9" * 5000, -1), (str(2**63 - 1), 2**63 - 1), (str(2**63), -1), ("\u0661", -1)],
    ],
)
def test_numbers_are_javas(text: str, value: int) -> None:
    assert parse_long(text) == value
