"""`reput import`: Parquet files or a Delta table into a store."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict
from typing import Annotated

import typer

from reput.cli.options import BrokerConf, Json, Master, RunnerName, Settings, parse_list, store_config
from reput.cli.output import complain, progress_bar, write_fields, write_json
from reput.cli.start import begin_work
from reput.errors import ConfigError


def import_(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A Parquet file, a folder or pattern of such, or a Delta table.")
    ],
    store: Annotated[str, typer.Argument(metavar="STORE", help="The store's directory; made where nothing is.")],
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Of all messages; else the column topic, or folders topic=... .")
    ] = None,
    columns: Annotated[str | None, typer.Option("--columns", metavar="LIST", help="Only these columns.")] = None,
    bad_rows_path: Annotated[
        str | None,
        typer.Option(
            "--bad-rows-path", metavar="DIR", help="Put rows that RocketMQ would refuse there, instead of an error."
        ),
    ] = None,
    sink_id: Annotated[
        str | None,
        typer.Option("--sink-id", metavar="NAME", help="Under which the store remembers how far the import is."),
    ] = None,
    settings: Settings,
    broker_conf: BrokerConf = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Import messages from Parquet or Delta.

    Columns are those of an export: topic and body must be there, the store assigns offsets and store times anew. What
    is imported is on the disk, and in queues and index. A run that was killed is gone on with by the same command, each
    row comes once; a source that was changed since is refused.

    Examples:
      reput import /tmp/lake /tmp/copy
      reput import '/tmp/lake/messages/topic=orders/*/*.parquet' /tmp/again --topic orders-again
    """
    from reput.files import DISK
    from reput.jobs.import_ import import_messages
    from reput.jobs.lake_source import open_source
    from reput.jobs.report import format_value
    from reput.spark.runner import choose_runner
    from reput.spark.write_options import check_sink_id
    from reput.store.import_sink import ImportSink

    name = sink_id or f"import-{hashlib.blake2b(os.path.abspath(source).encode(), digest_size=6).hexdigest()}"
    try:
        check_sink_id(name)
    except ValueError as error:
        raise ConfigError(f"--sink-id {name}: {error}") from None
    config = store_config(settings, broker_conf)
    found = open_source(source, topic=topic, columns=parse_list(columns))
    total_bytes = sum(part.size for batch in found.batches for part in batch)
    begin_work()
    runner = choose_runner(runner_name, total_bytes=total_bytes, master=master)
    with (
        progress_bar() as progress,
        ImportSink(store, config, name, bad_rows_path=bad_rows_path, files=DISK) as sink,
    ):
        result = import_messages(found, sink, runner=runner, progress=progress)
    if as_json:
        write_json(asdict(result))
    else:
        write_fields(
            {
                "messages": format_value(result.messages),
                "put aside": format_value(result.aside),
                "imported before": format_value(result.skipped),
                "seconds": format_value(result.seconds),
                "messages a second": format_value(round(result.messages / result.seconds)),
            }
        )
    if result.aside:
        complain(f"{result.aside} rows were put aside into {bad_rows_path}, each with the reason")
