"""`reput warm`: make ahead what is made once an installation."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from reput.cli.options import Json
from reput.cli.output import progress_bar, write_fields, write_json


def warm(
    *,
    spark: Annotated[bool, typer.Option("--spark", help="Also make Spark's class archive (half a minute).")] = False,
    as_json: Json = False,
) -> None:
    """Compile the kernels ahead.

    So the first start of a store need not; what is there already is left. With --spark also the archive of classes
    from which Spark's Java starts 3 s faster (160 to 190 MB).

    Example:
      reput warm
    """
    from reput.warm import announce_on_stderr, load_kernels

    with progress_bar() as progress:

        def announce(done: int, total: int, name: str) -> None:
            progress(done, total, "compile kernels")

        seconds = load_kernels(announce if sys.stderr.isatty() else announce_on_stderr)
        answer: dict[str, str | float] = {"kernels_s": round(seconds, 3)}
    if spark:
        from reput.spark.class_archive import build

        start = time.perf_counter()
        answer["class_archive"] = build()
        answer["class_archive_s"] = round(time.perf_counter() - start, 3)
    if as_json:
        write_json(answer)
    else:
        write_fields(answer)
