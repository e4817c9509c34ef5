"""Conditions of SQL92 expressions, each compiled once; the first one imports the parser, and Arrow with it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from reput.filter.expression_error import ExpressionError

if TYPE_CHECKING:
    from reput.filter.expressions import Condition

#: Characters of one expression, so that compiling takes the broker's loop a few ms at most.
MAX_LENGTH = 32_768

#: Conditions and errors of the last expressions, as they are asked for again and again (`PARSE_CACHE`).
_compiled: dict[str, Condition | ExpressionError] = {}
_MOST_COMPILED = 1024
#: Characters that are compiled in 4 ms, whatever they are.
_SHORT = 128


def compile_expression(text: str) -> Condition:
    """The condition that an expression means (`SqlFilter.compile`).

    As in RocketMQ's parser, what comes after a whole condition is ignored, if its first token is one.

    Raises:
        ExpressionError: It is no condition, or exceeds `MAX_LENGTH`, `MAX_TOKENS` or `MAX_DEPTH`.
        ImportError: lark or Arrow is not installed.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"the expression has {len(text)} characters; {MAX_LENGTH} are the most")
    compiled = _compiled.get(text)
    if compiled is None:
        from reput.filter.selector_parser import parse  # here: it needs Arrow and lark

        compiled = parse(text)
        while len(_compiled) >= _MOST_COMPILED:
            _compiled.pop(next(iter(_compiled)), None)
        _compiled[text] = compiled
    if isinstance(compiled, ExpressionError):
        raise compiled
    return compiled


def take_short(texts: Iterable[str]) -> bool:
    """Whether all these expressions are compiled in a few ms: they have been compiled before, or are short."""
    return sum(len(text) for text in texts if text not in _compiled) <= _SHORT


def compile_all(texts: Iterable[str]) -> None:
    """Compile expressions, good or bad, for `compile_expression` to find; for a thread beside an event loop."""
    for text in texts:
        with suppress(ExpressionError):
            compile_expression(text)
