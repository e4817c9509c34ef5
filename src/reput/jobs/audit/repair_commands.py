"""Commands that mend what an audit has found: a repair in place, or a salvage if records follow damage."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable

from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case
from reput.files import DISK
from reput.formats.paths import COMMIT_LOG
from reput.jobs.audit.files import StoreListing
from reput.jobs.audit.lost_ranges import lost_range
from reput.jobs.findings import Commands, Finding, is_of_log
from reput.log.directory import StoreDirectory

#: Settings of an audit that a repair takes, too.
_SETTINGS = ("max_hash_slot_num", "max_index_num", "message_delay_level", "message_index_enable", "file_reserved_time")


def commands_for(
    directory: StoreDirectory,
    config: MessageStoreConfig,
    listing: StoreListing,
    findings: Iterable[Finding],
    log_end: int,
) -> Commands:
    """Commands for a store, as a shell takes them.

    Args:
        config: of the audit: settings that were given are in the commands.
        log_end: end offset of the last record that the audit has found.
    """
    words = ["reput", "repair", directory.path]
    if directory.commit_log_folders != (os.path.join(directory.path, COMMIT_LOG),):
        words += ["--commit-log-path", ",".join(directory.commit_log_folders)]
    for name in _SETTINGS:
        value = getattr(config, name)
        if config.is_given(name):
            words += ["--set", f"{camel_case(name)}={str(value).lower() if isinstance(value, bool) else value}"]
    repair = shlex.join([*words, "--apply"])
    salvage = shlex.join([*words, "--salvage", f"{directory.path}.salvaged", "--apply"])
    is_broken = any(_needs_salvage(finding, directory, listing, log_end) for finding in findings)
    return Commands(salvage if is_broken else repair, salvage)


def _needs_salvage(finding: Finding, directory: StoreDirectory, listing: StoreListing, log_end: int) -> bool:
    """Whether a repair would leave the log as it is, since records are after the damage."""
    lost = lost_range(finding, listing)
    if lost is not None:
        return finding.code == "log-file-missing" or lost[0] < log_end
    if finding.code != "file-size" or not is_of_log(finding, directory.commit_log_folders):
        return False
    file = next((file for file in listing.log_files if file.path == finding.path), None)
    return file is None or DISK.file_size(file.path) > file.size or file.end_offset <= log_end
