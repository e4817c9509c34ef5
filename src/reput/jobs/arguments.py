"""Arguments of jobs: each is checked by its name when it is given, and means the same in all jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from reput.config.arguments import (
    MOST_LONG,
    Check,
    able_to,
    an_object_of,
    check_call,
    check_flag,
    check_function,
    check_mapping,
    check_path,
    check_text,
    check_texts,
    one_of,
    optional,
    whole,
)
from reput.config.dispatch_rules import DispatchRules
from reput.config.message_store import MessageStoreConfig
from reput.log.object_storage import check_file_layer

T = TypeVar("T")


def check_arguments(**given: object) -> None:
    """Raise ConfigError for an argument of a job that is none, with its name (`check_call`)."""
    check_call(_CHECKS, given)


def chosen_options(given: T | None, kind: type[T]) -> T:
    """The options of a job, or its defaults; raises ConfigError for what are none."""
    optional(an_object_of(kind))("options", given)
    return kind() if given is None else given


def _one(names: str, check: Check) -> dict[str, Check]:
    return dict.fromkeys(names.split(), check)


_CHECKS: Mapping[str, Check] = {
    **_one("path store_path left_path right_path target", check_path),
    **_one("commit_log_path work_dir output", optional(check_path)),
    "runner": able_to("run", "a runner, as LocalRunner()"),
    "files": check_file_layer,
    "progress": optional(check_function),
    "on_batch": optional(check_function),
    "bit_maps": optional(check_function),
    "wait": check_function,
    **_one("message_index_enable force_verify_prop_crc index keep_old allow_fewer link dry_run apply", check_flag),
    **_one("latency check_crc fail_on_data_loss strict", check_flag),
    **_one("split_bytes commit_bytes target_file_bytes", whole(1)),
    **_one("largest compact", whole(most=MOST_LONG)),
    "max_rows": whole(0),
    **_one("keep_last keep_hourly keep_daily keep_weekly keep_monthly keep_yearly", whole(0)),
    **_one("file_reserved_time until_offset clock_margin_ms", optional(whole(0))),
    "until_ms": optional(whole()),
    "threads": optional(whole(1)),
    **_one("decode namespace", check_text),
    **_one("backup catalog topic", optional(check_text)),
    "ignore": check_texts,
    "damaged": one_of("refuse", "skip"),
    "rules": an_object_of(DispatchRules),
    "config": optional(an_object_of(MessageStoreConfig)),
    "sizes": optional(check_mapping),
}
