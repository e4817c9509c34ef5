"""Tests that start Java, Maven, Go or Node are marked so: `make test` needs Python and make alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import marked
from tests.support.rocketmq.apache import STORE_VERSIONS, build
from tests.support.rocketmq.clients import PROGRAMS, built

INTEROP = Path(__file__).parent / "interop"
MARK = re.compile(r"^pytestmark = .*pytest\.mark\.java\b", re.MULTILINE)


@pytest.mark.parametrize("version", STORE_VERSIONS)
def test_a_test_without_the_marker_gets_no_rocketmq(version: str) -> None:
    with pytest.raises(AssertionError, match=r"give it `pytest\.mark\.java`"):
        build(version)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_test_without_the_marker_gets_no_program_of_another_language(program: str) -> None:
    with pytest.raises(AssertionError, match=r"give it `pytest\.mark\.java`"):
        built(program)


@pytest.mark.parametrize("name", ["java", "browser"])
def test_the_marker_of_the_running_test_counts(name: str, request: pytest.FixtureRequest) -> None:
    request.node.add_marker(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marked, "_markers", None)
        with marked.running(request.node):
            marked.need(name)


def test_all_of_interop_is_marked() -> None:
    files = sorted(INTEROP.glob("test_*.py"))
    assert len(files) > 20
    assert [file.name for file in files if not MARK.search(file.read_text())] == []
