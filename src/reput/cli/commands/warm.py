"""`reput warm`: compile kernels, make Spark's class archive, and preload a store, ahead of their first use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Annotated

import typer

from reput.cli.display.output import write_fields, write_json, write_text
from reput.cli.index_numbers import IndexNumbers, index_numbers
from reput.cli.open_store import open_store
from reput.cli.options import CommitLogPath, Json, check_path, reading_config
from reput.errors import ConfigError
from reput.extras import require_store


def warm(
    store: Annotated[
        str | None,
        typer.Argument(metavar="[STORE]", callback=check_path, help="Also read the newest bytes of this store."),
    ] = None,
    *,
    log_bytes: Annotated[
        int | None,
        typer.Option("--bytes", min=0, metavar="N", help="Bytes of STORE's log to read; default: 40 % of the memory."),
    ] = None,
    commit_log_path: CommitLogPath = None,
    settings: IndexNumbers,
    cache: Annotated[
        str | None,
        typer.Option(
            "--cache",
            metavar="DIR",
            callback=check_path,
            help="Make the cache in DIR; programs find it by REPUT_CACHE_DIR=DIR.",
        ),
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Also make Spark's class archive (half a minute).")] = False,
    where: Annotated[
        bool, typer.Option("--where", help="Only print the folder of compiled kernels, or the wheel's file of them.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compile the kernels ahead of time, on up to four processors.

    Then the first start of a store need not compile them; kernels that are compiled already are kept. Their folder is
    printed. It has another name for each version of reput and Numba and for each kind of processor, and may have the
    kernels of several versions of Python. A wheel that brings kernels needs no folder (docs/containers.md).

    With --spark also make the class archive with which Spark's Java starts 3 s faster (160 to 190 MB). With a STORE
    also read the newest records of its log, queues and index once, so that its readers find them in the page cache. The
    store may be open elsewhere, and is not changed.

    A cache that --cache has made in an image may be read-only when its containers run (docs/containers.md).

    Examples:
      reput warm
      reput warm --cache /opt/reput-cache
      reput warm --where
      reput warm /tmp/store --bytes 1000000
    """
    require_store("reput warm")  # before llvmlite is missed, which Numba brings
    if cache is not None:
        raise typer.Exit(_make_cache(cache, spark=spark, as_json=as_json))
    from reput.kernels.machine.wheel_kernels import kernels_path

    if where:
        write_json({"kernels": kernels_path()}) if as_json else write_text(kernels_path())
        return
    from reput.kernel_loader import load_kernels

    answer: dict[str, str | float] = {"kernels": kernels_path(), "kernels_s": round(load_kernels(), 3)}
    if store is not None:
        start = time.perf_counter()
        config = reading_config(commit_log_path, numbers=index_numbers(settings))
        with open_store(store, read_only=True, config=config) as opened:
            answer |= opened.preload(log_bytes)._asdict()
        answer["store_s"] = round(time.perf_counter() - start, 3)
    if spark:
        from reput.spark.class_archive import build

        start = time.perf_counter()
        answer["class_archive"] = build()
        answer["class_archive_s"] = round(time.perf_counter() - start, 3)
    if as_json:
        write_json(answer)
    else:
        write_fields(answer)


def _make_cache(folder: str, *, spark: bool, as_json: bool) -> int:
    """Run the command for another cache folder in a new process, as this one has loaded kernels; the exit status."""
    from reput.kernels.machine.cache import can_be_written

    if not can_be_written(os.path.abspath(folder)):
        raise ConfigError(f"{folder}: cannot be written; choose a folder that can")
    options = [*(["--spark"] if spark else []), *(["--json"] if as_json else [])]
    environment = {**os.environ, "REPUT_CACHE_DIR": folder}
    return subprocess.run([sys.executable, "-m", "reput", "warm", *options], env=environment, check=False).returncode
