"""Arguments of the functions of Spark: each is checked by its name when it is given, before Spark is asked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from reput.config.arguments import (
    Check,
    able_to,
    check_call,
    check_flag,
    check_function,
    check_mapping,
    check_path,
    check_text,
    check_time,
    one_of,
    optional,
    refusal,
    whole,
)
from reput.errors import ConfigError


def check_arguments(**given: object) -> None:
    """Raise ConfigError for an argument of a function of Spark that is none, with its name (`check_call`)."""
    check_call(_CHECKS, given)


def paths_of(name: str, paths: Any) -> list[str | os.PathLike[str]]:
    """The paths of an argument that is one, or several; raises ConfigError for what are none."""
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    if isinstance(paths, bytes) or not isinstance(paths, Iterable):
        raise refusal(name, paths, "a path, as a text or a pathlib.Path, or a list of several")
    found = list(paths)
    if not found:
        raise ConfigError(f"{name}: a list without a path")
    for path in found:
        check_path(name, path)
    return found


def _mode(name: str, value: object) -> None:
    one_of("PERMISSIVE", "DROPMALFORMED", "FAILFAST")(name, value.upper() if isinstance(value, str) else value)


def _starting_offsets(name: str, value: object) -> None:
    """One start for all stores, or one for each by its path; the texts are read when the query starts."""
    starts = [value]
    if isinstance(value, Mapping):
        check_mapping(name, value)
        starts = list(value.values())
    for one in starts:
        if isinstance(one, bool) or not isinstance(one, str | int):
            raise refusal(name, value, '"earliest", "latest", a commit log offset, or one of these by store')


_SESSION = able_to("createDataFrame", "a Spark session, as reput.spark.session() starts one")

_CHECKS: dict[str, Check] = {
    "spark": _SESSION,
    "session": _SESSION,
    "frame": able_to("toArrow", "a DataFrame of Spark's"),
    **dict.fromkeys(("left", "right"), check_path),
    **dict.fromkeys(("commit_log_path", "statistics", "output"), optional(check_path)),
    **dict.fromkeys(("begin", "end", "starting_timestamp"), optional(check_time)),
    **dict.fromkeys(("raw_body", "prune", "push_filters", "fail_on_data_loss", "latency", "once"), check_flag),
    **dict.fromkeys(("split_bytes", "max_bytes_per_trigger", "max_rows_per_trigger"), optional(whole(1))),
    "clock_margin_ms": optional(whole(0)),
    "until": one_of("proven", "flushed"),
    "mode": _mode,
    "store": optional(check_text),
    "starting_offsets": optional(_starting_offsets),
    **dict.fromkeys(("watermark", "master", "app_name", "sql"), check_text),
    "settings": optional(check_mapping),
    "bit_maps": optional(check_function),
    "on_batch": check_function,
    "stop": optional(able_to("is_set", "a threading.Event")),
}
