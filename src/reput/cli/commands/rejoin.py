"""`reput rejoin`: make a former master ready to follow the new one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli import interrupts
from reput.cli.admin_options import Config, access
from reput.cli.commands.repair import KEYS
from reput.cli.display.output import iso_time
from reput.cli.job_run import end_job, job_run
from reput.cli.options import Json, RunnerName, Settings, Store, choose_runner, job_arguments

if TYPE_CHECKING:
    from reput.jobs.report.report import Report
    from reput.replication.rejoin import Rejoin


def rejoin(
    store: Store,
    *,
    settings: Settings,
    master: Annotated[
        str, typer.Option("--master", metavar="HOST:PORT", help="The broker that the store is to follow.")
    ],
    apply: Annotated[
        bool, typer.Option("--apply", help="Give up what the master does not have; else only show it.")
    ] = False,
    config: Config = None,
    runner_name: RunnerName = "auto",
    as_json: Json = False,
) -> int:
    """Make a former master ready to follow the new one: show the messages that only it has, and give them up.

    After a fail-over the old master may have messages that the new one never got. A slave with such messages cannot
    follow. The command compares both logs, and shows by topic what the store has after the last common record. With
    --apply, and with the store closed, these records are kept in STORE/commitlog.broken and cut off the log, and a
    repair brings queues and index in step. After a kill the same command continues.

    --set takes what `reput repair` takes: sizes of queue and index files that the store's files do not have.

    The exit status is 0 if the store can follow, 1 if something is to be given up, 2 if the logs have nothing in
    common, or the master cannot be asked.

    Examples:
      reput rejoin /tmp/store --master localhost:10911
      reput rejoin /tmp/store --master localhost:10911 --apply
    """
    from reput.replication import rejoin as job

    arguments = job_arguments(settings, KEYS, "a rejoin")
    credentials, tls = access(config)
    with interrupts.resumable(store if apply else None), job_run(store, None) as progress:
        runner = choose_runner(runner_name, None, store, None)
        result = job.rejoin(
            store, master, apply=apply, credentials=credentials, tls=tls, runner=runner, progress=progress, **arguments
        )
    end_job(_report(store, master, result), None, _fields(result) if as_json else None)
    return int(_is_to_be_done(result))


def _is_to_be_done(result: Rejoin) -> bool:
    if result.repair is not None:
        return not result.repair.is_fine
    return result.end_offset > result.common_offset


def _fields(result: Rejoin) -> dict[str, object]:
    return {
        "common_offset": result.common_offset,
        "end_offset": result.end_offset,
        "master": result.master._asdict(),
        "given_up": [asdict(one) for one in result.topics],
        "kept": list(result.kept),
        "is_applied": result.repair is not None,
        "is_fine": not _is_to_be_done(result),
    }


def _report(store: str, master: str, result: Rejoin) -> Report:
    from reput.jobs.report.report import Report
    from reput.jobs.report.table import Table

    is_applied = result.repair is not None
    rows = [
        (one.topic, one.messages, one.bytes, iso_time(one.first_store_timestamp), iso_time(one.last_store_timestamp))
        for one in result.topics
    ]
    columns = ("topic", "messages", "bytes", "first stored", "last stored")
    tables = [
        Table("given up" if is_applied else "only this store has", columns, rows),
        Table("kept", ("path",), [(path,) for path in result.kept]),
    ]
    state = "can follow" if not _is_to_be_done(result) else "findings remain" if is_applied else "to be applied"
    findings = [] if result.repair is None else [str(finding) for finding in result.repair.remaining]
    return Report(
        title=f"{store} and its master {master}",
        facts={
            "result": state,
            "equal up to offset": result.common_offset,
            f"the store {'ended' if is_applied else 'ends'} at offset": result.end_offset,
            "the master ends at offset": result.master.max_offset,
            "messages to give up" if not is_applied else "messages given up": sum(
                one.messages for one in result.topics
            ),
        },
        tables=[table for table in tables if table.rows],
        findings=findings,
        paths={"store": store},
    )
