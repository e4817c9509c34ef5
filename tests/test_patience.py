"""Tests wait long for an answer, wherever the product waits for one."""

from __future__ import annotations

from pathlib import Path

from tests.support.patience import known_waits, waits_of

SOURCES = Path(__file__).parents[1] / "src"


def test_the_wait_of_every_call_is_known() -> None:
    found = {
        wait
        for path in SOURCES.rglob("*.py")
        for wait in waits_of(".".join(path.relative_to(SOURCES).with_suffix("").parts), path.read_text())
    }

    assert found - known_waits() == set()


def test_waits_are_found_in_arguments_of_every_kind() -> None:
    source = "a.call(b, c, _ONE_S)\nd.ask(e, timeout_s=2 * _TWO_S)\nasyncio.sleep(_THREE_S)"

    assert waits_of("m", source) == {("m", "_ONE_S"), ("m", "_TWO_S")}
