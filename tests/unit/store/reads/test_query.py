"""Queries by key: what the hash index finds is sifted by the text, over several files and time windows."""

from __future__ import annotations

import re
from typing import Any

import pytest

import reput
from reput.errors import ConfigError
from reput.formats.java import index_hash
from reput.formats.message_ext import MessageExt
from reput.store.reads import query
from tests.support.fixtures import OpenStore


def bodies(messages: list[MessageExt]) -> list[bytes]:
    return [message.body for message in messages]


def put_rows(store: reput.MessageStore, rows: list[tuple[str, list[str], str | None]]) -> None:
    """One message for each (topic, keys, unique key); its body is its number."""
    for number, (topic, keys, unique_key) in enumerate(rows):
        store.put_message(reput.Message(topic, str(number).encode(), keys=keys, unique_key=unique_key))
    store.wait_dispatched()


def test_a_text_is_no_list_of_keys(store: reput.MessageStore) -> None:
    with pytest.raises(ConfigError, match="expected a list of keys"):
        store.query_messages("t", "abc")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"topic": 5}, "topic 5: expected a text"),
        ({"topic": None}, "topic None: expected a text"),
        ({"key": 5}, "key 5: expected a text"),
        ({"key": None}, "key None: expected a text"),
        ({"key": b"5"}, "key b'5': expected a text"),
        ({"max_num": "3"}, "max_num '3': expected a whole number"),
        ({"begin": "a"}, "begin 'a': expected a whole number"),
        ({"begin": None}, "begin None: expected a whole number"),
        ({"end": "a"}, "end 'a': expected a whole number"),
    ],
)
def test_an_argument_of_another_type_is_told_by_its_name(
    store: reput.MessageStore, wrong: dict[str, object], text: str
) -> None:
    put_rows(store, [("t", ["5"], None)])
    asked: dict[str, Any] = {"topic": "t", "key": "5"} | wrong
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        store.query_message(**asked)
    asked["keys"] = [asked.pop("key")]
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        store.query_messages(**asked)
    assert bodies(store.query_message("t", "5")) == [b"0"]


def test_what_is_no_list_of_keys_is_told(store: reput.MessageStore) -> None:
    with pytest.raises(ConfigError, match=r"^keys 5: expected a list of keys$"):
        store.query_messages("t", 5)  # type: ignore[arg-type]


def test_keys_and_unique_keys_find_their_messages_oldest_first(store: reput.MessageStore) -> None:
    put_rows(
        store,
        [("t", ["a", "b"], "u0"), ("t", ["a"], None), ("other", ["a"], "u0"), ("t", [], "a"), ("t", ["ab"], None)],
    )
    assert bodies(store.query_message("t", "a")) == [b"0", b"1", b"3"]
    assert bodies(store.query_message("t", "u0")) == [b"0"]
    assert bodies(store.query_message("other", "a")) == [b"2"]
    assert store.query_message("t", "c") == store.query_message("unknown", "a") == store.query_message("t", "") == []
    found = store.query_messages("t", ["b", "c", "a", "b"])
    assert {key: bodies(messages) for key, messages in found.items()} == {"b": [b"0"], "c": [], "a": [b"0", b"1", b"3"]}
    assert store.query_messages("t", []) == {}


def test_keys_of_equal_hash_are_told_apart_and_do_not_take_places(store: reput.MessageStore) -> None:
    assert index_hash("t#Aa") == index_hash("t#BB")
    put_rows(store, [("t", ["Aa"], None)] * 3 + [("t", ["BB"], None)] * 5)
    assert bodies(store.query_message("t", "Aa")) == [b"0", b"1", b"2"]
    assert bodies(store.query_message("t", "Aa", max_num=2)) == [b"1", b"2"]
    assert bodies(store.query_message("t", "BB", max_num=2)) == [b"6", b"7"]
    found = store.query_messages("t", ["Aa", "BB"], max_num=1)
    assert {key: bodies(messages) for key, messages in found.items()} == {"Aa": [b"2"], "BB": [b"7"]}


def test_a_key_that_is_twice_in_a_message_finds_it_once_and_does_not_take_two_places(store: reput.MessageStore) -> None:
    put_rows(store, [("t", ["k"], None), ("t", ["k", "k"], "k"), ("t", ["k", "k"], None)])
    assert bodies(store.query_message("t", "k")) == [b"0", b"1", b"2"]
    assert bodies(store.query_message("t", "k", max_num=2)) == [b"1", b"2"]
    assert bodies(store.query_message("t", "k", max_num=3)) == [b"0", b"1", b"2"]


def test_the_newest_matches_count_over_several_files_also_after_a_new_start(open_store: OpenStore) -> None:
    store = open_store()
    put_rows(store, [("t", ["all", f"k{number}"], None) for number in range(100)])
    store.close()
    store = open_store()
    assert bodies(store.query_message("t", "all", max_num=1000)) == [str(n).encode() for n in range(100)]
    assert bodies(store.query_message("t", "all", max_num=30)) == [str(n).encode() for n in range(70, 100)]
    assert [bodies(found) for found in store.query_messages("t", [f"k{n}" for n in range(100)]).values()] == [
        [str(n).encode()] for n in range(100)
    ]
    assert store.query_message("t", "all", max_num=0) == []


@pytest.mark.parametrize("max_index_num", [20, 1000])
@pytest.mark.parametrize("step", [1000, 730, 10])
def test_a_time_window_is_of_the_messages_own_times_to_the_millisecond(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, max_index_num: int, step: int
) -> None:
    store = open_store(max_index_num=max_index_num)
    start = 1_700_000_000_500
    for number in range(40):
        monkeypatch.setattr("time.time", lambda number=number: (start + step * number) / 1000)
        store.put_message(reput.Message("t", str(number).encode(), keys=["k"]))
    store.wait_dispatched()

    def numbers(begin: int, end: int | None) -> list[int]:
        return [int(message.body) for message in store.query_message("t", "k", 100, begin, end)]

    assert numbers(0, None) == list(range(40))
    assert numbers(start + 25 * step, None) == list(range(25, 40))
    assert numbers(start + 25 * step + 1, None) == list(range(26, 40))
    assert numbers(0, start + 25 * step) == list(range(26))
    assert numbers(0, start + 25 * step - 1) == list(range(25))
    assert numbers(start + 18 * step, start + 20 * step) == [18, 19, 20]
    assert numbers(start - 5, start - 1) == []
    assert numbers(start + 39 * step + 1, None) == []
    for at in range(40):
        few = store.query_message("t", "k", 3, start + at * step, start + at * step)
        assert [int(message.body) for message in few] == [at]
    newest = store.query_messages("t", ["k", "other"], 3, 0, start + 20 * step + 5)
    assert [int(message.body) for message in newest["k"]] == [18, 19, 20]


def test_keys_are_indexed_as_java_hashes_them(store: reput.MessageStore) -> None:
    keys = ["订单", "🚚", "polygenelubricants", "x" * 1000]
    put_rows(store, [("t", [key], None) for key in keys])
    assert [bodies(found) for found in store.query_messages("t", keys).values()] == [[b"0"], [b"1"], [b"2"], [b"3"]]


def test_without_an_index_nothing_is_found_and_switching_it_on_finds_everything(open_store: OpenStore) -> None:
    store = open_store(message_index_enable=False)
    put_rows(store, [("t", ["k"], None)] * 3)
    assert store.query_message("t", "k") == []
    store.close()
    assert bodies(open_store().query_message("t", "k")) == [b"0", b"1", b"2"]


def test_keys_that_come_twice_count_once_and_keys_that_no_message_can_have_are_not_found(
    store: reput.MessageStore,
) -> None:
    offsets = [store.put_message(reput.Message("t", b"", keys=[key])).commit_log_offset for key in ("a", "b", "xy")]
    store.wait_dispatched()
    for asked in (["b", "a", "b"], ["b", "x\x02y", "a", "b", "", "y\x02x"], ["x\x02y"], [""], []):
        found = store.query_messages("t", asked)
        assert list(found) == list(dict.fromkeys(asked))
        assert {key: [message.commit_log_offset for message in found[key]] for key in found} == {
            key: {"a": offsets[:1], "b": offsets[1:2]}.get(key, []) for key in asked
        }
        assert [len(store.query_message("t", key)) for key in asked] == [len(found[key]) for key in asked]


def test_a_key_is_found_as_soon_as_it_is_dispatched(store: reput.MessageStore) -> None:
    for number in range(40):  # over index files that become full
        assert store.query_message("t", f"k{number}") == []
        store.put_message(reput.Message("t", b"", keys=[f"k{number}"]))
        store.wait_dispatched()
        assert [message.queue_offset for message in store.query_message("t", f"k{number}")] == [number]


def test_a_query_for_a_topic_of_a_megabyte_leaves_nothing_in_memory(store: reput.MessageStore) -> None:
    store.put_message(reput.Message("t", b"", keys=["k"]))
    store.wait_dispatched()
    before = query._topic_fields.cache_info().misses
    assert store.query_message("u" * (1 << 20), "k") == []
    assert query._topic_fields.cache_info().misses == before
    assert len(store.query_message("t", "k")) == 1
