"""What `reput.testing` has, and what it says where there is no store."""

from __future__ import annotations

import sys

import pytest

import reput.testing
from reput.errors import ConfigError


@pytest.mark.parametrize("name", reput.testing.__all__)
def test_a_name_needs_the_store_and_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert getattr(reput.testing, name).__doc__
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ConfigError, match=rf"reput.testing.{name} needs numpy: pip install 'reput\[store\]'"):
        getattr(reput.testing, name)
    with pytest.raises(AttributeError, match=r"'reput\.testing' has no attribute 'nothing'"):
        _ = reput.testing.nothing
