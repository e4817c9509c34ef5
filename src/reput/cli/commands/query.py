"""`reput query`: find messages by key, message id, commit log offset or time, and by SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from reput.cli.commands.query_rows import Question, answer
from reput.cli.display.messages import body_damage, write_messages
from reput.cli.display.nothing_found import no_key, no_record
from reput.cli.display.output import damage_status, write_error
from reput.cli.index_numbers import IndexNumbers, index_numbers
from reput.cli.open_store import open_store
from reput.cli.options import (
    MAX_FINDINGS,
    CommitLogPath,
    Json,
    Keys,
    Master,
    MaxFindings,
    ReportFile,
    Store,
    StoredFrom,
    StoredUntil,
    Topics,
    WorkDir,
    check_output_file,
    check_times,
    parse_list,
    parse_pairs,
    reading_config,
)
from reput.errors import ConfigError

if TYPE_CHECKING:
    from reput.formats.message_ext import MessageExt

#: Messages of a key that the index is asked for.
_NEWEST = 32


def query(
    store: Store,
    *,
    topic: Annotated[str | None, typer.Option("--topic", help="The topic that the keys belong to.")] = None,
    topics: Topics = None,
    keys: Keys,
    begin: StoredFrom = None,
    end: StoredUntil = None,
    max_num: Annotated[
        int | None,
        typer.Option(
            "--max-num",
            min=1,
            metavar="N",
            help="Maximum number of rows; with --topic the newest of each key, else 32.",
        ),
    ] = None,
    message_id: Annotated[str | None, typer.Option("--message-id", metavar="ID", help="An offset message id.")] = None,
    commit_log_offset: Annotated[
        int | None, typer.Option("--commit-log-offset", metavar="N", help="Offset at which the record starts.")
    ] = None,
    sql: Annotated[
        str | None, typer.Option("--sql", metavar="TEXT", help="A select over topics, and fields of their JSON bodies.")
    ] = None,
    schema: Annotated[
        list[str],
        typer.Option(
            "--schema",
            metavar="TOPIC=FIELDS",
            help="With --sql: fields of a topic's bodies; may be repeated.",
            default_factory=list,
            show_default=False,
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="FILE",
            callback=check_output_file,
            help="Write the rows to a .parquet, .arrow, .csv or .jsonl file.",
        ),
    ] = None,
    report: ReportFile = None,
    work_dir: WorkDir = None,
    runner: Annotated[
        Literal["local", "spark"],
        typer.Option("--runner", help="SQL by DuckDB here, or by Spark; with --work-dir, who reads the log."),
    ] = "local",
    master: Master = None,
    damaged: Annotated[
        Literal["refuse", "skip"],
        typer.Option("--damaged", help="With --sql: refuse a damaged log, or read its whole records."),
    ] = "refuse",
    max_findings: MaxFindings = MAX_FINDINGS,
    commit_log_path: CommitLogPath = None,
    settings: IndexNumbers,
    as_json: Json = False,
) -> int:
    """Find messages by key, message id, log offset or time, or by SQL.

    Nothing is changed. A time is ISO 8601 (UTC unless it says otherwise) or milliseconds since 1970 UTC. --json prints
    one line a message. With --topic the index finds the newest messages of each key, 32 or --max-num. Without it all
    messages with one of the keys are found, of all topics or of --topics, stored between --begin and --end; --max-num
    shows the first of them.

    With --sql each topic is a table, "quoted-like-this" if its name is no word, and messages is the table of all. The
    columns are read_log's, and the fields of JSON bodies, with types inferred from the first 10000 bodies, or
    given by --schema ("orders=id bigint, total double, tags array<string>"). The dialect is DuckDB's, or Spark's with
    --runner spark. Damage in the log is refused. With --damaged skip all whole records are read, ranges that were
    passed over are reported, and the exit status is 1.

    With --work-dir a query for all messages, or by DuckDB, continues after a kill.

    Examples:
      reput query /tmp/store --topic orders --key o-1 --key o-2 --begin 2026-01-01
      reput query /tmp/store --commit-log-offset 0
      reput query /tmp/store --topics orders --begin 2026-01-01 --json
      reput query /tmp/store --sql "select tags, count(*) from orders group by tags"
      reput query /tmp/store --sql "select * from messages" --output /tmp/messages.csv
      reput query /tmp/store --begin 2026-01-01 --report /tmp/query.html --work-dir /tmp/query
    """
    check_times(begin, end)
    listed = parse_list(topics)
    of_one = [option is not None for option in (topic, message_id, commit_log_offset, sql)]
    is_range = not any(of_one) and (bool(keys) or any(option is not None for option in (listed, begin, end)))
    if sum(of_one) + is_range == 0:
        raise ConfigError("say what to find, as --topics orders, --key o-1, --begin 2026-11-21, or --sql")
    if sum(of_one) > 1:
        raise ConfigError("--message-id and --commit-log-offset each find one message: leave other conditions out")
    if topic is not None and not keys:
        raise ConfigError(f"--topic wants a --key; all its messages: reput query {store} --topics {topic}")
    if sql is not None or is_range:
        return answer(
            Question(
                store=store, topics=listed, keys=keys, begin=begin, end=end, sql=sql,
                max_num=max_num, schemas=parse_pairs(schema, "--schema"), commit_log_path=commit_log_path,
                output=output, report=report, work_dir=work_dir, runner=runner, master=master, damaged=damaged,
                max_findings=max_findings, as_json=as_json,
            )
        )  # fmt: skip
    return _query_store(
        store,
        topic,
        keys,
        begin,
        end,
        max_num or _NEWEST,
        message_id,
        commit_log_offset,
        commit_log_path,
        settings,
        as_json,
    )


def _query_store(
    store: str,
    topic: str | None,
    keys: list[str],
    begin: int | None,
    end: int | None,
    max_num: int,
    message_id: str | None,
    commit_log_offset: int | None,
    commit_log_path: str | None,
    settings: list[str],
    as_json: bool,
) -> int:
    """Query as a broker does: the newest messages of keys by the index, or the message at a commit log offset."""
    from reput.formats.message_id import decode_message_id

    config = reading_config(commit_log_path, max_num, index_numbers(settings))
    with open_store(store, read_only=True, config=config) as opened:
        messages: list[MessageExt] = []
        if topic is not None:
            of_keys = opened.query_messages(topic, keys, max_num=max_num, begin=begin or 0, end=end)
            found = {message.commit_log_offset: message for messages in of_keys.values() for message in messages}
            messages = [found[offset] for offset in sorted(found)]
            if missing := [key for key in keys if not of_keys[key]]:
                write_error(no_key(opened, topic, missing))
        elif message_id is not None:
            message = opened.view_message(message_id)
            messages = [message] if message is not None else []
            if not messages:
                write_error(no_record(opened, f"message id {message_id}", decode_message_id(message_id)[1]))
        elif commit_log_offset is not None:
            message = opened.look_message_by_offset(commit_log_offset)
            messages = [message] if message is not None else []
            if not messages:
                write_error(no_record(opened, f"offset {commit_log_offset}", commit_log_offset))
        if messages:
            write_messages(messages, as_json=as_json)
        damages = [opened.recovery.damage, *(body_damage(store, message) for message in messages)]
        return max(map(damage_status, damages))
