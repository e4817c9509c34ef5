"""SQL92 expressions one message at a time, by recursive descent: what RocketMQ's classes do, in plain Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reput.filter.java_numbers import NumberKind, parse_number, sort_key

_TOKEN = re.compile(r"[ \n\t]+|(?P<text>'(?:''|[^'])*')|(?P<number>[0-9.]+)|(?P<word>[A-Za-z_]+)|(?P<sign>>=|<=|<>|.)")
_WORDS = {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}


class CompileError(Exception):
    """The expression does not compile."""


class EvaluationError(Exception):
    """The evaluation throws."""


@dataclass(frozen=True)
class _Number:
    key: int | float
    kind: NumberKind


Evaluate = Callable[[Mapping[str, str]], Any]


@dataclass(frozen=True)
class Node:
    """kind: property, literal, boolean (a literal too), condition or negated."""

    kind: str
    evaluate: Evaluate
    value: Any = None

    @property
    def is_condition(self) -> bool:
        return self.kind in ("boolean", "condition")

    @property
    def is_literal(self) -> bool:
        return self.kind in ("boolean", "literal")


def evaluate(text: str, messages: list[Mapping[str, str]]) -> str:
    """A letter a message, as `tests.support.expressions.outcome`."""
    try:
        node = _as_condition(_Parser(text).disjunction())
    except CompileError:
        return "compile"
    return "".join(_letter(node, one) for one in messages)


def _letter(node: Node, message: Mapping[str, str]) -> str:
    try:
        value = node.evaluate(message)
    except EvaluationError:
        return "E"
    return "N" if value is None else "FT"[value]


class _Parser:
    """The productions of SelectorParser.jj."""

    def __init__(self, text: str) -> None:
        found = (one for one in _TOKEN.finditer(text) if one.lastgroup)
        self._tokens = [(one.lastgroup, one[0]) for one in found]
        self._at = 0

    def _next(self) -> tuple[str | None, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else (None, "")

    def _word(self) -> str:
        kind, text = self._next()
        return text.upper() if kind == "word" else text if kind == "sign" else ""

    def _take(self, *words: str) -> bool:
        if self._word() in words:
            self._at += 1
            return True
        return False

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise CompileError

    def _text(self) -> str:
        kind, text = self._next()
        if kind != "text":
            raise CompileError
        self._at += 1
        return text[1:-1].replace("''", "'")

    def disjunction(self) -> Node:
        left = self._conjunction()
        while self._take("OR"):
            left = _logic(_as_condition(left), _as_condition(self._conjunction()), decides=True)
        return left

    def _conjunction(self) -> Node:
        left = self._equality()
        while self._take("AND"):
            left = _logic(_as_condition(left), _as_condition(self._equality()), decides=False)
        return left

    def _equality(self) -> Node:
        left = self._comparison()
        while True:
            if self._take("="):
                left = _equal(left, self._comparison())
            elif self._take("<>"):
                left = _not(_equal(left, self._comparison()))
            elif self._take("IS"):
                negated = self._take("NOT")
                self._need("NULL")
                left = _not(_is_null(left)) if negated else _is_null(left)
            else:
                return left

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            sign = self._word()
            if self._take(">", ">=", "<", "<="):
                left = _order(left, sign, self._unary())
                continue
            negated = self._take("NOT")
            word = self._word()
            if self._take("CONTAINS", "STARTSWITH", "ENDSWITH"):
                left = _search(left, word, self._text(), negated)
            elif self._take("BETWEEN"):
                low = self._unary()
                self._need("AND")
                left = _between(left, low, self._unary(), negated)
            elif self._take("IN"):
                left = self._list(left, negated)
            elif negated:
                raise CompileError
            else:
                return left

    def _list(self, left: Node, negated: bool) -> Node:
        self._need("(")
        texts = [self._text()]
        while self._take(","):
            texts.append(self._text())
        self._need(")")
        if left.kind != "property":
            raise CompileError

        def is_in(message: Mapping[str, str]) -> bool | None:
            value = left.evaluate(message)
            return None if value is None else (value in texts) != negated

        return Node("condition", is_in)

    def _unary(self) -> Node:
        if self._take("+"):
            return self._unary()
        if self._take("-"):
            return _negate(self._unary())
        if self._take("NOT"):
            return _not(_as_condition(self._unary()))
        return self._primary()

    def _primary(self) -> Node:
        kind, text = self._next()
        if kind == "text":
            return _constant(self._text())
        if kind == "number":
            self._at += 1
            if "." in text:
                return _constant(_Number(float(text), NumberKind.DOUBLE))
            value = int(text)
            if value >= 1 << 63:
                raise CompileError
            return _constant(_Number(value, NumberKind.INTEGER if value < 1 << 31 else NumberKind.LONG))
        for word, constant in (("TRUE", True), ("FALSE", False), ("NULL", None)):
            if self._take(word):
                return Node("boolean", lambda message, constant=constant: constant, constant)
        if self._take("("):
            node = self.disjunction()
            self._need(")")
            return node
        if kind != "word" or text.upper() in _WORDS:
            raise CompileError
        self._at += 1
        return Node("property", lambda message: message.get(text))


def _constant(value: Any) -> Node:
    return Node("literal", lambda message: value, value)


def _as_condition(node: Node) -> Node:
    if node.is_condition:
        return node
    if node.kind == "property":
        return Node("condition", lambda message: None if node.evaluate(message) is None else False)
    raise CompileError


def _logic(left: Node, right: Node, *, decides: bool) -> Node:
    def both(message: Mapping[str, str]) -> bool | None:
        first = left.evaluate(message)
        if first is decides:
            return decides
        second = right.evaluate(message)
        if second is decides:
            return decides
        return None if first is None or second is None else not decides

    return Node("condition", both)


def _not(node: Node) -> Node:
    def opposite(message: Mapping[str, str]) -> bool | None:
        value = node.evaluate(message)
        return None if value is None else not value

    return Node("condition", opposite)


def _negate(node: Node) -> Node:
    def negated(message: Mapping[str, str]) -> _Number | None:
        value = node.evaluate(message)
        return _Number(-value.key, value.kind) if isinstance(value, _Number) else None

    return Node("negated", negated)


def _is_null(node: Node) -> Node:
    return Node("condition", lambda message: node.evaluate(message) is None)


def _equal(left: Node, right: Node) -> Node:
    if any(one.is_literal and one.value is None for one in (left, right)):
        raise CompileError
    if left.kind == "boolean" and right.kind == "literal":
        raise CompileError

    def equal(message: Mapping[str, str]) -> bool | None:
        first, second = left.evaluate(message), right.evaluate(message)
        if first is None and second is None:
            return True
        if first is None:
            return None
        return False if second is None else _compare(first, second) == 0

    return Node("condition", equal)


def _order(left: Node, sign: str, right: Node) -> Node:
    for one in (left, right):
        if one.is_condition or (one.is_literal and not isinstance(one.value, _Number)):
            raise CompileError
    signs = {">": (1,), ">=": (0, 1), "<": (-1,), "<=": (-1, 0)}[sign]

    def order(message: Mapping[str, str]) -> bool | None:
        first = left.evaluate(message)
        if first is None:
            return None
        second = right.evaluate(message)
        if second is None:
            return None
        if isinstance(first, str) and isinstance(second, str):
            return _sign(_parse(first, NumberKind.DOUBLE), _parse(second, NumberKind.DOUBLE)) in signs
        return _compare(first, second) in signs

    return Node("condition", order)


def _between(node: Node, low: Node, high: Node, negated: bool) -> Node:
    if negated:
        return _logic(_order(node, "<", low), _order(node, ">", high), decides=True)
    if isinstance(low.value, _Number) and isinstance(high.value, _Number) and _compare(high.value, low.value) < 0:
        raise CompileError
    return _logic(_order(node, ">=", low), _order(node, "<=", high), decides=False)


def _search(node: Node, word: str, pattern: str, negated: bool) -> Node:
    find = {"CONTAINS": str.__contains__, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith}[word]

    def search(message: Mapping[str, str]) -> bool:
        if not pattern:
            return False
        value = node.evaluate(message)
        return isinstance(value, str) and find(value, pattern) != negated

    return Node("condition", search)


def _compare(left: Any, right: Any) -> int:
    """`__compare`: below 0, 0 or above."""
    if isinstance(left, str) and isinstance(right, str):
        return 0 if left == right else 1
    if isinstance(left, bool):
        if isinstance(right, str):
            raise EvaluationError
        return -1 if isinstance(right, _Number) else _sign(left, right)
    if isinstance(right, bool):
        return -1 if isinstance(left, _Number) else _sign(left.lower() == "true", right)
    kind = max(one.kind for one in (left, right) if isinstance(one, _Number))
    return _sign(_key(left, kind), _key(right, kind))


def _key(value: Any, kind: NumberKind) -> int:
    if isinstance(value, str):
        return _parse(value, kind)
    return sort_key(float(value.key)) if kind is NumberKind.DOUBLE else int(value.key)


def _parse(text: str, kind: NumberKind) -> int:
    number = parse_number(text, kind)
    if number is None:
        raise EvaluationError
    return number


def _sign(left: int, right: int) -> int:
    return (left > right) - (left < right)
