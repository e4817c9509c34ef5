"""What the tests on clusters share: the wheel, a Python that has it, a store, and what a rebuild of it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from tests.support.cluster.wheel import build_wheel, make_environment
from tests.support.large_store import write_large_store
from tests.support.trees import tree


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def executor_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `python` of executors: reput is there through the wheel alone."""
    return make_environment(tmp_path_factory.mktemp("executors") / "env", wheel)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages of 3 topics with 8 queues each, in several files of each kind; read it only."""
    path = tmp_path_factory.mktemp("shared") / "shop"
    write_large_store(path)
    return path


@pytest.fixture(scope="session")
def rebuilt_here(store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The tree that a rebuild of the store by threads writes."""
    path = tmp_path_factory.mktemp("rebuilt") / "local"
    rebuild(store, path, runner=LocalRunner(2))
    return tree(path)
