from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.config.properties import camel_case, change_properties, format_properties, parse_properties, snake_case
from reput.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a = 1", {"a": "1"}),
        ("  a\t:\t1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("a=1 ", {"a": "1 "}),
        ("a=1\nb=2\r\nc=3\rd=4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# no\n ! no\n\n \t\n#a=1\nb=2", {"b": "2"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("a=one,\\\n   two,\\\r\n\tthree", {"a": "one,two,three"}),
        ("a=1\\\n# still a", {"a": "1# still a"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\ b\\=c\\:d=1", {"a b=c:d": "1"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e4\\u4E2D", {"a": "ä中"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=\\ud83d", {"a": "\ufffd"}),
        ("a=C:\\\\store", {"a": "C:\\store"}),
        ("a=\x85b", {"a": "\x85b"}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text, "broker.conf") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1\n\nb=\\u12G4", r"broker\.conf:3: \\u without four hexadecimal digits"),
        ("a=1,\\\n2\nb=\\u1", r"broker\.conf:3: "),
        ("a=1\n=2", r"broker\.conf:2: no key before the value; write key=value"),
    ],
)
def test_an_error_names_the_file_and_the_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_properties(text, "broker.conf")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_whatever_java_would_store_comes_back(values: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        halves = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{halves[i] << 8 | halves[i + 1]:04x}" for i in range(0, len(halves), 2))

    text = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in values.items())
    assert parse_properties(text, "test") == values


@given(st.text())
def test_any_text_is_a_dictionary_or_a_config_error(text: str) -> None:
    try:
        names = list(parse_properties(text, "test"))
    except ConfigError as error:
        place = str(error)
    else:
        place = "test:"
        assert "" not in names
    assert place.startswith("test:")


@pytest.mark.parametrize(
    ("camel", "snake"),
    [
        ("storePathRootDir", "store_path_root_dir"),
        ("checkCRCOnRecover", "check_crc_on_recover"),
        ("brokerIP1", "broker_ip1"),
        ("warmMapedFileEnable", "warm_maped_file_enable"),
        ("listenPort", "listen_port"),
    ],
)
def test_a_key_has_two_spellings(camel: str, snake: str) -> None:
    assert snake_case(camel) == snake
    assert camel_case(snake) == camel
    assert snake_case(snake) == snake


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
@example({"a": " x", "#b": "\\", "!": "\r\n", "=": "\t", " k ": "\f v"})
def test_formatted_properties_are_read_as_they_were(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties), "x") == properties


def test_a_changed_text_keeps_comments_and_other_keys() -> None:
    text = "# ours\na = 1 \\\n  2\n\n! b=0\nb: x\na=3"
    assert change_properties(text, "f", {"a": "4", "c": "5 6"}) == "# ours\n\n! b=0\nb: x\na=4\nc=5 6\n"
    assert change_properties("", "f", {"a": "1"}) == "a=1\n"


_KEYS = st.dictionaries(st.sampled_from("abcd"), st.text(st.characters(exclude_categories=["Cs"]), max_size=6))


@given(before=_KEYS, changes=_KEYS)
def test_a_changed_text_has_the_changes_over_what_was_there(before: dict[str, str], changes: dict[str, str]) -> None:
    text = change_properties(format_properties(before), "f", changes)
    assert parse_properties(text, "f") == before | changes
