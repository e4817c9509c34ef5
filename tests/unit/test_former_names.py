"""Import paths that the docs named before the rooms, kept for one release."""

from __future__ import annotations

from importlib import import_module

import pytest

FORMER = [
    ("reput.jobs.export", "reput.jobs.lake"),
    ("reput.jobs.import_", "reput.jobs.lake"),
    ("reput.jobs.restore", "reput.jobs.backup"),
    ("reput.jobs.salvage", "reput.jobs.repair"),
    ("reput.jobs.sql", "reput.jobs.query"),
    ("reput.store.import_sink", "reput.store.sinks.import_sink"),
    ("reput.store.replay", "reput.store.sinks.replay"),
]


@pytest.mark.parametrize(("former", "now"), FORMER, ids=[former for former, _ in FORMER])
def test_a_former_import_path_gives_the_same_objects(former: str, now: str) -> None:
    names = import_module(former).__all__
    assert names
    for name in names:
        assert getattr(import_module(former), name) is getattr(import_module(now), name)
