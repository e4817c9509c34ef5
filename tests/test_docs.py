"""Pages that are made from the code: what is in them, and in which order."""

from __future__ import annotations

import ast
from pathlib import Path

from reput import MessageStore

PAGES = Path(__file__).parents[1] / "docs/pages.py"


def names(constant: str) -> list[str]:
    """The names in a list of docs/pages.py, which runs only within mkdocs."""
    for node in ast.parse(PAGES.read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))) if name == constant:
                return text.split()
    raise AssertionError(f"{PAGES} has no {constant}")


def test_each_method_of_a_store_is_one_of_users_or_is_known_to_be_none() -> None:
    listed = names("METHODS") + names("INSIDE")
    assert len(listed) == len(set(listed))
    assert set(listed) == {name for name in dir(MessageStore) if not name.startswith("_")}


def test_methods_of_a_store_come_in_the_order_of_their_use() -> None:
    order = ["open", "put_message", "get_message", "query_message", "tail", "close"]
    assert [name for name in names("METHODS") if name in order] == order
    assert names("METHODS")[0] == "open"


def test_what_brokers_and_followers_take_is_not_among_a_users_methods() -> None:
    for name in names("METHODS"):
        text = getattr(MessageStore, name).__doc__
        assert text, name
        for words in ("for a broker", "an event loop", "of a master"):
            assert words not in text.partition("\n")[0], name
