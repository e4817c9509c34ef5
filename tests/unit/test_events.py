"""What a line of a log says, as text, and how many lines there may be."""

from __future__ import annotations

import pytest

from reput.events import Event, LineBound, encode_fields


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("10.0.0.7:51234", "10.0.0.7:51234"),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('"', '"\\""'),
        ("\\", '"\\\\"'),
        ("", '""'),
        ("line\nlevel=error", '"line\\nlevel=error"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("é", '"\\u00e9"'),
        (7, "7"),
        (True, "true"),
        (None, "null"),
        (ValueError("no"), "no"),
    ],
)
def test_a_value_is_one_word_on_one_line(value: object, text: str) -> None:
    assert encode_fields(Event("m", value=value).fields) == f"value={text}"


def test_an_event_is_its_message_and_its_fields() -> None:
    assert str(Event("topic deleted", topic="a b", queues=4)) == 'topic deleted topic="a b" queues=4'
    assert str(Event("stopping")) == "stopping"


def test_long_texts_are_cut() -> None:
    (text,) = Event("m", error="x" * 10_000).fields.values()
    assert text == "x" * 1000 + "..."


def test_a_kind_of_line_has_room_for_so_many_in_ten_seconds() -> None:
    bound = LineBound()
    passed = []
    for tenth in range(250):
        now = 1000 + tenth / 10
        if bound.has_room("kind", 3, now):
            bound.count("kind", now)
            passed.append(tenth / 10)
    assert passed == [0, 0.1, 0.2, 10, 10.1, 10.2, 20, 20.1, 20.2]
    assert bound.has_room("another", 1, now)
