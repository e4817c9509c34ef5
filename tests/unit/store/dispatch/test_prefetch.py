"""Pieces made one step ahead: the same ones, and never two ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from reput.store.dispatch.prefetch import prefetched


def test_each_piece_is_made_while_the_one_before_is_used() -> None:
    made = [threading.Event() for _ in range(5)]

    def pieces() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    for number in prefetched(pieces()):
        if number + 1 < len(made):
            assert made[number + 1].wait(60)
        assert not any(event.is_set() for event in made[number + 2 :])
    assert made[-1].is_set()


def test_an_error_comes_behind_the_pieces_before_it() -> None:
    def pieces() -> Iterator[int]:
        yield 1
        raise ValueError("the second")

    ahead = prefetched(pieces())
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="the second"):
        next(ahead)


def test_who_leaves_early_leaves_no_thread() -> None:
    ahead = prefetched(iter(range(9)))
    assert next(ahead) == 0
    assert any(thread.name.startswith("reput-prefetch") for thread in threading.enumerate())
    ahead.close()  # type: ignore[attr-defined]
    assert not any(thread.name.startswith("reput-prefetch") for thread in threading.enumerate())
