"""MessageStoreConfig: the RocketMQ keys that the store uses, with reput's defaults (`MessageStoreConfig`).

A field is RocketMQ's key in snake_case, misspellings included; only `dispatch_rules` is reput's own. RocketMQ's names
lack units: `metadata["unit"]` has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from reput.config.dispatch_rules import DispatchRules
from reput.config.properties import split_folders
from reput.config.rocketmq_config import RocketmqConfig, config_key
from reput.config.rocketmq_keys import OF_BROKER, UnusedKey
from reput.errors import ConfigError, MessageIllegalError
from reput.formats import batch_consume_queue, consume_queue, consume_queue_ext, index_file, timer_log, timer_wheel
from reput.formats.hosts import THIS_MACHINE, encode_host
from reput.formats.java import INT32_MAX

__all__ = ["OS_PAGE_SIZE", "SMALL_FILES", "FlushDiskType", "MessageStoreConfig"]

#: Bytes of a page, for the keys that count pages, on every machine (`MappedFile.OS_PAGE_SIZE`).
OS_PAGE_SIZE = 4096

#: Sizes of files with which a store of one topic takes a megabyte; a message may then have half of one.
SMALL_FILES = {
    "mapped_file_size_commit_log": 512 << 10,
    "mapped_file_size_consume_queue": 1_000 * consume_queue.UNIT_SIZE,
    "mapper_file_size_batch_consume_queue": 1_000 * batch_consume_queue.BATCH_UNIT_SIZE,
    "mapped_file_size_consume_queue_ext": 64 << 10,
    "max_hash_slot_num": 2_000,
    "max_index_num": 10_000,
}

#: A last label with a letter: the C library takes 10.1 for an address.
_HOST_NAME = re.compile(r"([A-Za-z0-9_-]+\.)*[A-Za-z0-9_-]*[A-Za-z][A-Za-z0-9_-]*\.?")
_DELAY_LEVEL = re.compile(r"([0-9]+)([smhd])")
_DELAY_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class FlushDiskType(StrEnum):
    """Whether a put is acknowledged after the sync of its bytes or before."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStoreConfig(RocketmqConfig):
    """Configuration of a store; immutable. Each field also accepts text ("4096", "true").

    Raises ConfigError for a value of the wrong type or outside its bounds.
    """

    #: Keys of a `reput broker` that RocketMQ does not have.
    OTHER_KEYS: ClassVar[tuple[UnusedKey, ...]] = (
        UnusedKey("haSlaveAddresses", "", OF_BROKER), UnusedKey("grpcServerPort", "", OF_BROKER),
    )  # fmt: skip

    # where
    store_path_root_dir: str = config_key(
        "~/store", "The folder of the store; `~` stands for the home of the user.", local=True
    )
    store_path_commit_log: str | None = config_key(
        None,
        "The folder of the commit log, if it is not <root>/commitlog; a comma separates several, on several disks, "
        "which take the files in turn.",
        local=True,
    )
    read_only_commit_log_store_paths: str | None = config_key(
        None, "Folders of the commit log that get no new file; a comma separates them.", local=True
    )
    broker_ip1: str = config_key(
        THIS_MACHINE,
        "Address of the broker for clients, the store host in records: IPv4, IPv6, or a host name.",
        local=True,
        rocketmq="the machine's address",
    )
    listen_port: int = config_key(10911, "The port that a record names as its store host.", maximum=65_535)

    # the files' geometry
    mapped_file_size_commit_log: int = config_key(
        1 << 30, "Size of one commit log file.", unit="bytes", minimum=4096, frozen=True
    )
    mapped_file_size_consume_queue: int = config_key(
        consume_queue.DEFAULT_FILE_SIZE,
        f"Size of one consume queue file, rounded up to whole units of {consume_queue.UNIT_SIZE} bytes.",
        unit="bytes",
        minimum=1,
        maximum=INT32_MAX - INT32_MAX % consume_queue.UNIT_SIZE,
        frozen=True,
    )
    enable_consume_queue_ext: bool = config_key(
        False, "Write tags code, store time and bit map of each message to an extension beside its queue."
    )
    mapped_file_size_consume_queue_ext: int = config_key(
        consume_queue_ext.DEFAULT_FILE_SIZE,
        "Size of one file of a consume queue extension.",
        unit="bytes",
        minimum=64,
        frozen=True,
    )
    mapper_file_size_batch_consume_queue: int = config_key(
        batch_consume_queue.DEFAULT_FILE_SIZE,
        "Size of one batch consume queue file (topics with queue.type=BatchCQ), rounded up to whole units of "
        f"{batch_consume_queue.BATCH_UNIT_SIZE} bytes.",
        unit="bytes",
        minimum=1,
        maximum=INT32_MAX - INT32_MAX % batch_consume_queue.BATCH_UNIT_SIZE,
        frozen=True,
    )
    max_hash_slot_num: int = config_key(
        index_file.DEFAULT_HASH_SLOT_NUM, "Hash slots of one index file.", unit="slots", minimum=1, frozen=True
    )
    max_index_num: int = config_key(
        index_file.DEFAULT_INDEX_NUM,
        "Entries of one index file, the unused entry 0 counted.",
        unit="entries",
        minimum=2,
        frozen=True,
    )

    # putting
    max_message_size: int = config_key(4_194_304, "The largest stored body.", unit="bytes", minimum=10)
    auto_message_version_on_topic_len: bool = config_key(
        True, "Write a topic of more than 127 bytes as a V2 record; otherwise it is refused."
    )
    enabled_append_prop_crc: bool = config_key(
        False, "End each record's properties with a CRC of the whole record, `__CRC32#` (RocketMQ 5 alone reads it)."
    )
    message_delay_level: str = config_key(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", "The delays of the levels 1, 2, 3, ..."
    )
    os_page_cache_busy_time_out_mills: int = config_key(
        1000, "A put that waits this long for the append lock, while nothing is appended, is refused.", unit="ms"
    )
    enable_multi_dispatch: bool = config_key(
        False, "Give a message a unit in each further queue that its property INNER_MULTI_DISPATCH names."
    )
    enable_lmq: bool = config_key(
        False,
        "With enableMultiDispatch: light message queues, whose names begin with %LMQ%; a put then gives its "
        "message an offset in each that it names.",
    )
    warm_maped_file_enable: bool = config_key(
        False, "Fill a new commit log file with zeros ahead: slower to roll, steadier to write."
    )
    flush_least_pages_when_warm_maped_file: int = config_key(
        4096, "Pages between two syncs while a file is warmed under SYNC_FLUSH.", unit="pages", minimum=1
    )

    # flushing
    flush_disk_type: FlushDiskType = config_key(
        FlushDiskType.SYNC_FLUSH,
        "SYNC_FLUSH: an acknowledged message survives a power cut. ASYNC_FLUSH: it survives a crash of the process; a "
        "power cut may lose what came after the last sync.",
        rocketmq=FlushDiskType.ASYNC_FLUSH,
    )
    sync_flush_timeout: int = config_key(5000, "How long a put waits for its sync: then FLUSH_DISK_TIMEOUT.", unit="ms")
    flush_interval_commit_log: int = config_key(500, "Time between two syncs under ASYNC_FLUSH.", unit="ms", minimum=1)
    flush_commit_log_least_pages: int = config_key(4, "Fewer unsynced pages than this wait for more.", unit="pages")
    flush_commit_log_thorough_interval: int = config_key(
        10_000, "After this time even a single byte is synced: what a power cut may lose.", unit="ms"
    )
    flush_interval_consume_queue: int = config_key(
        1000, "Time between two syncs of the consume queues.", unit="ms", minimum=1
    )
    flush_consume_queue_least_pages: int = config_key(2, "Fewer unsynced pages than this wait for more.", unit="pages")
    flush_consume_queue_thorough_interval: int = config_key(
        60_000, "After this time every queue is synced and the checkpoint moves: what a recovery scans.", unit="ms"
    )

    # the index
    message_index_enable: bool = config_key(True, "Keep index files, which answer queries by key.")
    max_msgs_num_batch: int = config_key(64, "Messages in a broker's answer to a query by key.", minimum=1)

    dispatch_rules: DispatchRules = config_key(
        DispatchRules.V5_3_3,
        "reput's own key: the RocketMQ version whose queues, index and batches are written. 5.5.0 and 5.5.1 index "
        "tags too; 4.9.7 gives recovered units of delayed messages the hash of the tags.",
    )

    # getting
    max_transfer_bytes_on_message_in_memory: int = config_key(
        262_144, "Bytes that one get returns at most from memory.", unit="bytes"
    )
    max_transfer_count_on_message_in_memory: int = config_key(
        32, "Messages that one get returns at most from memory.", unit="messages", minimum=1
    )
    max_transfer_bytes_on_message_in_disk: int = config_key(
        65_536, "Bytes that one get returns at most from disk.", unit="bytes"
    )
    max_transfer_count_on_message_in_disk: int = config_key(
        8, "Messages that one get returns at most from disk.", unit="messages", minimum=1
    )
    access_message_in_memory_max_ratio: int = config_key(
        40, "The newest part of the log that counts as in memory, as a share of the machine's memory.", unit="percent",
        maximum=100,
    )  # fmt: skip
    max_filter_message_size: int = config_key(
        16_000,
        "Bytes of consume queue units that one get with a tag filter looks through.",
        unit="bytes",
        minimum=consume_queue.UNIT_SIZE,
    )

    data_read_ahead_enable: bool = config_key(
        True, "Let the system read ahead in the commit log; off for random reads of a log that the memory cannot hold."
    )

    # retention
    delete_when: str = config_key("04", "The hours of the local day in which expired files are deleted: 04, or 04;16.")
    file_reserved_time: int = config_key(
        72, "A commit log file that was last written to longer ago than this has expired.", unit="hours"
    )
    disk_max_used_space_ratio: int = config_key(
        75, "On a disk fuller than this, expired files are deleted at any hour; 10 to 95.", unit="percent"
    )
    clean_file_forcibly_enable: bool = config_key(
        True, "On a disk fuller than diskSpaceCleanForciblyRatio, delete files that have not expired, too."
    )
    disk_space_clean_forcibly_ratio: int = config_key(
        85, "On a disk fuller than this, the oldest files are deleted whatever their age; 30 to 85.", unit="percent"
    )
    disk_space_warning_level_ratio: int = config_key(
        90, "On a disk fuller than this, puts are refused; 35 to 90.", unit="percent"
    )
    clean_resource_interval: int = config_key(10_000, "Time between two runs of the retention.", unit="ms", minimum=1)
    delete_commit_log_files_interval: int = config_key(100, "Pause after a deleted commit log file.", unit="ms")
    delete_consume_queue_files_interval: int = config_key(100, "Pause after a queue that lost files.", unit="ms")
    delete_file_batch_max: int = config_key(
        10, "Commit log files that one run deletes at most.", unit="files", minimum=1
    )

    # messages with a time
    timer_wheel_enable: bool = config_key(True, "Take messages with a time; POP needs it, too.")
    timer_precision_ms: int = config_key(
        1000, "The length of one slot of the timer wheel; it cannot change while messages wait.", unit="ms", minimum=1,
        maximum=10_000,
    )  # fmt: skip
    timer_max_delay_sec: int = config_key(259_200, "The longest wait of a message with a time.", unit="s", minimum=1)
    timer_roll_window_slot: int = config_key(
        172_800, "A message that is due in more slots than this is put back into the log on its way.", unit="slots"
    )
    timer_congest_num_each_slot: int = config_key(
        INT32_MAX,
        "Number of messages in one slot from which on some are refused; from twice as many on, all are.",
        minimum=1,
    )
    timer_flush_interval_ms: int = config_key(
        1000, "Time between two syncs of timer log and wheel.", unit="ms", minimum=1
    )
    mapped_file_size_timer_log: int = config_key(
        timer_log.DEFAULT_FILE_SIZE, "Size of one timer log file.", unit="bytes", minimum=128, frozen=True
    )

    # recovery
    check_crc_on_recover: bool = config_key(True, "Check the CRC of each body that a recovery reads.")
    force_verify_prop_crc: bool = config_key(
        False, "A recovery takes a record without a CRC of the whole record for damaged, too."
    )

    def __post_init__(self) -> None:
        RocketmqConfig.__post_init__(self)  # no super(): a dataclass with slots is another class than this body's
        for name, unit in (
            ("mapped_file_size_consume_queue", consume_queue.UNIT_SIZE),
            ("mapper_file_size_batch_consume_queue", batch_consume_queue.BATCH_UNIT_SIZE),
        ):
            object.__setattr__(self, name, -(-getattr(self, name) // unit) * unit)
        folders = split_folders(self.store_path_commit_log or "")
        read_only = split_folders(self.read_only_commit_log_store_paths or "")
        if self.store_path_commit_log is not None and set(folders) <= set(read_only):
            raise ConfigError(
                f"storePathCommitLog={self.store_path_commit_log}: names no folder that is not one of "
                f"readOnlyCommitLogStorePaths={self.read_only_commit_log_store_paths}, so no file could be made"
            )
        index_file_size = index_file.file_size(self.max_hash_slot_num, self.max_index_num)
        if index_file_size > INT32_MAX:
            raise ConfigError(
                f"maxHashSlotNum and maxIndexNum: an index file would have {index_file_size} bytes, "
                f"expected at most {INT32_MAX}"
            )
        _ = self.delay_levels_ms, self.delete_hours  # raise ConfigError for wrong texts
        if not self._names_a_host():
            raise ConfigError(
                f"brokerIP1={self.broker_ip1}: expected an IPv4 or IPv6 address, as 10.0.0.1 or 2001:db8::1, or a host "
                "name, as broker-a.example.org"
            )

    def _names_a_host(self) -> bool:
        if _HOST_NAME.fullmatch(self.broker_ip1):
            return True
        try:
            encode_host(self.store_host)
        except MessageIllegalError:
            return False
        return True

    @property
    def store_host(self) -> str:
        """Store host of this store's records: `10.0.0.1:10911`, `[2001:db8::1]:10911`, `broker-a.example.org:10911`.

        Records have the address of a name (`reput.log.store_host`).
        """
        address = f"[{self.broker_ip1}]" if ":" in self.broker_ip1 else self.broker_ip1
        return f"{address}:{self.listen_port}"

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Delays of the levels 1, 2, 3, ..., ms (`ScheduleMessageService.parseDelayLevel`)."""
        levels = []
        for text in self.message_delay_level.split():
            match = _DELAY_LEVEL.fullmatch(text)
            if match is None:
                raise ConfigError(
                    f"messageDelayLevel: {text!r} is no delay; write a number and s, m, h or d: 30s 5m 2h"
                )
            levels.append(int(match[1]) * _DELAY_UNIT_MS[match[2]])
        return tuple(levels)

    @property
    def timer_roll_window_ms(self) -> int:
        """The longest wait in one slot of the wheel, ms (`TimerMessageStore.timerRollWindowSlots`)."""
        most = timer_wheel.SLOTS_TOTAL - timer_wheel.BLANK_SLOTS
        slots = self.timer_roll_window_slot if 2 <= self.timer_roll_window_slot <= most else most
        return min(slots, INT32_MAX // self.timer_precision_ms) * self.timer_precision_ms

    @property
    def delete_hours(self) -> frozenset[int]:
        """Hours of `deleteWhen` (`UtilAll.isItTimeToDo`)."""
        hours = [text.strip() for text in self.delete_when.split(";") if text.strip()]
        if not hours or not all(re.fullmatch("[0-9]{1,2}", hour) and int(hour) < 24 for hour in hours):
            raise ConfigError(
                f"deleteWhen={self.delete_when}: expected hours from 00 to 23 with ; between: 04 or 04;16"
            )
        return frozenset(map(int, hours))
