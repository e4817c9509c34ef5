"""Values that are no arguments, by the annotation of a parameter; a parameter of a new kind has to be added here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from reput.config.properties import camel_case
from reput.errors import ConfigError
from reput.remoting.queue_tables import QueueKey


class Other:
    """No text, number, path or function, and not iterable."""


_NAN = float("nan")
_PATHS = [5, True, "", b"x", "a\0b", "\ud800", ["a"], Other()]
_TEXTS = [5, True, b"x", ["x"], Other()]
_NO_ADDRESSES = ["", "nobody", "a:", "a:0", "http://a:1", "a b:1", "a:99999"]
_WHOLE = [True, 1.5, _NAN, "x", b"x", [], Other(), -1]
_NUMBERS = [True, _NAN, "x", b"x", [], Other()]
_FLAGS = [5, "no", b"x", [], Other()]
_SEVERAL = [5, "orders", b"x", b"", [5], [None], Other()]
_TIMES = [True, 1.5, _NAN, "x", b"", Other()]
_CHOICES = [5, "x", b"x", [], True]
_FUNCTIONS = [5, "x", Other()]
_OBJECTS = [5, "x", b"x", Other(), Other]


_ONE_OR_SEVERAL = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"


def _of(annotations: str, values: list[Any]) -> dict[str, list[Any]]:
    return dict.fromkeys(re.split(r", (?![^\[]*\])", annotations), values)


#: By annotation, without None: it is bad if the annotation does not have it.
BAD: dict[str, list[Any]] = {
    "str | os.PathLike[str]": _PATHS,
    "str": _TEXTS,
    "int": _WHOLE,
    "float": _NUMBERS,
    "bool": _FLAGS,
    "datetime | int": _TIMES,
    "By": _CHOICES,
    "Format": _CHOICES,
    "BodySchema | Mapping[str, BodySchema]": [5, b"x", Other(), {"orders": 5}],
    _ONE_OR_SEVERAL: [*_PATHS[:-2], [], [5], [None], ["a\0b"], ["\ud800"], Other()],
    _ONE_OR_SEVERAL.replace("Sequence", "Iterable"): [*_PATHS[:-2], [], [5], [None], [""], Other()],
    "str | int | Mapping[str, str | int]": [True, 1.5, b"x", [], {5: 5}, {"a\0b": 5}, {"store": None}, Other()],
    "bool | str": [5, None, b"x", "", "a b", "a\0b", [], Other()],
    "bytes": [5, "x", None, [], Other()],
    "datetime": [5, "x", datetime(2026, 1, 1), Other()],
    "Mapping[str, str | MessageSelector]": [5, "orders", ["orders"], {5: "*"}, {"orders": 5}, Other()],
    "Iterable[QueueKey]": [5, "orders", [5], [None], Other()],
    "Mapping[QueueKey, int]": [5, "x", {QueueKey("orders", "broker-a", 0): -1}, Other()],
    "QueueKey": [5, "x", ("orders", "broker-a", 0), QueueKey("orders", "broker-a", -1), QueueKey("", "b", 0), Other()],
    "ConsumeFrom": [5, "now", b"first", [], True, Other()],
    "Collection[int]": [5, "0", ["0"], [None], [-1], Other()],
    "Mapping[str, object]": [5, "x", {5: 5}, Other()],
    "Mapping[str, str]": [5, "x", {"orders": 5}, {5: "x"}, Other()],
    "Mapping[str, Any]": [5, "x", {5: 5}, {"nope": 5}, Other()],
    **_of("Sequence[str], Iterable[str], Sequence[Dimension], Collection[str]", _SEVERAL),
    **_of("Progress, BitMaps, Callable[[], bool], Callable[[int], None], Callable[[ReplayedBatch], None]", _FUNCTIONS),
    **_of("Callable[[RecordColumns], None], Callable[[BrokerState], _T]", _FUNCTIONS),
    **_of("Callable[[DispatchedBatch], None]", _FUNCTIONS),
    **_of("SparkSession, DataFrame, threading.Event", _OBJECTS),
    **_of("CheckTransaction, OnMessage, Callable[[Message], LocalTransactionState]", _FUNCTIONS),
    **_of("ClientTls, SessionCredentials, PullLimits, MessageClientExt", _OBJECTS),
    **_of("Self, TopicConfig, Sequence[TopicConfig]", _OBJECTS),
    **_of("Runner, FileLayer, DispatchRules, MessageStoreConfig, KeptReads", _OBJECTS),
    **_of("Callable[[FollowState], None], Callable[[], None], Callable[[], int]", _FUNCTIONS),
    **_of("MessageStore, NamesrvConfig, Event", _OBJECTS),
    **_of("LakeSource, MessageSink[S]", _OBJECTS),
    **_of("RebuildOptions, ExportOptions, ReplayClock, Source", _OBJECTS),
}


def parameters(function: Callable[..., Any]) -> dict[str, str]:
    """Names of a function's parameters with their annotations, without those that take any number of arguments."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = inspect.signature(function).parameters.values()
    return {one.name: str(one.annotation) for one in found if one.kind not in several}


def bad_values(function: Callable[..., Any], name: str) -> list[Any]:
    """Values that are no argument of a parameter; KeyError for an annotation of which this module knows nothing."""
    annotation = parameters(function)[name]
    kind = annotation.removesuffix(" | None")
    values = _CHOICES if kind.startswith("Literal[") else BAD[kind]
    if name.endswith("path") and kind == "str":
        values = _PATHS
    if name.endswith("address") and kind == "str":
        values = [*_TEXTS, *_NO_ADDRESSES]
    return values if kind != annotation else [None, *values]


def names_in(*folders: Path) -> list[Path]:
    """All that is in some folders."""
    return [path for folder in folders for path in sorted(folder.rglob("*"))]


def check_refused(
    call: Callable[..., Any],
    good: Mapping[str, Any],
    name: str,
    values: list[Any],
    error: type[Exception] = ConfigError,
) -> None:
    """Check that a call with one bad argument raises an error that names it, or one of several."""
    named = rf"\b({name}|{name.removesuffix('s')}|{re.escape(camel_case(name))})\b"
    for value in values:
        with pytest.raises(error, match=named):
            raise AssertionError(f"{name}={value!r} is taken: {call(**{**good, name: value})!r}")
