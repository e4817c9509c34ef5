"""Options of the format `reput`. Values are texts, and names ignore case, as everywhere in Spark."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from reput.config.arguments import check_path
from reput.config.properties import split_folders
from reput.errors import ConfigError

T = TypeVar("T")

#: Option -> field of a dataclass, and parser of its text; the parser raises ValueError with what the text is instead.
OptionTable = Mapping[str, tuple[str, Callable[[str], object]]]


#: The option that makes the format read and write at brokers (`reput.spark.wire`).
NAMESRV = "namesrv"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of `spark.read.format("reput")`, as the arguments of `reput.read_log` if it has them.

    Attributes:
        path: `path`, the store directory, or a pattern of several; `paths`, a JSON list of both (of load([...])). These
            and other paths may be URIs, `file:/path`.
        commit_log_path: `commitLogPath`, the commit log's folder if it is not below `path`, or its folders,
            comma separated.
        topics: `topics`, comma separated, or a JSON list of texts.
        keys: `keys`, written as `topics`.
        begin, end: `begin` and `end`, ms since 1970 or an ISO 8601 time with its zone.
        raw_body: `rawBody`, true or false.
        split_bytes: `splitBytes`, the log bytes of a task; None: as many as make a task for each processor.
        store: `store`, the value of the column `store`; None: the directory's name.
        until: `until`, proven or flushed.
        mode: `mode`, PERMISSIVE, DROPMALFORMED or FAILFAST.
        prune: `prune`, true or false: whether ranges of the log without wanted rows are left out.
        statistics: `statistics`, a folder outside of the stores where times of zones of the log are kept.
        clock_margin_ms: `clockMargin`, ms: the user's promise that no store timestamp is earlier than a timestamp
            before it by more than this.
        push_filters: `pushFilters`, true or false: whether filters prune; the user's promise that only one query reads
            this DataFrame.
    """

    path: str | tuple[str, ...]
    commit_log_path: str | None = None
    topics: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    begin: datetime | int | None = None
    end: datetime | int | None = None
    raw_body: bool = False
    split_bytes: int | None = None
    store: str | None = None
    until: str = "proven"
    mode: str = "PERMISSIVE"
    prune: bool = True
    statistics: str | None = None
    clock_margin_ms: int | None = None
    push_filters: bool = False


def parse_options(options: Mapping[str, str], table: OptionTable, into: type[T]) -> T:
    """Parse the options that Spark passes to a reader or a writer.

    Args:
        options: text by option name.
        table: the known options.
        into: the dataclass to make, with the field names of the table; one of them is `path`.

    Raises ConfigError for an unknown option (with the nearest name, or all names), for a wrong value, and if `path`
    is missing.
    """
    values = option_values(options, table)
    if "path" not in values:
        raise ConfigError(
            "the format reput needs the directory of a store: load(path), save(path) or start(path); in SQL, CREATE "
            "TEMPORARY VIEW ... USING reput OPTIONS (path '...'), for Spark hides a table's options from Python "
            "sources. Or it needs brokers: option namesrv"
        )
    return into(**values)


def option_values(options: Mapping[str, str], table: OptionTable) -> dict[str, Any]:
    """Values of options by the names of their fields; raises ConfigError for an unknown option and a wrong value."""
    by_lower_name = {name.lower(): name for name in table}
    values: dict[str, Any] = {}
    for given, text in options.items():
        name = by_lower_name.get(given.lower())
        if name is None:
            nearest = difflib.get_close_matches(given.lower(), by_lower_name, 1)
            hint = f"did you mean {by_lower_name[nearest[0]]!r}?" if nearest else f"here it has {', '.join(table)}"
            raise ConfigError(f"the format reput has no option {given!r}; {hint}")
        attribute, parse = table[name]
        try:
            values[attribute] = parse(text)
        except ValueError as error:
            raise ConfigError(f"option {name}: {text!r} is {error}") from None
    return values


def is_wire(options: Mapping[str, str]) -> bool:
    """Whether options are of brokers, not of a directory."""
    return any(name.lower() == NAMESRV for name in options)


def option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Texts of option values, as `parse_options` reads them, by option name; None is left out."""
    texts = {}
    for name, value in options.items():
        if isinstance(value, bool):
            texts[name] = str(value).lower()
        elif isinstance(value, datetime):
            texts[name] = value.isoformat()
        elif isinstance(value, Iterable) and not isinstance(value, str):
            texts[name] = json.dumps(list(value))
        elif value is not None:
            texts[name] = str(value)
    return texts


def path_of_text(text: str) -> str:
    """Path as it is, or the path of a URI such as `file:/path`. Escapes are not decoded, as in Hadoop."""
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", text):
        return text
    scheme, _, path = text.partition(":")
    if scheme.lower() != "file":
        raise ValueError(
            f"on the file system {scheme}, and a store is files that are read and written in place: mount it on every "
            "node and name the folder there, or copy the store to a disk"
        )
    if path.startswith("//"):
        host, slash, path = path[2:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise ValueError(f"on a host {host!r}; write file:///path")
        path = f"/{path}"
    return path


def paths_of_text(text: str) -> tuple[str, ...]:
    """List of paths, as `list_of_text` and `path_of_text`."""
    return tuple(map(path_of_text, list_of_text(text)))


def absolute_path(path: str | os.PathLike[str], name: str = "path") -> str:
    """Absolute path of an argument that is a path or a URI. Raises ConfigError for no path, and other file systems."""
    check_path(name, path)
    try:
        return os.path.abspath(os.path.expanduser(path_of_text(os.fspath(path))))
    except ValueError as error:
        raise ConfigError(f"{os.fspath(path)!r} is {error}") from None


def absolute_folders(paths: str | os.PathLike[str] | None) -> str | None:
    """Absolute paths of one or more folders of a commit log, comma separated."""
    return None if paths is None else ",".join(map(absolute_path, split_folders(os.fspath(paths))))


def count_of_text(text: str) -> int:
    """Number above 0."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ValueError("no number above 0")
    return int(text)


def list_of_text(text: str) -> tuple[str, ...]:
    """List of texts: comma separated, or a JSON list (for texts that contain a comma)."""
    if not text.startswith("["):
        return tuple(item.strip() for item in text.split(","))
    try:
        items = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON list: {error}") from None
    if not all(isinstance(item, str) for item in items):
        raise ValueError("no list of texts")
    return tuple(items)


def time_of_text(text: str) -> datetime | int:
    """Milliseconds since 1970, or an ISO 8601 time with its zone."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("neither milliseconds since 1970 nor a time such as 2026-01-31T12:00:00Z") from None
    if time.tzinfo is None:
        raise ValueError("a time without its zone; add Z or +00:00")
    return time


def boolean_of_text(text: str) -> bool:
    """True or false, in any case."""
    if text.lower() not in ("true", "false"):
        raise ValueError("neither true nor false")
    return text.lower() == "true"


def size_of_text(text: str) -> int:
    """A number of bytes above 0."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ValueError("no number of bytes above 0")
    return int(text)


def until_of_text(text: str) -> str:
    """`proven` or `flushed`."""
    if text not in ("proven", "flushed"):
        raise ValueError("neither proven nor flushed")
    return text


def mode_of_text(text: str) -> str:
    """One of Spark's three modes, in any case."""
    if text.upper() not in ("PERMISSIVE", "DROPMALFORMED", "FAILFAST"):
        raise ValueError("neither PERMISSIVE, DROPMALFORMED nor FAILFAST")
    return text.upper()


def milliseconds_of_text(text: str) -> int:
    """A number of milliseconds, 0 or more."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError("no number of milliseconds")
    return int(text)


READ_OPTIONS: OptionTable = {
    "path": ("path", path_of_text),
    "paths": ("path", paths_of_text),
    "commitLogPath": ("commit_log_path", lambda text: ",".join(map(path_of_text, text.split(",")))),
    "topics": ("topics", list_of_text),
    "keys": ("keys", list_of_text),
    "begin": ("begin", time_of_text),
    "end": ("end", time_of_text),
    "rawBody": ("raw_body", boolean_of_text),
    "splitBytes": ("split_bytes", size_of_text),
    "store": ("store", str),
    "until": ("until", until_of_text),
    "mode": ("mode", mode_of_text),
    "prune": ("prune", boolean_of_text),
    "statistics": ("statistics", path_of_text),
    "clockMargin": ("clock_margin_ms", milliseconds_of_text),
    "pushFilters": ("push_filters", boolean_of_text),
}
