"""`reput export`: write a log to files by topic and day, or to Delta or Iceberg tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from reput.cli import interrupts
from reput.cli.display.limited import limited
from reput.cli.display.output import write_error, write_line, write_text
from reput.cli.job_run import end_job, job_run, write_page
from reput.cli.options import (
    MAX_FINDINGS,
    CommitLogPath,
    Json,
    Master,
    MaxFindings,
    ReportFile,
    RunnerName,
    Store,
    Topics,
    check_path,
    choose_runner,
    parse_list,
    parse_pairs,
)
from reput.cli.schema_files import read_schema_files
from reput.errors import ConfigError

if TYPE_CHECKING:
    from reput.jobs.decoding import BodySchema
    from reput.jobs.lake.export_job import Export
    from reput.jobs.report.report import Report


def export(
    store: Store,
    output: Annotated[str, typer.Argument(metavar="DIR", callback=check_path, help="The folder to export to.")],
    *,
    topics: Topics = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="LIST", help="Only these columns, and the origin of a row.")
    ] = None,
    decode: Annotated[
        Literal["raw", "utf8", "json", "avro", "protobuf"],
        typer.Option("--decode", help="Write bodies as bytes, as text, or as typed fields."),
    ] = "raw",
    schema: Annotated[
        list[str],
        typer.Option(
            "--schema",
            metavar="[TOPIC=]FIELDS",
            help="Of all JSON bodies, or a topic's: 'id bigint, price double'; may be repeated. Else inferred.",
            default_factory=list,
            show_default=False,
        ),
    ],
    schema_file: Annotated[
        list[str],
        typer.Option(
            "--schema-file",
            metavar="[TOPIC=]FILE",
            help="Of all Avro or Protobuf bodies, or a topic's: FILE.avsc or FILE.desc:MESSAGE; may be repeated.",
            default_factory=list,
            show_default=False,
        ),
    ],
    new_fields: Annotated[
        Literal["reject", "add"],
        typer.Option("--new-fields", help="Of JSON bodies whose schema is inferred: reject the row, or add a column."),
    ] = "reject",
    compact: Annotated[
        int,
        typer.Option("--compact", min=0, metavar="N", help="Put the small files of a table's day together from N on."),
    ] = 0,
    retain_hours: Annotated[
        float,
        typer.Option("--retain-hours", min=0, metavar="N", help="With --compact: older snapshots go, and their files."),
    ] = 120,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a body that cannot be decoded, instead of rejecting its row.")
    ] = False,
    to_format: Annotated[
        Literal["parquet", "delta", "iceberg", "csv", "jsonl"],
        typer.Option("--format", help="Files of Parquet, CSV or JSON lines; or of Parquet, and tables over them."),
    ] = "parquet",
    catalog: Annotated[
        str | None,
        typer.Option("--catalog", metavar="NAME", help="Of Iceberg tables, by pyiceberg's configuration. Else in DIR."),
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="NAME", help="Of Iceberg tables in the catalog.")
    ] = "reput",
    target_file_bytes: Annotated[
        int, typer.Option("--target-file-bytes", min=1, metavar="N", help="Merge smaller files.")
    ] = 4 << 20,
    follow: Annotated[bool, typer.Option("--follow", help="Export new messages until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0, metavar="SECONDS", help="With --follow: time between two runs.")
    ] = 10,
    allow_data_loss: Annotated[
        bool,
        typer.Option(
            "--allow-data-loss",
            help="Continue after messages that were deleted before their export, and without lost files of tables.",
        ),
    ] = False,
    damaged: Annotated[
        Literal["refuse", "skip"],
        typer.Option("--damaged", help="Refuse a damaged log, or export its whole records."),
    ] = "refuse",
    report: ReportFile = None,
    commit_log_path: CommitLogPath = None,
    runner_name: RunnerName = "auto",
    master: Master = None,
    max_findings: MaxFindings = MAX_FINDINGS,
    as_json: Json = False,
) -> int:
    """Export messages to Parquet, Delta, Iceberg, CSV or JSON lines.

    The files lie in DIR/messages/topic=.../date=.../, in log order. Another run to the same folder exports only new
    messages, each once, also after a kill. The store is not changed.

    With --decode json each topic is a table, DIR/messages/TOPIC, with a schema of its own, which --schema gives, or
    which is inferred. Rows whose bodies cannot be decoded lie in DIR/rejects, with offsets and reason, and the exit
    status is 1; with --strict they are refused. A given schema leaves other fields out. With an inferred one a body
    with a value in another field is rejected, so that no value is lost. With --new-fields add, tables of Delta and
    Iceberg get the field as a column.

    So it is with --decode avro and protobuf, by schema files: an .avsc file, or what protoc --descriptor_set_out
    --include_imports has made, and the message's name. Topics without a schema are rejected.

    In CSV keys are separated by a blank, properties are text of JSON, and bodies that are no UTF-8 lie in the column
    body_base64. JSON lines are as `reput get --json` prints them. Both can be imported again.

    Damage in the log is refused. With --damaged skip all whole records before and after the damage are exported, each
    range that was passed over is reported, and the exit status is 1. So it is if messages were lost before their
    export, and --allow-data-loss is given. A table that was dropped with its files is left out, and reported, with
    status 1; with --allow-data-loss it is made anew of what is kept.

    With --follow a line is printed for each run that has found something.

    Examples:
      reput export /tmp/store /tmp/lake
      reput export /tmp/store /tmp/tables --topics orders --decode utf8 --format delta
      reput export /tmp/store /tmp/iceberg --decode utf8 --format iceberg
      reput export /tmp/store /tmp/text --format csv
    """
    from reput.jobs.lake.export_job import ExportOptions
    from reput.jobs.lake.export_job import follow as run_export

    listed = parse_list(topics)
    schemas = _schemas(decode, schema, schema_file)
    options = ExportOptions(
        topics=listed,
        columns=parse_list(columns),
        decode=decode,
        schema=schemas,
        format=to_format,
        catalog=catalog,
        namespace=namespace,
        commit_log_path=commit_log_path,
        target_file_bytes=target_file_bytes,
        fail_on_data_loss=not allow_data_loss,
        damaged=damaged,
        new_fields=new_fields,
        compact=compact,
        retain_hours=retain_hours,
        strict=strict,
    )
    pauses = _pauses(interval) if follow else iter([False])
    named = [*(listed or ()), *(schemas if isinstance(schemas, dict) else ())]
    status = 0
    with interrupts.until_stopped(unless=not follow):
        with job_run(store, report, commit_log_path=commit_log_path, topics=named or None) as progress:
            runner = choose_runner(runner_name, master, store, commit_log_path)
            runs = run_export(
                store, output, runner=runner, wait=lambda: next(pauses), options=options, progress=progress
            )
            first = next(runs)  # the longest run; the bar ends before anything is printed
        for result in chain([first], runs):
            status |= bool(result.findings)
            if result.commits or result.lost or result.table_faults or (not follow and (as_json or report is not None)):
                fields = asdict(result) | result.damages.as_json() if as_json else None
                shown = _report(store, output, result, max_findings)
                if follow and not as_json:
                    _write_run(result, shown, report)
                else:
                    end_job(shown, report, fields)
            elif not follow:
                write_text(f"nothing new: the log ends at offset {result.end_offset}, and so does {output}")
    return status


def _write_run(result: Export, shown: Report, report: str | None) -> None:
    """Print a run that has found something on one line, and its findings; with a path also write its report."""
    write_line(
        {
            "to_offset": result.end_offset, "messages": result.messages, "rejected": result.rejected,
            "topics": len(result.topics), "files": sum(one.files for one in result.topics),
            "bytes": sum(one.bytes for one in result.topics), "newest_timestamp": result.newest_ms,
            "age_seconds": None if result.age_seconds is None else round(result.age_seconds, 2),
            "lag_bytes": result.lag_bytes, "seconds": round(result.seconds, 3),
        }
    )  # fmt: skip
    for finding in shown.findings:
        write_error(finding)
    if report is not None:
        write_page(shown, report)


def _schemas(decode: str, texts: list[str], files: list[str]) -> Mapping[str, BodySchema] | BodySchema | None:
    """Schemas by topic, or the one schema of all topics; None: not given."""
    if decode in ("avro", "protobuf"):
        if not files:
            raise ConfigError(f"--decode {decode} needs --schema-file")
        return read_schema_files(decode, files)
    if len(texts) == 1 and "=" not in texts[0].partition("`")[0]:
        return texts[0]
    return parse_pairs(texts, "--schema") or None


def _pauses(seconds: float) -> Iterator[bool]:
    """Wait before each run, without end."""
    while True:
        time.sleep(seconds)
        yield True


def _report(store: str, output: str, result: Export, max_findings: int) -> Report:
    """Report: rows, bytes and files of each topic."""
    from reput.jobs.report.plot import bars_by_size
    from reput.jobs.report.report import Report
    from reput.jobs.report.table import Table

    rows = [(one.topic, one.messages, one.rejected, one.files, one.bytes) for one in result.topics]
    sizes = {one.topic: one.bytes for one in result.topics if one.bytes}
    facts: dict[str, str | int | float | None] = {
        "messages": result.messages,
        "rejected": result.rejected,
        "from offset": result.begin_offset,
        "to offset": result.end_offset,
        "commits": result.commits,
        "bytes": sum(one.bytes for one in result.topics),
        "newest message's age in seconds": None if result.age_seconds is None else round(result.age_seconds, 2),
        "lag bytes": result.lag_bytes,
        "seconds": result.seconds,
        "messages a second": round(result.messages / result.seconds),
    }
    tables = [Table("topics", ("topic", "messages", "rejected", "files", "bytes"), rows)]
    if result.body_schemas:
        tables.append(Table("schemas of bodies", ("topic", "fields"), list(result.body_schemas.items())))
    return Report(
        title=f"Export of {store} to {output}",
        facts=facts,
        tables=tables,
        plots=[bars_by_size("Bytes by topic", "topic", sizes)] if sizes else [],
        findings=limited(result.findings, len(result.findings), max_findings),
        paths={"store": store, "written to": output},
    )
