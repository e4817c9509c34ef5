"""Options of a rebuild."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from reput.config.dispatch_rules import BUILD_KEYS, DispatchRules
from reput.config.message_store import MessageStoreConfig
from reput.jobs.arguments import check_arguments
from reput.jobs.job_folder import Option
from reput.log.directory import StoreDirectory

if TYPE_CHECKING:
    from reput.kernels.queues.consume_queue_ext import BitMaps

SPLIT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    """Options of a rebuild. The first eight are `BUILD_KEYS`.

    Sizes that are not given (None) are the most frequent sizes of the store's files, else RocketMQ's defaults; a file
    of another size, as it was cut, is a finding.

    Attributes:
        mapped_file_size_consume_queue: bytes of a consume queue file.
        mapper_file_size_batch_consume_queue: bytes of a batch consume queue file.
        max_hash_slot_num, max_index_num: slots and entries of an index file.
        enable_consume_queue_ext: whether consume queue extensions are built; None: they are if the store has them.
        mapped_file_size_consume_queue_ext: bytes of an extension's file.
        enable_lmq: whether light message queues are built; None: they are if the store has them.
        message_delay_level: the broker's delay levels, by which the units of delayed messages hold the time of
            delivery; None: RocketMQ's.
        bit_maps: gives the bit maps of ext units, for the columns of each scan.
        commit_log_path: as for `read_log`.
        split_bytes: log bytes of a task.
        index: whether an index is built.
        rules: the RocketMQ version whose files are built.
        damaged: treatment of damage in the log: "refuse" ends the rebuild; "skip" passes over it: all whole records
            before and after the damage have units, fillers replace lost units, and the result has each range of the
            log that was passed over. After damage the log goes on at the first record that proves itself together with
            the next two records.
        keep_old: of a rebuild in place: keep the store's former folders as `consumequeue.broken` and so on.
        allow_fewer: of a rebuild in place: whether the new queues may lead to fewer whole records than the store's.
    """

    mapped_file_size_consume_queue: int | None = None
    mapper_file_size_batch_consume_queue: int | None = None
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    enable_consume_queue_ext: bool | None = None
    mapped_file_size_consume_queue_ext: int | None = None
    enable_lmq: bool | None = None
    message_delay_level: str | None = None
    bit_maps: BitMaps | None = None
    commit_log_path: str | os.PathLike[str] | None = None
    split_bytes: int = SPLIT_BYTES
    index: bool = True
    rules: DispatchRules = DispatchRules.V5_3_3
    damaged: Literal["refuse", "skip"] = "refuse"
    keep_old: bool = False
    allow_fewer: bool = False

    def __post_init__(self) -> None:
        check_arguments(**{one.name: getattr(self, one.name) for one in fields(self)})
        MessageStoreConfig.from_mapping(self.config)

    @property
    def config(self) -> dict[str, Any]:
        """The keys of `MessageStoreConfig` that are given, with their values."""
        return {name: value for name in BUILD_KEYS if (value := getattr(self, name)) is not None}

    def of_job(self, directory: StoreDirectory) -> dict[str, Option]:
        """The options that every start of one job must have, with the names of the store and its log folders.

        Not `keep_old`: it counts when the folders are swapped, and a repair goes on with an interrupted rebuild.
        """
        bit_maps = self.bit_maps
        name = None if bit_maps is None else str(getattr(bit_maps, "__qualname__", type(bit_maps).__qualname__))
        return self.config | {
            "store": directory.path, "commit_log_path": ",".join(directory.commit_log_folders), "index": self.index,
            "rules": self.rules.value, "damaged": self.damaged, "bit_maps": name,
        }  # fmt: skip
