"""`reput delete-expired`: delete expired log files once, now, as a broker's retention does."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from reput.cli.display.output import iso_time, write_fields, write_json, write_table
from reput.cli.open_store import open_store
from reput.cli.options import BrokerConf, Json, Settings, Store, store_config
from reput.counts import counted


def delete_expired(
    store: Store,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted, and why.")] = False,
    settings: Settings,
    broker_conf: BrokerConf = None,
    as_json: Json = False,
) -> None:
    """Delete expired commit log files, and the files of queues and index derived from them.

    A file expires fileReservedTime hours after its last write. On a disk that is fuller than
    diskSpaceCleanForciblyRatio the oldest files are deleted whatever their age. The last file stays. A disk that is
    full to its last byte is no obstacle. Except with --dry-run, no other process may have the store open.

    Examples:
      reput delete-expired /tmp/store --dry-run
      reput delete-expired /tmp/store --set fileReservedTime=48
    """
    from reput.log.directory import StoreDirectory

    config = store_config(settings, broker_conf)
    StoreDirectory(store, commit_log_path=config.store_path_commit_log)  # raises where no store is: none is made
    with open_store(store, read_only=dry_run, config=config, retention=not dry_run) as opened:
        report = opened.delete_expired(dry_run=dry_run)
        before = opened.recovery.deleted_files  # on a full disk, before the start went on
    report = report._replace(
        commit_log_files=[*before, *report.commit_log_files],
        bytes_freed=report.bytes_freed + sum(file.size for file in before),
    )
    if as_json:
        files = [
            {"path": file.path, "size": file.size, "modified_timestamp": file.modified_ms, "reason": file.reason}
            for file in report.commit_log_files
        ]
        write_json({"dry_run": dry_run, **report._asdict(), "commit_log_files": files})
        return
    write_fields(
        {
            "would be deleted" if dry_run else "deleted": counted(len(report.commit_log_files), "commit log file"),
            **(
                {}
                if dry_run
                else {
                    "consume queue files": len(report.consume_queue_files),
                    "index files": len(report.index_files),
                }
            ),
            "bytes": report.bytes_freed,
            "disk used": f"{report.disk_used_percent} %",
        }
    )
    if report.commit_log_files:
        rows = [
            (os.path.basename(file.path), file.size, iso_time(file.modified_ms), file.reason)
            for file in report.commit_log_files
        ]
        write_table(("commit log file", "bytes", "last written", "reason"), rows)
