"""Options of the sink: its own options, and RocketMQ's configuration keys of the store."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case
from reput.errors import ConfigError
from reput.formats.sink_commit import STAGING
from reput.spark.options import OptionTable, parse_options, path_of_text

_DEFAULT_LOCK_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of `df.write.format("reput")` and `df.writeStream.format("reput")`.

    Attributes:
        path: `path`, the store directory, the same on every machine; a missing one is made.
        config: of the store: every configuration key that `MessageStore.open` knows is an option, too.
        staging_path: `stagingPath`, a folder for staged files that every machine sees; default: one below `path`.
        sink_id: `sinkId`, the name under which the store keeps the number of the last batch; a stream needs one.
        batch_id: `batchId`, number of a batch write with a `sinkId`: a repeated number writes nothing.
        on_bad_row: `onBadRow`, treatment of a row that RocketMQ would refuse: fail (the job), or put aside.
        bad_rows_path: `badRowsPath`, the folder of Parquet files for rows put aside.
        lock_timeout_ms: `lockTimeoutMs`, how long to wait while another process has the store open; default: 30 s.
        checkpoint_path: Spark's `checkpointLocation` of a stream, if it is a local path; None: unknown.
    """

    path: str
    config: MessageStoreConfig
    staging_path: str
    sink_id: str | None = None
    batch_id: int | None = None
    on_bad_row: str = "fail"
    bad_rows_path: str | None = None
    lock_timeout_ms: int = _DEFAULT_LOCK_TIMEOUT_MS
    checkpoint_path: str | None = None


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a batch write. Raises ConfigError for an unknown, wrong or missing option."""
    parsed = _parse(options, {**_SINK_OPTIONS, "batchId": ("batch_id", _count_of_text)})
    if (parsed.sink_id is None) != (parsed.batch_id is None):
        raise ConfigError(
            "options sinkId and batchId: a batch write needs both, to be written once however often it is repeated, or "
            "neither"
        )
    return parsed


def stream_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a stream; raises ConfigError as `write_options`."""
    parsed = _parse(options, {**_SINK_OPTIONS, "checkpointLocation": ("checkpoint_path", _local_path_of_text)})
    if parsed.sink_id is None:
        raise ConfigError(
            'option sinkId: a stream needs one, .option("sinkId", "orders-by-hour"): under it the store keeps the '
            "number of the last batch, which must not come twice after a kill"
        )
    return parsed


def _parse(options: Mapping[str, str], own: OptionTable) -> WriteOptions:
    values = parse_options(options, {**_STORE_KEYS, **own}, dict)
    store = {name: values.pop(name) for name, _ in _STORE_KEYS.values() if name in values}
    values["config"] = MessageStoreConfig.from_mapping(store)
    values["path"] = _absolute(values["path"])
    values["staging_path"] = _absolute(values.get("staging_path", os.path.join(values["path"], STAGING)))
    if ("bad_rows_path" in values) != (values.get("on_bad_row") == "aside"):
        raise ConfigError("options onBadRow and badRowsPath: onBadRow=aside needs a badRowsPath, and only it has one")
    if "bad_rows_path" in values:
        path = values["bad_rows_path"] = _absolute(values["bad_rows_path"])
        if os.path.commonpath([path, values["path"]]) == values["path"]:
            raise ConfigError(f"option badRowsPath: {path} lies inside the store; name a folder outside of it")
    return WriteOptions(**values)


def check_sink_id(text: str) -> str:
    """Check the name of a sink; returns it. Raises ValueError with the allowed form of a name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text):
        raise ValueError("no name of up to 100 letters, digits, dots, dashes and underscores")
    return text


def _on_bad_row_of_text(text: str) -> str:
    if text not in ("fail", "aside"):
        raise ValueError("neither fail nor aside")
    return text


def _count_of_text(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("no whole number from 0 on")
    return int(text)


def _local_path_of_text(text: str) -> str | None:
    """Path as by `path_of_text`; None for other file systems."""
    try:
        return path_of_text(text)
    except ValueError:
        return None


_SINK_OPTIONS: OptionTable = {
    "path": ("path", path_of_text),
    "sinkId": ("sink_id", check_sink_id),
    "onBadRow": ("on_bad_row", _on_bad_row_of_text),
    "badRowsPath": ("bad_rows_path", path_of_text),
    "stagingPath": ("staging_path", path_of_text),
    "lockTimeoutMs": ("lock_timeout_ms", _count_of_text),
}
_STORE_KEYS: OptionTable = {camel_case(key.name): (key.name, str) for key in fields(MessageStoreConfig) if key.metadata}


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
