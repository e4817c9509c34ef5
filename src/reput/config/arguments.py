"""Arguments of public functions: each is checked when it is given, and the error names it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from numbers import Real
from operator import index
from typing import Any

from reput.errors import ConfigError
from reput.formats.hosts import is_address

#: What people write between tags; RocketMQ takes `a,b` for one tag.
_MEANT_TO_SEPARATE = frozenset(",;&|")
#: Characters of an argument that an error shows.
_MOST_SHOWN = 200
#: The largest numbers of the network protocol's fields (Java's `int` and `long`).
MOST_INT, MOST_LONG = (1 << 31) - 1, (1 << 63) - 1
LEAST_LONG = -1 << 63

#: A check of an argument, by its name and value: raises ConfigError for what is none.
Check = Callable[[str, Any], None]


def refusal(name: str, value: object, expected: str) -> ConfigError:
    """The error of an argument that is none; of a long one, as a message with its body, the begin is shown."""
    try:
        shown = repr(value)
    except Exception:  # an integer of 5,000 digits, or an object whose own code fails
        shown = f"({type(value).__name__})"
    shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
    return ConfigError(f"{name} {shown}: expected {expected}")


def is_whole(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    """Whether it is a whole number from `least` to `most`; NumPy's are some."""
    try:
        return not isinstance(value, bool) and least <= index(value) <= most
    except TypeError:
        return False


def check_whole(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> None:
    """Raises ConfigError for what is no whole number from `least` to `most`; NumPy's are some."""
    if not is_whole(value, least, most):
        if least == LEAST_LONG and not is_whole(value):
            least = -math.inf
        if most in (MOST_INT, MOST_LONG) and not is_whole(value, least):
            most = math.inf  # the limit of a field matters to who is above it alone
        upper = "" if most == math.inf else f", {most} at most"
        bounds = upper if least == -math.inf else f", {least} {f'to {most}' if upper else 'or more'}"
        raise refusal(name, value, f"a whole number{bounds}")


def check_seconds(name: str, value: Any, *, may_be_zero: bool = False, most: float = math.inf) -> None:
    """Raises ConfigError for what are no seconds, or more than `most`."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    try:
        seconds = float(value) if is_number else math.nan
    except OverflowError:
        seconds = math.nan
    if not 0 <= seconds <= most or (seconds == 0 and not may_be_zero):
        bounds = "0 or more" if may_be_zero else "more than 0"
        raise refusal(name, value, f"seconds, {bounds}{'' if most == math.inf else f', {most} at most'}")


def check_number(name: str, value: Any) -> None:
    """Raises ConfigError for what is no number, as NaN."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or value != value:
        raise refusal(name, value, "a number")


def check_flag(name: str, value: object) -> None:
    """Raises ConfigError for what is neither True nor False."""
    if not isinstance(value, bool):
        raise refusal(name, value, "True or False")


def check_path(
    name: str, value: Any, expected: str = "a path, as a text or a pathlib.Path; the current folder is '.'"
) -> None:
    """Raises ConfigError for what is no path, as an empty text, or one that no system has."""
    path = value if isinstance(value, str) else None
    with suppress(AttributeError, TypeError):
        path = value.__fspath__() if path is None else path
    if not isinstance(path, str) or not path or not is_of_system(path):
        raise refusal(name, value, expected)


def is_of_system(text: str) -> bool:
    """Whether a system can be given a text, as a path: it has no zero byte, and no half of a character."""
    try:
        text.encode("utf-8", "surrogateescape")  # as Python gives it
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def check_text(name: str, value: object) -> None:
    """Raises ConfigError for what is no text."""
    if not isinstance(value, str):
        raise refusal(name, value, "a text")


def check_address(name: str, value: object) -> None:
    """Raises ConfigError for what is no address of a peer."""
    if not isinstance(value, str) or not is_address(value):
        raise refusal(name, value, "HOST:PORT, as in 127.0.0.1:10911")


def check_texts(name: str, value: object) -> None:
    """Raises ConfigError for what is no collection of texts, as one text, which is one of letters."""
    is_one = isinstance(value, str | bytes | bytearray)
    if is_one or not isinstance(value, Collection) or not all(isinstance(one, str) for one in value):
        raise refusal(name, value, "several texts, as a list has them")


def texts_of(name: str, values: Any) -> list[str]:
    """The texts of an argument that takes several in any form; raises ConfigError for what are none."""
    if isinstance(values, str):
        raise ConfigError(f"{name}: give a list of texts, not one text: [{values!r}]")
    if isinstance(values, bytes | bytearray) or not isinstance(values, Iterable):
        raise refusal(name, values, "several texts, as a list has them")
    found = list(values)
    for value in found:
        if not isinstance(value, str):
            raise ConfigError(f"{name}: {value!r} is no text")
    return found


def check_time(name: str, value: object) -> None:
    """Raises ConfigError for what is neither ms since 1970 nor a time with its zone."""
    if not is_whole(value) and (not isinstance(value, datetime) or value.tzinfo is None):
        raise ConfigError(f"{name}: {value!r} is neither milliseconds since 1970 nor a datetime with a time zone")


def check_moment(name: str, value: object) -> None:
    """Raises ConfigError for what is no time with its zone."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise refusal(name, value, "a datetime with its zone, as datetime.now(UTC) has it")


def check_queue_ids(name: str, value: object) -> None:
    """Raises ConfigError for what is no collection of queue ids."""
    if not isinstance(value, Collection) or isinstance(value, str | bytes):
        raise refusal(name, value, "queue ids, as [0, 1]")
    for one in value:
        check_whole(name, one, 0)


def check_function(name: str, value: Any) -> None:
    """Raises ConfigError for what cannot be called, or whose call runs nothing."""
    if not callable(value):
        raise refusal(name, value, "a function")
    if any(map(_is_generator, (value, getattr(value, "__call__", None)))):  # noqa: B004, an object is called, too
        raise refusal(name, value, "a function that runs when it is called: one with `yield` makes a generator")


def _is_generator(value: Any) -> bool:
    return inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value)


def check_call(checks: Mapping[str, Check], given: Mapping[str, object]) -> None:
    """Raises ConfigError for an argument that is none by a table of checks, which need not have all.

    A public function calls it in its first line with `locals()`, which are its arguments there.
    """
    for name, value in given.items():
        if (check := checks.get(name)) is not None:
            check(name, value)


def check_mapping(name: str, value: object) -> None:
    """Raises ConfigError for what is no mapping whose keys are texts."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise refusal(name, value, "a mapping of names, as a dict")


def optional(check: Check) -> Check:
    """A check that takes None, too."""

    def checked(name: str, value: Any) -> None:
        if value is not None:
            check(name, value)

    return checked


def whole(least: float = -math.inf, most: float = math.inf) -> Check:
    """The check of a whole number with these bounds."""
    return lambda name, value: check_whole(name, value, least, most)


def one_of(*texts: str) -> Check:
    """The check of a choice."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, str) or value not in texts:
            raise refusal(name, value, " or ".join(f'"{text}"' for text in texts))

    return check


def an_object_of(kind: type) -> Check:
    """The check of an object of a class."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, kind):
            raise refusal(name, value, f"an object of {kind.__name__}")

    return check


def able_to(method: str, expected: str) -> Check:
    """The check of an object by a method that it has, of whatever class it is."""

    def check(name: str, value: Any) -> None:
        if isinstance(value, type) or not callable(getattr(value, method, None)):
            raise refusal(name, value, expected)

    return check


def meant_as_several(tags: Iterable[str]) -> str | None:
    """The first tag that seems to be several: RocketMQ takes `a,b` for one tag, which no message has."""
    return next((tag for tag in tags if not _MEANT_TO_SEPARATE.isdisjoint(tag)), None)
