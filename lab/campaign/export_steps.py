"""Steps of an export with tables, of a commit and of the upkeep: a campaign kills before and after each."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from deltalake import DeltaTable
from deltalake.table import TableOptimizer
from pyiceberg.catalog.sql import SqlCatalog

from reput.files import FileLayer
from reput.jobs.lake import iceberg_upkeep
from reput.jobs.lake.staging import StagedFileWriter

_OF_BOTH: dict[str, tuple[object, str]] = {
    "a file is written": (StagedFileWriter, "finish"),
    "the state is saved": (FileLayer, "write_atomically"),
    "files get their names": (FileLayer, "rename_files"),
    "a staging folder goes": (FileLayer, "remove_tree"),
}
#: The functions that do the steps, by the format of the tables.
STEPS: dict[str, dict[str, tuple[object, str]]] = {
    "iceberg": _OF_BOTH | {
        "metadata are written": (SqlCatalog, "_write_metadata"),
        "a snapshot is committed": (SqlCatalog, "commit_table"),
        "files are put together": (iceberg_upkeep, "compact"),
        "snapshots expire": (iceberg_upkeep, "expire"),
        "an old file goes": (FileLayer, "unlink"),
    },
    "delta": _OF_BOTH | {
        "a snapshot is committed": (DeltaTable, "create_write_transaction"),
        "files are put together": (TableOptimizer, "compact"),
        "snapshots expire": (DeltaTable, "vacuum"),
        "a checkpoint is written": (DeltaTable, "create_checkpoint"),
    },
}  # fmt: skip


def tell_of_steps(form: str, tell: Callable[[str], None]) -> None:
    """Call `tell` before and after each step, from now on: a life has a process of its own."""
    for step, (owner, name) in STEPS[form].items():
        setattr(owner, name, _told(step, getattr(owner, name), tell))


def _told(step: str, function: Callable[..., Any], tell: Callable[[str], None]) -> Callable[..., Any]:
    @wraps(function)
    def told(*arguments: Any, **named: Any) -> Any:
        tell(f"before {step}")
        done = function(*arguments, **named)
        tell(f"after {step}")
        return done

    return told
