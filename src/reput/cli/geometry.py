"""Sizes of a store's files for commands: by `--set` where the files do not tell them, else from the files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reput.cli.open_store import open_store
from reput.cli.options import parse_pairs, store_config
from reput.errors import ConfigError, CorruptConsumeQueueError

if TYPE_CHECKING:
    from reput.config.message_store import MessageStoreConfig

#: Keys that `--set` takes in commands that only read.
_INDEX_KEYS = ("max_hash_slot_num", "max_index_num")

IndexNumbers = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="maxHashSlotNum or maxIndexNum, where index files do not tell them.",
        default_factory=list,
        show_default=False,
    ),
]


def index_numbers(settings: Sequence[str]) -> dict[str, Any]:
    """Slots and entries of `--set` for a command that only reads; raises ConfigError for any other key."""
    from reput.config.properties import camel_case, snake_case

    config = store_config(settings, None)
    names = [snake_case(name) for name in parse_pairs(settings, "--set")]
    for name in names:
        if name not in _INDEX_KEYS:
            allowed = " and ".join(map(camel_case, _INDEX_KEYS))
            raise ConfigError(f"--set {camel_case(name)}: this command only reads, and takes {allowed} only")
    return {name: getattr(config, name) for name in names}


def writing_config(store: str, settings: Sequence[str], broker_conf: str | None) -> MessageStoreConfig:
    """`store_config` for a command that writes. Sizes that are not given are those of an existing store's files.

    Raises:
        StoreFormatError: the directory is no store, or its files have several sizes.
        CorruptConsumeQueueError: the only queue file, which would tell the size, was cut.
    """
    from reput.files import DISK
    from reput.log.directory import StoreDirectory, named_folders
    from reput.log.file_sizes import find_writer_sizes, is_queue_size_proven

    config = store_config(settings, broker_conf)
    store = os.path.expanduser(store)
    if not DISK.is_directory(store) or not DISK.list_directory(store):
        return config
    elsewhere = f"{config.store_path_commit_log or ''},{config.read_only_commit_log_store_paths or ''}"
    is_there = config.store_path_commit_log is not None and all(map(DISK.exists, named_folders(elsewhere)))
    directory = StoreDirectory(store, commit_log_path=elsewhere if is_there else None)
    chosen = store_config(settings, broker_conf, find_writer_sizes(directory, config).values)
    is_given = chosen.mapped_file_size_consume_queue == config.mapped_file_size_consume_queue
    if not (is_given or is_queue_size_proven(directory)):
        with open_store(store, read_only=True, config=chosen) as opened:
            if isinstance(opened.recovery.damage, CorruptConsumeQueueError):
                raise opened.recovery.damage
    return chosen
