"""A package that is missing is told in one line, before any work is done."""

from __future__ import annotations

import sys

import pytest

from reput.errors import ConfigError
from reput.extras import require


def test_what_is_installed_is_required_in_silence() -> None:
    require("duckdb", "SQL")
    with pytest.raises(KeyError):
        require("no_such_package", "nothing")


def test_a_session_without_pyspark_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from reput.spark import session

    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigError, match=r"a Spark session needs pyspark: pip install 'reput\[spark\]'"):
        session()
