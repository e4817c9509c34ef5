"""Nodes of an SQL92 expression, evaluated over the properties of many messages at once.

A condition has a code for each message: FALSE, TRUE, NULL, or ERROR if RocketMQ's evaluation throws. The rules are
from `ComparisonExpression`, `LogicExpression` and `UnaryExpression`; what these do with one message is done here
with a column of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.filter.columns import Columns, flags
from reput.filter.expression_error import ExpressionError
from reput.filter.java_numbers import NumberKind, parse_number, sort_key

FALSE, TRUE, NULL, ERROR = range(4)
#: What a comparison for equality meets beside conditions.
_TEXT, _NUMBER = 4, 5
#: Codes of all messages, or one code for all of them.
Codes: TypeAlias = "npt.NDArray[np.uint8]"

#: Conditions inside of conditions; more costs a stack.
MAX_DEPTH = 64

_F, _T, _N, _E = FALSE, TRUE, NULL, ERROR
#: The code of left and right, [left, right]: the right side counts only if the left one does not decide.
_AND = np.array([[_F] * 4, [_F, _T, _N, _E], [_F, _N, _N, _E], [_E] * 4], np.uint8)
_OR = np.array([[_F, _T, _N, _E], [_T] * 4, [_N, _T, _N, _E], [_E] * 4], np.uint8)
_NOT = np.array([_T, _F, _N, _E], np.uint8)
#: Equality, [left, right], also of texts and numbers with conditions: a text on the right cannot become a Boolean.
_EQUAL = np.array(
    [
        [_T, _F, _F, _E, _E, _F],
        [_F, _T, _F, _E, _E, _F],
        [_N, _N, _T, _E, _N, _N],
        [_E, _E, _E, _E, _E, _E],
        [_E, _E, _F, _E, _E, _E],
        [_F, _F, _F, _E, _E, _E],
    ],
    np.uint8,
)
_ORDERS = {">": gt, ">=": ge, "<": lt, "<=": le}


@dataclass(frozen=True)
class PropertyExpression:
    """The value of a property (`PropertyExpression`)."""

    name: str


@dataclass(frozen=True)
class Text:
    """A text in quotes."""

    value: str


@dataclass(frozen=True)
class Number:
    """A number; is_literal: False after a minus sign, where RocketMQ checks less when it compiles."""

    value: int | float
    kind: NumberKind
    is_literal: bool = True


@dataclass(frozen=True)
class Nothing:
    """Null: what a minus sign makes of all but numbers. An error of the condition behind it stays one."""

    condition: Condition | None = None


class Condition:
    """A condition (`BooleanExpression`).

    Attributes:
        depth: Conditions inside of each other.
        names: The properties that it looks at.
        comparisons: What it costs to evaluate, in comparisons.
    """

    depth: int
    names: frozenset[str]
    comparisons: int

    def _contain(self, operands: Iterable[Operand]) -> None:
        parts = [operand.condition if isinstance(operand, Nothing) else operand for operand in operands]
        conditions = [part for part in parts if isinstance(part, Condition)]
        self.depth = 1 + max((one.depth for one in conditions), default=0)
        if self.depth > MAX_DEPTH:
            raise ExpressionError(f"more than {MAX_DEPTH} conditions inside of each other")
        names = {part.name for part in parts if isinstance(part, PropertyExpression)}
        self.names = frozenset(names.union(*(one.names for one in conditions)))
        self.comparisons = 1 + sum(one.comparisons for one in conditions)

    def evaluate(self, columns: Columns) -> Codes:
        """The codes of messages: uint8[rows], or one for all."""
        raise NotImplementedError

    def is_true(self, texts: Mapping[str, pa.StringArray], rows: int) -> npt.NDArray[np.bool_]:
        """bool[rows]: for which messages its code is TRUE, by the properties that it looks at; see `Columns`."""
        return np.broadcast_to(self.evaluate(Columns(texts, rows)) == TRUE, rows)


Operand: TypeAlias = PropertyExpression | Text | Number | Nothing | Condition
_Comparable: TypeAlias = PropertyExpression | Number | Nothing


class Constant(Condition):
    """TRUE, FALSE or NULL (`BooleanConstantExpression`)."""

    def __init__(self, code: int) -> None:
        self.code = code
        self._contain(())

    def evaluate(self, columns: Columns) -> Codes:
        """Its code."""
        return np.array(self.code, np.uint8)


class _Cast(Condition):
    """A property in place of a condition: FALSE, as its value is a text, and NULL without one (`createBooleanCast`)."""

    def __init__(self, operand: PropertyExpression) -> None:
        self._name = operand.name
        self._contain((operand,))

    def evaluate(self, columns: Columns) -> Codes:
        """FALSE or NULL."""
        return np.where(columns.is_present(self._name), np.uint8(FALSE), np.uint8(NULL))


class _Logic(Condition):
    """AND or OR of conditions, from left to right; a code that decides hides the errors after it."""

    def __init__(self, table: npt.NDArray[np.uint8], conditions: tuple[Condition, ...]) -> None:
        self._table, self._conditions = table, conditions
        self._contain(conditions)

    def evaluate(self, columns: Columns) -> Codes:
        """The codes of the first condition, with the codes of each further one."""
        first, *others = self._conditions
        codes = first.evaluate(columns)
        for one in others:
            codes = self._table[codes, one.evaluate(columns)]
        return codes


class _Not(Condition):
    """NOT."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._contain((condition,))

    def evaluate(self, columns: Columns) -> Codes:
        """The opposite; NULL and ERROR stay."""
        return _NOT[self._condition.evaluate(columns)]


class _Equal(Condition):
    """Equality (`doCreateEqual`), also IS NULL: equality with the constant NULL."""

    def __init__(self, left: Operand, right: Operand) -> None:
        self._left, self._right = left, right
        self._contain((left, right))

    def evaluate(self, columns: Columns) -> Codes:
        """NULL if only the left side is null, FALSE if only the right one is, TRUE if both are."""
        left, right = self._left, self._right
        if isinstance(left, Condition | Nothing) or isinstance(right, Condition | Nothing):
            is_text = isinstance(left, PropertyExpression | Text) and isinstance(right, Condition)
            return _EQUAL[_as_boolean(left, columns) if is_text else _state(left, columns), _state(right, columns)]
        if isinstance(left, PropertyExpression | Text) and isinstance(right, PropertyExpression | Text):
            same, good = _same_texts(left, right, columns), np.array(True)
        else:
            same, good = _compare(eq, left, right, columns)
        has_left, has_right = _is_present(left, columns), _is_present(right, columns)
        found = np.where(good, same, np.uint8(ERROR))
        one_only = np.where(has_left, np.uint8(FALSE), np.where(has_right, np.uint8(NULL), np.uint8(TRUE)))
        return np.where(has_left & has_right, found, one_only).astype(np.uint8)


class _Order(Condition):
    """Order of numbers (`createGreaterThan` and its like); texts are read as numbers."""

    def __init__(self, left: _Comparable, symbol: str, right: _Comparable) -> None:
        self._left, self._is_so, self._right = left, _ORDERS[symbol], right
        self._contain((left, right))

    def evaluate(self, columns: Columns) -> Codes:
        """NULL if one side is null, ERROR if one is no number."""
        left, right = self._left, self._right
        if isinstance(left, Nothing):
            return _state(left, columns)
        has_left = _is_present(left, columns)
        if isinstance(right, Nothing):
            return np.where(has_left, _state(right, columns), np.uint8(NULL))
        same, good = _compare(self._is_so, left, right, columns)
        found = np.where(good, same, np.uint8(ERROR))
        return np.where(has_left & _is_present(right, columns), found, np.uint8(NULL)).astype(np.uint8)


class _In(Condition):
    """IN with a list of texts, and NOT IN (`UnaryInExpression`)."""

    def __init__(self, operand: PropertyExpression, texts: tuple[str, ...], *, negated: bool) -> None:
        self._name, self._negated = operand.name, negated
        self._texts = pa.array([_encode(text) for text in texts], pa.binary()).cast(pa.string(), safe=False)
        self._contain((operand,))

    def evaluate(self, columns: Columns) -> Codes:
        """NULL without the property."""
        found = pc.is_in(columns.texts[self._name], self._texts).to_numpy(zero_copy_only=False) ^ self._negated
        return np.where(columns.is_present(self._name), found, np.uint8(NULL)).astype(np.uint8)


class _Search(Condition):
    """CONTAINS, STARTSWITH, ENDSWITH and their opposites: FALSE for all that is no text, and for an empty pattern."""

    _FUNCTIONS = {  # noqa: RUF012 - a table
        "CONTAINS": pc.match_substring,
        "STARTSWITH": pc.starts_with,
        "ENDSWITH": pc.ends_with,
    }

    def __init__(self, operand: Operand, name: str, pattern: str, *, negated: bool) -> None:
        self._operand, self._find = operand, self._FUNCTIONS[name.upper()]
        self._pattern, self._negated = _encode(pattern), negated
        self._contain((operand,))

    def evaluate(self, columns: Columns) -> Codes:
        """Never NULL; an error of the operand stays."""
        if not self._pattern:
            return np.array(FALSE, np.uint8)
        if isinstance(self._operand, Condition | Nothing):
            return np.where(_state(self._operand, columns) == ERROR, np.uint8(ERROR), np.uint8(FALSE))
        if isinstance(self._operand, Number):
            return np.array(FALSE, np.uint8)
        if isinstance(self._operand, PropertyExpression):
            texts = columns.texts[self._operand.name]
        else:
            texts = pa.array([_encode(self._operand.value)], pa.binary())
        found = flags(self._find(texts.cast(pa.binary()), self._pattern)) ^ self._negated
        return (found & _is_present(self._operand, columns)).astype(np.uint8)


# -- operands


def _encode(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _texts(operand: PropertyExpression | Text, columns: Columns) -> pa.StringArray | pa.Scalar:
    if isinstance(operand, PropertyExpression):
        return columns.texts[operand.name]
    return pa.scalar(_encode(operand.value), pa.binary())


def _same_texts(
    left: PropertyExpression | Text, right: PropertyExpression | Text, columns: Columns
) -> npt.NDArray[np.bool_]:
    if isinstance(left, Text) and isinstance(right, Text):
        return np.array(left.value == right.value)
    return flags(pc.equal(_texts(left, columns), _texts(right, columns)))


def _is_present(operand: PropertyExpression | Text | Number, columns: Columns) -> npt.NDArray[np.bool_] | np.bool_:
    return columns.is_present(operand.name) if isinstance(operand, PropertyExpression) else np.True_


def _state(operand: Operand, columns: Columns) -> Codes:
    """The row or column of an operand in `_EQUAL`."""
    if isinstance(operand, Condition):
        return operand.evaluate(columns)
    if isinstance(operand, Nothing):
        if operand.condition is None:
            return np.array(NULL, np.uint8)
        return np.where(operand.condition.evaluate(columns) == ERROR, np.uint8(ERROR), np.uint8(NULL))
    if isinstance(operand, PropertyExpression):
        return np.where(columns.is_present(operand.name), np.uint8(_TEXT), np.uint8(NULL))
    return np.array(_TEXT if isinstance(operand, Text) else _NUMBER, np.uint8)


def _as_boolean(operand: Operand, columns: Columns) -> Codes:
    """A text as `Boolean.valueOf` reads it."""
    if isinstance(operand, PropertyExpression):
        is_true = columns.is_true(operand.name).astype(np.uint8)
        return np.where(columns.is_present(operand.name), is_true, np.uint8(NULL))
    assert isinstance(operand, Text)
    return np.array(operand.value.lower() == "true", np.uint8)


def _compare(
    is_so: Callable[[Any, Any], Any],
    left: PropertyExpression | Text | Number,
    right: PropertyExpression | Text | Number,
    columns: Columns,
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Compare as numbers (`__compare`): the results, and which of them count as both sides are numbers."""
    kinds = [one.kind for one in (left, right) if isinstance(one, Number)]
    kind = max(kinds, default=NumberKind.DOUBLE)
    (first, first_good), (second, second_good) = _keys(left, kind, columns), _keys(right, kind, columns)
    return np.asarray(is_so(first, second)), np.asarray(first_good & second_good)


def _keys(
    operand: PropertyExpression | Text | Number, kind: NumberKind, columns: Columns
) -> tuple[npt.NDArray[np.int64] | np.int64, npt.NDArray[np.bool_] | np.bool_]:
    """Keys and their validity of an operand, as of `numbers_of`."""
    if isinstance(operand, PropertyExpression):
        return columns.numbers(operand.name, kind)
    if isinstance(operand, Text):
        value = parse_number(operand.value, kind)
        return np.int64(value or 0), np.bool_(value is not None)
    return np.int64(_key(operand, kind)), np.True_


def _key(number: Number, kind: NumberKind) -> int:
    return sort_key(float(number.value)) if kind is NumberKind.DOUBLE else int(number.value)


# -- what the parser makes, with RocketMQ's checks


def condition(operand: Operand) -> Condition:
    """An operand in place of a condition (`asBooleanExpression`); raises ExpressionError."""
    if isinstance(operand, Condition):
        return operand
    if isinstance(operand, PropertyExpression):
        return _Cast(operand)
    raise ExpressionError("a text or a number is no condition")


def conjunction(*operands: Operand) -> Condition:
    """AND."""
    return _Logic(_AND, tuple(map(condition, operands)))


def disjunction(*operands: Operand) -> Condition:
    """OR."""
    return _Logic(_OR, tuple(map(condition, operands)))


def negation(operand: Operand) -> Condition:
    """NOT."""
    return _Not(condition(operand))


def negate(operand: Operand) -> Operand:
    """A minus sign (`createNegate`)."""
    if isinstance(operand, Number):
        return Number(-operand.value, operand.kind, is_literal=False)
    if isinstance(operand, Nothing):
        return operand
    return Nothing(operand if isinstance(operand, Condition) else None)


def equal(left: Operand, right: Operand) -> Condition:
    """Equality (`createEqual`)."""
    if any(isinstance(one, Constant) and one.code == NULL for one in (left, right)):
        raise ExpressionError("NULL cannot be compared: IS NULL asks for it")
    if isinstance(left, Constant) and (isinstance(right, Text) or (isinstance(right, Number) and right.is_literal)):
        raise ExpressionError("TRUE and FALSE cannot be compared with a text or a number")
    return _Equal(left, right)


def is_null(operand: Operand) -> Condition:
    """IS NULL."""
    return _Equal(operand, Constant(NULL))


def order(left: Operand, symbol: str, right: Operand) -> Condition:
    """One of > >= < <= (`checkLessThanOperand`)."""
    if isinstance(left, Text | Condition) or isinstance(right, Text | Condition):
        raise ExpressionError(f"texts and conditions have no order, as {symbol} asks for")
    return _Order(left, symbol, right)


def between(operand: Operand, low: Operand, high: Operand) -> Condition:
    """BETWEEN (`createBetween`)."""
    if isinstance(low, Number) and low.is_literal and isinstance(high, Number) and high.is_literal:
        kind = max(low.kind, high.kind)
        if _key(low, kind) > _key(high, kind):
            raise ExpressionError(f"BETWEEN {low.value} AND {high.value}: the first is greater")
    return conjunction(order(operand, ">=", low), order(operand, "<=", high))


def not_between(operand: Operand, low: Operand, high: Operand) -> Condition:
    """NOT BETWEEN (`createNotBetween`)."""
    return disjunction(order(operand, "<", low), order(operand, ">", high))


def in_list(operand: Operand, texts: tuple[str, ...], *, negated: bool) -> Condition:
    """IN and NOT IN (`createInFilter`)."""
    if not isinstance(operand, PropertyExpression):
        raise ExpressionError("IN is for a property")
    return _In(operand, texts, negated=negated)


def search(operand: Operand, name: str, pattern: str, *, negated: bool) -> Condition:
    """CONTAINS, STARTSWITH, ENDSWITH, by their name, and with NOT."""
    return _Search(operand, name, pattern, negated=negated)
