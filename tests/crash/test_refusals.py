"""A store that is refused stays as it was: every name and every byte."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import reput
from reput.errors import ReputError, StoreError
from reput.store.recovery import marks as recovery_mark
from tests.support.refused import KINDS, OPTIONS, make_store
from tests.support.shares import sampled
from tests.support.trees import image

# Threads that die with their store are what these tests want.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bad_store(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / "store"
    offsets = make_store(path, killed=KINDS[kind].killed)
    KINDS[kind].deed(path, offsets)
    return path


@sampled(3)
def test_a_writer_refuses_bad_input_before_anything_changes_and_names_it(
    bad_store: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = image(bad_store)
    for interval_s in (recovery_mark.INTERVAL_S, 0):  # a start that takes long leaves no mark either
        monkeypatch.setattr(recovery_mark, "INTERVAL_S", interval_s)
        monkeypatch.setattr(recovery_mark, "_SHARE", interval_s)
        with pytest.raises(ReputError, match=KINDS[kind].error) as caught:
            reput.MessageStore.open(bad_store, **OPTIONS)
        assert str(bad_store) in str(caught.value)
        assert type(caught.value) is not StoreError  # that is what a failing disk raises
        assert image(bad_store) == before


@sampled(3)
def test_a_reader_changes_nothing_of_bad_input(bad_store: Path) -> None:
    before = image(bad_store)
    with contextlib.suppress(ReputError):
        reput.MessageStore.open(bad_store, read_only=True, **OPTIONS).close()
    assert image(bad_store) == before
