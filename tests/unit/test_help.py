"""help(): what Python shows of the public names is the same in each process."""

from __future__ import annotations

import importlib
import pydoc
import re

import pytest

import reput

MODULES = [
    "reput.client", "reput.client.sync", "reput.log",
    *(f"reput.jobs.{room}" for room in "audit backup diff lake query rebuild repair statistics".split()),
]  # fmt: skip


@pytest.mark.parametrize("module", ["reput", *MODULES])
def test_help_has_no_addresses_of_objects(module: str) -> None:
    found = importlib.import_module(module)
    for name in found.__all__:
        text = pydoc.render_doc(getattr(found, name), renderer=pydoc.plaintext)
        assert not re.search(r" at 0x[0-9a-f]+", text), name


def test_dir_has_the_public_names_alone() -> None:
    assert dir(reput) == sorted(["__version__", *reput.__all__])
