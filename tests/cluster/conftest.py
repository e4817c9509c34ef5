"""What the tests on clusters share: the wheel, a Python that has it, and a store."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.kernels.record_batch import SCHEMA
from tests.cluster.wheel import build_wheel, make_environment

MESSAGES = 60_000


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
    numbers = range(MESSAGES)
    table = pa.table(
        {
            "topic": [f"topic-{n % 3}" for n in numbers],
            "queue_id": pa.array([n % 8 for n in numbers], pa.int32()),
            "tags": [(None, "paid", "shipped")[n % 7 % 3] for n in numbers],
            "keys": pa.array([[f"k-{n}"][: n % 2] for n in numbers], SCHEMA.field("keys").type),
            "body": [b"%d " % n * (n % 40) for n in numbers],
        }
    )
    with reput.MessageStore.open(
        path,
        mapped_file_size_commit_log=4 << 20,
        mapped_file_size_consume_queue=20 * 1000,
        max_hash_slot_num=1000,
        max_index_num=10_000,
    ) as store:
        store.put_arrow(table)
        store.wait_dispatched(timeout=60)
    return path
