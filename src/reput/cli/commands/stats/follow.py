"""`reput stats --follow`: print a line for each changed group of a growing log."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from reput.cli import interrupts
from reput.cli.display.output import write_json, write_line
from reput.errors import ConfigError, DataLossError, ReputError
from reput.extras import require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What --work-dir has: the checkpoint of a query of this form.
_LAYOUT = "stats --follow 1"


def follow_stats(
    store: str, work_dir: str | None, *, master: str | None, available_now: bool, as_json: bool, **arguments: Any
) -> None:
    """Print changed groups until interrupted, or with `available_now` until all stored messages are counted."""
    if work_dir is None or arguments["bucket"] is None:
        raise ConfigError("--follow needs --bucket, the width of its windows, and --work-dir, where its checkpoint is")
    require("pyspark", "--follow")
    from pyspark.errors import StreamingQueryException

    from reput.jobs.job_folder import JobFolder
    from reput.log.directory import StoreDirectory
    from reput.spark import session, statistics_stream
    from reput.spark.short_errors import reason_of
    from reput.spark.stream_reader import NEW_CHECKPOINT

    StoreDirectory(store, commit_log_path=arguments["commit_log_path"]).check_output(work_dir)

    def show(changed: DataFrame, batch: int) -> None:
        rows = changed.toArrow()
        for row in rows.sort_by([(name, "ascending") for name in rows.column_names]).to_pylist():
            line = {name: _plain(value) for name, value in row.items()}
            if as_json:
                write_json(line)
            else:
                write_line(line)

    topics = arguments["topics"]
    kept = {"store": store, **arguments, "topics": None if topics is None else sorted(set(topics))}
    with (
        interrupts.until_stopped(unless=available_now),
        JobFolder(work_dir, "stats --follow", kept, layout=_LAYOUT) as folder,
    ):
        frame = statistics_stream(session(master or "local[*]"), store, **arguments)
        writer = frame.writeStream.outputMode("update").foreachBatch(show)
        writer = writer.option("checkpointLocation", folder.state_folder("checkpoint"))
        query = (writer.trigger(availableNow=True) if available_now else writer).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            reason, is_loss, _ = reason_of(error).partition(NEW_CHECKPOINT)
            if is_loss:
                raise DataLossError(f"{reason}; another --work-dir begins with the log as it is") from None
            raise ReputError(f"{store}: the stream ended: {reason}") from None
        finally:
            query.stop()


def _plain(value: Any) -> Any:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value
