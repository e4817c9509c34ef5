"""Options that several commands share, and the parsers of their texts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reput.errors import ConfigError

if TYPE_CHECKING:
    from reput.config.broker import BrokerConfig
    from reput.config.message_store import MessageStoreConfig
    from reput.jobs.runner import Runner

#: Limit of bytes of one pull by `get`.
_MAX_BYTES = 256 << 20


def check_path(path: str | None) -> str | None:
    """Refuse an empty path, as an unset shell variable must not mean the current folder; `~` is the home folder.

    The shell does not replace it in `--output=~/x`, and nobody does in a file of defaults.
    """
    if path == "":
        raise typer.BadParameter("an empty path; the current folder is .")
    return None if path is None else os.path.expanduser(path)


def check_paths(paths: list[str]) -> list[str]:
    """`check_path` for several."""
    return [found for path in paths if (found := check_path(path)) is not None]


Store = Annotated[
    str,
    typer.Argument(metavar="STORE", callback=check_path, help="The store's directory (storePathRootDir)."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text; times in ms since 1970 UTC.")]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", help="Logs on stderr from this level on."),
]
AllowFewer = Annotated[
    bool,
    typer.Option("--allow-fewer", help="Swap queues in place even if they lead to fewer whole records than before."),
]
CommitLogPath = Annotated[
    str | None,
    typer.Option(
        "--commit-log-path",
        metavar="DIR[,DIR]",
        callback=check_path,
        help="The commit log's folder or folders, if it is not STORE/commitlog.",
    ),
]
Keys = Annotated[
    list[str],
    typer.Option("--key", metavar="KEY", help="A key; may be repeated.", default_factory=list, show_default=False),
]
Properties = Annotated[
    list[str],
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="A user property; may be repeated.",
        default_factory=list,
        show_default=False,
    ),
]
Settings = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A key of the configuration, by RocketMQ's name; may be repeated.",
        default_factory=list,
        show_default=False,
    ),
]
BrokerConf = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="FILE", callback=check_path, help="RocketMQ's broker.conf: keys of the configuration."
    ),
]


def check_output_file(path: str | None) -> str | None:
    """Refuse an output file that cannot be written, before a job that may take hours, or must not be replaced."""
    from reput.files import DISK
    from reput.formats.paths import COMMIT_LOG

    path = check_path(path)
    if path is not None:
        if DISK.is_directory(path):
            raise typer.BadParameter(f"{path!r} is a folder; name a file")
        if DISK.exists(path) and not os.path.isfile(path):
            raise typer.BadParameter(f"{path!r} is a device or a pipe, which a file would replace; name a file")
        folder = os.path.dirname(os.path.abspath(path))
        if not DISK.is_directory(folder):
            while (parent := os.path.dirname(folder)) != folder:
                folder = parent
                if DISK.is_directory(os.path.join(folder, COMMIT_LOG)):
                    raise typer.BadParameter(f"{path!r} lies inside the store {folder}; name a file outside of it")
            raise typer.BadParameter(f"{path!r}: its folder does not exist; make it first")
        if not DISK.may_write(folder):
            raise typer.BadParameter(f"{path!r}: nothing can be written in its folder; name another one")
    return path


ReportFile = Annotated[
    str | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        callback=check_output_file,
        help="Also write an HTML report with plots; an existing file is replaced.",
    ),
]
WorkDir = Annotated[
    str | None,
    typer.Option(
        "--work-dir",
        metavar="DIR",
        callback=check_path,
        help="A folder for finished tasks: after a kill the same command continues there.",
    ),
]


def parse_time(text: str) -> int:
    """Parse ISO 8601 (without an offset: UTC) or milliseconds since 1970 UTC to milliseconds.

    What is finer than a millisecond is cut off, so that no `--end` or `--until` takes what was stored after it.
    """
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time; write 2026-11-21, 2026-11-21T07:13:00Z, or milliseconds since 1970 UTC"
        ) from None
    since_1970 = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    return since_1970 // timedelta(milliseconds=1)


def parse_start(text: str) -> Literal["first", "last"] | datetime:
    """Parse where to begin in a queue: `first`, `last`, or a time as of `parse_time`."""
    if text == "first":
        return "first"
    if text == "last":
        return "last"
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=parse_time(text))
    except OverflowError:
        raise typer.BadParameter(
            f"{text!r}: expected a time of the years 1 to 9999; milliseconds since 1970 have 13 digits today"
        ) from None


MaxFindings = Annotated[
    int,
    typer.Option("--max-findings", metavar="N", min=0, help="Maximum length of a list; 0: all. --json has all."),
]
#: Default of `--max-findings`.
MAX_FINDINGS = 40
Topics = Annotated[str | None, typer.Option("--topics", metavar="LIST", help="Only these topics: orders,payments.")]
StoredFrom = Annotated[
    int | None, typer.Option("--begin", metavar="TIME", parser=parse_time, help="Stored at this time or later.")
]
StoredUntil = Annotated[
    int | None, typer.Option("--end", metavar="TIME", parser=parse_time, help="Stored at this time or earlier.")
]
RunnerName = Annotated[
    Literal["auto", "local", "spark"], typer.Option("--runner", help="Run the job in threads here, or on Spark.")
]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Spark's master: local[4], spark://host:7077.")
]


Interval = Annotated[
    float, typer.Option("--interval", min=0, metavar="SECONDS", help="With --follow: time between two runs.")
]


def check_times(begin: int | None, end: int | None) -> None:
    """Raise ConfigError for a time range that ends before it begins."""
    if begin is not None and end is not None and end < begin:
        raise ConfigError("--end is a time before --begin: the range is empty")


def parse_pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Parse `name=value` texts to a mapping; raises ConfigError for a text without `=`, and a name given twice."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ConfigError(f"{option} {text!r}: write name=value")
        if name in pairs:
            raise ConfigError(f"{option} {text!r}: {name} is given twice")
        pairs[name] = value
    return pairs


def parse_list(text: str | None) -> list[str] | None:
    """Parse comma separated names; None if the option is not given. Raises ConfigError for an empty list."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"{text!r}: an empty list; name at least one, or leave the option out for all")
    return names


def store_config(settings: Sequence[str], broker_conf: str | None) -> MessageStoreConfig:
    """Configuration from reput's defaults, then broker.conf, then `--set`; the last one wins.

    Raises ConfigError for a name that RocketMQ does not have, and StoreError for a file that cannot be read.
    """
    from reput.config.message_store import MessageStoreConfig
    from reput.files import DISK

    base = None
    if broker_conf is not None:
        text = DISK.read_bytes(broker_conf).decode("utf-8", "replace")
        base = MessageStoreConfig.from_broker_conf(text, broker_conf)
    return MessageStoreConfig.from_mapping(parse_pairs(settings, "--set"), base)


def broker_and_store_config(
    settings: Sequence[str], broker_conf: str | None, more: Mapping[str, str] | None = None
) -> tuple[BrokerConfig, MessageStoreConfig, tuple[str, ...]]:
    """Configurations of a broker and of its store, and the keys that neither uses; over them the keys in `more`.

    Else as `store_config`.
    """
    from reput.config.broker import BrokerConfig, broker_configs
    from reput.config.message_store import MessageStoreConfig
    from reput.files import DISK

    base, store_base = None, None
    if broker_conf is not None:
        text = DISK.read_bytes(broker_conf).decode("utf-8", "replace")
        base = BrokerConfig.from_broker_conf(text, broker_conf)
        store_base = MessageStoreConfig.from_broker_conf(text, broker_conf)
    return broker_configs(parse_pairs(settings, "--set") | dict(more or {}), base=base, store_base=store_base)


def job_arguments(settings: Sequence[str], keys: Sequence[str], job: str) -> dict[str, Any]:
    """Values of `--set` as arguments of `job`, "an audit", which takes only `keys`; raises ConfigError for others."""
    from reput.config.message_store import MessageStoreConfig
    from reput.config.properties import snake_case

    pairs = parse_pairs(settings, "--set")
    config = MessageStoreConfig.from_mapping(pairs)
    names = [snake_case(name) for name in pairs]
    for name in names:
        if name not in keys:
            raise ConfigError(f"--set {name}: {job} takes {', '.join(keys)} only")
    return {name: getattr(config, name) for name in names}


def reading_config(
    commit_log_path: str | None, max_num: int = 32, numbers: Mapping[str, Any] = MappingProxyType({})
) -> MessageStoreConfig:
    """Configuration for reading: a command's `--max-num` limits a pull, not the limits of a broker.

    `numbers` are slots and entries from `index_numbers`.
    """
    from reput.config.message_store import MessageStoreConfig

    return MessageStoreConfig(
        **numbers,
        store_path_commit_log=commit_log_path,
        max_transfer_count_on_message_in_memory=max_num,
        max_transfer_count_on_message_in_disk=max_num,
        max_transfer_bytes_on_message_in_memory=_MAX_BYTES,
        max_transfer_bytes_on_message_in_disk=_MAX_BYTES,
    )


def choose_runner(
    name: Literal["auto", "local", "spark"], master: str | None, store: str, commit_log_path: str | None
) -> Runner:
    """Choose the runner by `--runner` and `--master` for a store; raises ConfigError for an unknown runner."""
    from reput.errors import StoreFormatError
    from reput.log.directory import StoreDirectory
    from reput.spark import runner

    directory = StoreDirectory(store, commit_log_path=commit_log_path)
    try:
        total_bytes = sum(file.size for file in directory.log_files())
    except StoreFormatError:  # the job raises it, or can read such a log
        total_bytes = 0
    return runner.choose_runner(name, total_bytes=total_bytes, master=master)
