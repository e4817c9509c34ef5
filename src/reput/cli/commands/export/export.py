"""`reput export`: write a log to files by topic and day, or to Delta or Iceberg tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING

from reput.cli import interrupts
from reput.cli.commands.export.options import (
    AllowDataLoss,
    Catalog,
    Columns,
    Compact,
    Damaged,
    Decode,
    Follow,
    Format,
    Namespace,
    NewFields,
    Output,
    RetainHours,
    SchemaFiles,
    Schemas,
    Strict,
    TargetFileBytes,
)
from reput.cli.commands.export.report import report_of, write_run
from reput.cli.display.output import write_text
from reput.cli.job_run import end_job, job_run, pauses
from reput.cli.options import (
    MAX_FINDINGS,
    CommitLogPath,
    Interval,
    Json,
    Master,
    MaxFindings,
    ReportFile,
    RunnerName,
    Store,
    Topics,
    choose_runner,
    parse_list,
    parse_pairs,
)
from reput.cli.schema_files import read_schema_files
from reput.errors import ConfigError

if TYPE_CHECKING:
    from reput.jobs.decoding import BodySchema


def export(
    store: Store,
    output: Output,
    *,
    topics: Topics = None,
    columns: Columns = None,
    decode: Decode = "raw",
    schema: Schemas,
    schema_file: SchemaFiles,
    new_fields: NewFields = "reject",
    compact: Compact = 0,
    retain_hours: RetainHours = 120,
    strict: Strict = False,
    to_format: Format = "parquet",
    catalog: Catalog = None,
    namespace: Namespace = "reput",
    target_file_bytes: TargetFileBytes = 4 << 20,
    follow: Follow = False,
    interval: Interval = 10,
    allow_data_loss: AllowDataLoss = False,
    damaged: Damaged = "refuse",
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
    due = pauses(interval) if follow else iter([False])
    named = [*(listed or ()), *(schemas if isinstance(schemas, dict) else ())]
    status = 0
    with interrupts.until_stopped(unless=not follow):
        with job_run(store, report, commit_log_path=commit_log_path, topics=named or None) as progress:
            runner = choose_runner(runner_name, master, store, commit_log_path)
            runs = run_export(store, output, runner=runner, wait=lambda: next(due), options=options, progress=progress)
            first = next(runs)  # the longest run; the bar ends before anything is printed
        for result in chain([first], runs):
            status |= bool(result.findings)
            if result.commits or result.lost or result.table_faults or (not follow and (as_json or report is not None)):
                fields = asdict(result) | result.damages.as_json() if as_json else None
                shown = report_of(store, output, result, max_findings)
                if follow and not as_json:
                    write_run(result, shown, report)
                else:
                    end_job(shown, report, fields)
            elif not follow:
                write_text(f"nothing new: the log ends at offset {result.end_offset}, and so does {output}")
    return status


def _schemas(decode: str, texts: list[str], files: list[str]) -> Mapping[str, BodySchema] | BodySchema | None:
    """Schemas by topic, or the one schema of all topics; None: not given."""
    if decode in ("avro", "protobuf"):
        if not files:
            raise ConfigError(f"--decode {decode} needs --schema-file")
        return read_schema_files(decode, files)
    if len(texts) == 1 and "=" not in texts[0].partition("`")[0]:
        return texts[0]
    return parse_pairs(texts, "--schema") or None
