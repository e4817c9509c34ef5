"""`reput prune`: remove old backups of a target."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from reput.cli import interrupts
from reput.cli.commands.backup import Target
from reput.cli.display.output import progress_bar, write_json, write_report
from reput.cli.options import Json

if TYPE_CHECKING:
    from reput.jobs.backup.prune_job import Pruned
    from reput.jobs.report.report import Report


def _newest_of_each(period: str) -> typer.models.OptionInfo:
    rule = {"hour": "hourly", "day": "daily"}.get(period, f"{period}ly")
    text = f"Keep the newest backup of each of the last N {period}s that have one."
    option: typer.models.OptionInfo = typer.Option(f"--keep-{rule}", metavar="N", min=0, help=text, show_default=False)
    return option


def prune(
    target: Target,
    *,
    keep_last: Annotated[
        int, typer.Option("--keep-last", metavar="N", min=0, help="Keep the newest N backups.", show_default=False)
    ] = 0,
    keep_hourly: Annotated[int, _newest_of_each("hour")] = 0,
    keep_daily: Annotated[int, _newest_of_each("day")] = 0,
    keep_weekly: Annotated[int, _newest_of_each("week")] = 0,
    keep_monthly: Annotated[int, _newest_of_each("month")] = 0,
    keep_yearly: Annotated[int, _newest_of_each("year")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    as_json: Json = False,
) -> int:
    """Remove the backups of a target that no --keep option keeps, and what only they need.

    Times are UTC, weeks begin on Monday. A backup may be kept by several options. No object that a kept backup needs is
    removed. Meanwhile no backup can be taken; a restore of a backup that stays goes on.

    Examples:
      reput prune /tmp/backups --keep-last 3 --keep-daily 7 --keep-weekly 4 --dry-run
      reput prune /tmp/backups --keep-last 3 --keep-daily 7 --keep-weekly 4
    """
    from reput.jobs.backup import prune_job as job

    with interrupts.resumable(None if dry_run else target), progress_bar() as progress:
        result = job.prune(
            target,
            keep_last=keep_last,
            keep_hourly=keep_hourly,
            keep_daily=keep_daily,
            keep_weekly=keep_weekly,
            keep_monthly=keep_monthly,
            keep_yearly=keep_yearly,
            dry_run=dry_run,
            progress=progress,
        )
    if as_json:
        write_json(asdict(result) | {"dry_run": dry_run})
    else:
        write_report(_report(target, result, dry_run=dry_run))
    return 0


def _report(target: str, result: Pruned, *, dry_run: bool) -> Report:
    """Report: which backups stay, by which option, and which are removed."""
    from reput.jobs.report.report import Report
    from reput.jobs.report.table import Table

    rows = [(name, "kept", ", ".join(rules)) for name, rules in result.kept.items()]
    rows += [(name, "would be removed" if dry_run else "removed", "") for name in result.removed]
    return Report(
        title=f"{'What a prune would remove' if dry_run else 'Prune'} of {target}",
        facts={
            "kept backups": len(result.kept),
            "removed backups": len(result.removed),
            "removed objects": result.removed_objects,
            "freed bytes": result.freed_bytes,
            "seconds": result.seconds,
        },
        tables=(Table("backups", ("backup", "what", "kept by"), sorted(rows)),),
        findings=(),
    )
