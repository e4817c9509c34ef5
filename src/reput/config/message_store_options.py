"""The options of `MessageStore.open`: RocketMQ's keys in snake_case, as `MessageStoreConfig` explains them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from reput.config.dispatch_rules import DispatchRules
    from reput.config.message_store import FlushDiskType


class MessageStoreOptions(TypedDict, total=False):
    """Keys and the types of their values; texts are accepted, too, and names in camelCase, which no checker knows."""

    store_path_root_dir: str
    store_path_commit_log: str | None
    read_only_commit_log_store_paths: str | None
    broker_ip1: str
    listen_port: int
    mapped_file_size_commit_log: int
    mapped_file_size_consume_queue: int
    enable_consume_queue_ext: bool
    mapped_file_size_consume_queue_ext: int
    mapper_file_size_batch_consume_queue: int
    max_hash_slot_num: int
    max_index_num: int
    max_message_size: int
    auto_message_version_on_topic_len: bool
    enabled_append_prop_crc: bool
    message_delay_level: str
    os_page_cache_busy_time_out_mills: int
    enable_multi_dispatch: bool
    enable_lmq: bool
    warm_maped_file_enable: bool
    flush_least_pages_when_warm_maped_file: int
    flush_disk_type: FlushDiskType | Literal["SYNC_FLUSH", "ASYNC_FLUSH"]
    sync_flush_timeout: int
    flush_interval_commit_log: int
    flush_commit_log_least_pages: int
    flush_commit_log_thorough_interval: int
    flush_interval_consume_queue: int
    flush_consume_queue_least_pages: int
    flush_consume_queue_thorough_interval: int
    message_index_enable: bool
    max_msgs_num_batch: int
    dispatch_rules: DispatchRules
    max_transfer_bytes_on_message_in_memory: int
    max_transfer_count_on_message_in_memory: int
    max_transfer_bytes_on_message_in_disk: int
    max_transfer_count_on_message_in_disk: int
    access_message_in_memory_max_ratio: int
    max_filter_message_size: int
    data_read_ahead_enable: bool
    delete_when: str
    file_reserved_time: int
    disk_max_used_space_ratio: int
    clean_file_forcibly_enable: bool
    disk_space_clean_forcibly_ratio: int
    disk_space_warning_level_ratio: int
    clean_resource_interval: int
    delete_commit_log_files_interval: int
    delete_consume_queue_files_interval: int
    delete_file_batch_max: int
    timer_wheel_enable: bool
    timer_precision_ms: int
    timer_max_delay_sec: int
    timer_roll_window_slot: int
    timer_congest_num_each_slot: int
    timer_flush_interval_ms: int
    mapped_file_size_timer_log: int
    check_crc_on_recover: bool
    force_verify_prop_crc: bool
