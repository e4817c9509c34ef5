"""SQL92 expressions and messages with which they are tried, and expressions drawn at random."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from reput.filter.columns import Columns
from reput.filter.compiled_expressions import compile_expression
from reput.filter.expression_error import ExpressionError

MESSAGES: tuple[Mapping[str, str], ...] = (
    {},
    {"a": "5"},
    {"a": "-5", "b": "5"},
    {"a": "+5", "b": "5.0"},
    {"a": "005", "b": "5e0"},
    {"a": "5.5", "b": " 5.5 "},
    {"a": "x", "b": "x"},
    {"a": "east", "b": "west", "c": "3"},
    {"a": "true", "b": "TRUE"},
    {"a": "False", "b": "yes", "c": "true"},
    {"a": "2147483647", "b": "2147483648"},
    {"a": "-2147483648", "b": "-2147483649"},
    {"a": "9223372036854775807", "b": "9223372036854775808"},
    {"a": "-9223372036854775808", "b": "9007199254740993"},
    {"a": "NaN", "b": "Infinity", "c": "-Infinity"},
    {"a": "0.0", "b": "-0.0", "c": "0"},
    {"a": "0x1.8p1", "b": "3f", "c": "3D"},
    {"a": ".5", "b": "5.", "c": "1e400"},
    {"a": "٣", "b": "３", "c": "𝟛"},
    {"a": "1_000", "b": " 3", "c": "3\n"},
    {"a": "it's", "b": "''", "c": "%_"},
    {"a": "größe", "b": "日本", "c": "😀"},
    {"a": "null", "b": "NULL", "c": "N/A"},
    {"a": "3", "b": "3", "c": "3", "TAGS": "odd", "KEYS": "k1 k2"},
    {"a": "123456789012345678901234567890", "b": "0.1234567890123456789012345", "c": "1e-400"},
    {"a": "--3", "b": "+-3", "c": "3-"},
    {"a": "0000000000000000000000000000000003", "b": "-0", "c": "+0"},
    {"a": "1e3", "b": "1E+3", "c": "1000"},
    {"_x": "1", "$y": "2", "A": "3"},
)

WRITTEN: tuple[str, ...] = (
    "a > 3", "a >= 5", "a < 5", "a <= 5", "a = 5", "a <> 5", "a = 5.0", "a > 5.0", "a = 5L", "a = 2147483648",
    "a = 2147483647", "a = 9223372036854775807", "a = 9223372036854775808", "a = -9223372036854775808", "a = 3l",
    "5 = a", "5 < a", "5.0 <= a", "a = '5'", "'5' = a", "a = 'x'", "a <> 'x'", "a > 'x'", "'x' < a", "'5' = 5",
    "'x' = 5", "5 = '5'", "5 = 'x'", "'a' = 'a'", "'a' <> 'b'", "5 = 5.0", "5 = 6", "2147483648 = 2147483648.0",
    "a = b", "a <> b", "a > b", "a >= b", "a < b", "a <= b", "c = c", "missing = missing", "a = missing",
    "missing = a", "a > missing", "missing > a",
    "a = TRUE", "a = FALSE", "TRUE = a", "FALSE = a", "a <> TRUE", "TRUE", "FALSE", "NULL", "true", "fAlSe",
    "TRUE = TRUE", "TRUE = FALSE", "TRUE <> FALSE", "5 = TRUE", "TRUE = 5", "'true' = TRUE", "TRUE = 'true'",
    "TRUE = -5", "-5 = TRUE", "NULL = a", "a = NULL", "a > NULL", "a <> NULL", "NULL IS NULL", "TRUE IS NULL",
    "5 IS NULL", "'x' IS NOT NULL", "a > TRUE", "TRUE > a",
    "a IS NULL", "a IS NOT NULL", "missing IS NULL", "missing IS NOT NULL", "(a > 3) IS NULL", "(a > 3) IS NOT NULL",
    "a IS NULL IS NULL", "a IS b", "a IS", "a IS NOT",
    "a", "NOT a", "missing", "NOT missing", "NOT NOT a", "a AND b", "a OR b", "a AND missing", "a OR missing",
    "NOT (a = 'x')", "NOT a = 'x'", "NOT a > 3", "NOT TRUE", "NOT NULL", "NOT 5", "NOT 'x'", "NOT -a",
    "a > 3 AND b > 3", "a > 3 OR b > 3", "a > 3 AND TRUE", "FALSE AND a > 3", "a > 3 AND FALSE", "TRUE OR a > 3",
    "a > 3 OR TRUE", "missing AND a > 3", "missing OR a > 3", "a > 3 AND missing", "a > 3 OR missing",
    "a = 'x' OR b = 'x' AND c = '3'", "(a = 'x' OR b = 'x') AND c = '3'", "a and b OR c", "5 AND a", "a AND 'x'",
    "NULL AND a > 3", "NULL OR a > 3", "NULL AND FALSE", "NULL OR TRUE",
    "a BETWEEN 1 AND 5", "a BETWEEN 5 AND 1", "a BETWEEN 5 AND 5", "a BETWEEN 1 AND 5.0", "a BETWEEN -5 AND 5",
    "a BETWEEN 5 AND -5", "a NOT BETWEEN 1 AND 5", "a NOT BETWEEN 5 AND 1", "a BETWEEN b AND c", "a BETWEEN 1 AND b",
    "a NOT BETWEEN b AND c", "a BETWEEN 'a' AND 'b'", "a BETWEEN NULL AND 5", "a BETWEEN 1 AND NULL",
    "a BETWEEN TRUE AND FALSE", "a BETWEEN 1 AND 'x'", "3 BETWEEN a AND 5", "'3' BETWEEN 1 AND 5",
    "a NOT BETWEEN NULL AND 5", "a BETWEEN 1 AND 3 AND b = 'x'", "a BETWEEN 1 AND 3 OR b = '5'",
    "a BETWEEN 2147483648 AND 2147483649", "a BETWEEN 1", "a BETWEEN 1 AND", "a BETWEEN 1 OR 2",
    "a IN ('5')", "a IN ('5', 'x', 'east')", "a NOT IN ('5', 'x')", "a IN ('1', '2', '3', '4', '5', 'x')",
    "missing IN ('5')", "missing NOT IN ('5')", "a IN ()", "a IN (5)", "a IN ('5'", "a IN '5'", "a IN ('5',)",
    "5 IN ('5')", "'x' IN ('x')", "(a) IN ('5')", "NOT a IN ('5')", "a IN('x')", "a in ('it''s')", "a IN ('')",
    "(a = 'x') IN ('5')", "a IN /* 'z', */ ('x' -- 'y'\n, '5')", "a IN ('5') IN ('x')", "a IN ('日本', '😀')",
    "a CONTAINS 'a'", "a NOT CONTAINS 'a'", "a CONTAINS ''", "a NOT CONTAINS ''", "missing CONTAINS 'a'",
    "missing NOT CONTAINS 'a'", "a STARTSWITH 'e'", "a NOT STARTSWITH 'e'", "a ENDSWITH 't'", "a NOT ENDSWITH 't'",
    "a STARTSWITH ''", "a ENDSWITH ''", "a contains b", "a CONTAINS 5", "'east' CONTAINS 'as'", "5 CONTAINS '5'",
    "(a > 3) CONTAINS 'x'", "(a > 3) NOT CONTAINS 'x'", "a CONTAINS 'ß'", "c ENDSWITH '😀'", "TRUE CONTAINS 'T'",
    "-a CONTAINS 'x'", "a CONTAINS 'x' CONTAINS 'y'", "a CONTAINS 'a' = TRUE", "NOT a CONTAINS 'a'", "b CONTAINS ''''",
    "-a", "-a = 5", "-a IS NULL", "-5 = a", "a = -5", "a > -5", "a = - -5", "a = +5", "a = -+5", "a = +-5", "+a = 5",
    "a = -'x'", "a > -'x'", "-'x' = a", "-'x' > a", "-'x' = -'y'", "a = -b", "a > -b", "-(a > 3) IS NULL",
    "-(a > 3) = b", "b = -(a > 3)", "b > -(a > 3)", "-(a > 3) > b", "-(a > 3) = -(b > 3)", "-TRUE IS NULL",
    "-(a > 3) = (b = 'x')", "5 = -(a > 3)", "-5 CONTAINS '5'", "-5", "-5 AND a", "-NULL = a",
    "(a > 3) = TRUE", "(a > 3) = FALSE", "(a > 3) = (b > 3)", "(a > 3) <> (b > 3)", "a = (b = 'x')", "(b = 'x') = a",
    "(a = 'x') = 'true'", "(a = 'x') = 5", "5 = (a = 'x')", "'true' = (a = 'x')", "a = b = c", "a = 'x' = TRUE",
    "a = 'x' = b", "(a > 3) = missing", "missing = (a > 3)", "a > 1 > 2", "(a > 1) > 2", "2 > (a > 1)",
    "(a AND b) = TRUE", "(missing AND b) = (c AND missing)", "(missing AND b) = TRUE", "TRUE = (missing AND b)",
    "a > 1 garbage", "a > 1 )", "a > 1 #", "a > 1 b #", "a > 1 'x'", "a > 1 (b > 2)", "a = 007", "a = 00", "a = 0L",
    "a = 5 5", "a = 5 NOT b", "a = 5 NOT", "a b c", "(a > 1", "a > 1;", "a = 'x' 'y'", "a = 5 -- no end",
    "a = 5 -- end\n", "a > 3 /* c */", "a > /* c */ 3", "a > /* c * c **/ 3", "a > /* no end", "a = 5 /* no end",
    "a -- c\n > 3", "a -- c\r > 3", "a\t>\n3", "a > 3 AND", "AND a", "OR", "", " ", "()", "(a)", "((a > 3))", "'x'",
    "5", "5.5", "a =", "= a", "a == 5", "a != 5", "a => 5", "a >< 5", "a < > 5", "a <> > 5", "a LIKE 'x'",
    "a = 'x", "a = x'", "a = ''''", "a = 'it''s'", "a = ''", "a = '\n'", "a = \"x\"", "a = 5 OR OR b",
    "a = .5", "a = 5.", "a = 5.E0", "a = 5E0", "a = 5e-1", "a = 1e3", "a = 0.0", "a = -0.0", "a = 0", "a = 1e400",
    "a = 1e-400", "a = 0e0", "a > 0.1", "a = 1.5.5", "a = 5E", "a = 5LL", "a = 5.0L", "a = 5f", "a = 0x1F",
    "_x = 1", "$y = 2", "A = 3", "a.b = 5", "a-b = 5", "größe = 1", "1a = 5", "NOTE = 5", "ANDY", "INN = 5",
    "a ANDb", "a>3AND b>3", "a=5OR b=5", "TAGS = 'odd'", "KEYS CONTAINS 'k2'", "TAGS IS NULL",
    "a > 3 OR a = 'x'", "a = 'x' OR a > 3", "(a > 3) OR (a IS NOT NULL)", "a IS NOT NULL AND a > 3",
    "NOT (a > 3 OR b > 3)", "NOT (a > 3 AND b > 3)", "NOT ((a > 3) IS NULL)", "((a = 5)) = ((TRUE))",
    "a BETWEEN 1 AND 3 AND b IN ('3', 'x') OR NOT (c = 'x') AND c IS NOT NULL",
)  # fmt: skip

_OPERANDS = ("a", "b", "c", "missing", "3", "5", "-5", "2147483648", "0.5", "5.0", "'x'", "'5'", "'true'", "TRUE",
             "FALSE", "NULL", "-a", "+3")  # fmt: skip


def drawn(seed: int, count: int) -> list[str]:
    """A number of expressions, most of which compile."""
    draw = random.Random(seed)
    return [_condition(draw, draw.randrange(4)) for _ in range(count)]


def _condition(draw: random.Random, depth: int) -> str:
    if depth and draw.random() < 0.8:
        left, right = _condition(draw, depth - 1), _condition(draw, depth - 1)
        return draw.choice(
            (f"{left} AND {right}", f"{left} OR {right}", f"({left}) AND ({right})", f"({left}) OR {right}",
             f"NOT ({left})", f"({left}) = ({right})", f"({left}) IS NULL", f"({left}) IS NOT NULL", f"-({left}) = a")
        )  # fmt: skip
    left, right, third = (draw.choice(_OPERANDS) for _ in range(3))
    name = draw.choice("abc")
    texts = ", ".join(draw.sample(("'x'", "'5'", "'3'", "'east'", "'true'", "''"), draw.randrange(1, 6)))
    word = draw.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
    negated = draw.choice(("", "NOT "))
    return draw.choice(
        (f"{left} {draw.choice('= <> > >= < <='.split())} {right}", f"{name} {negated}IN ({texts})",
         f"{name} {draw.choice('= <> > >= < <='.split())} {right}",
         f"{left} {negated}BETWEEN {right} AND {third}", f"{name} {negated}BETWEEN 3 AND 5",
         f"{name} {negated}{word} {draw.choice(('x', 'a', 'e', 't', ''))!r}", f"{left} IS {negated}NULL", name)
    )  # fmt: skip


def all_expressions() -> Sequence[str]:
    """Expressions of the golden data."""
    return (*WRITTEN, *drawn(92, 300))


def outcome(text: str, messages: Sequence[Mapping[str, str]]) -> str:
    """Outcome of an expression: a letter a message, as the command `filter-evaluate` of lab/interop/ says it."""
    try:
        condition = compile_expression(text)
    except ExpressionError:
        return "compile"
    columns = {name: pa.array([one.get(name) for one in messages], pa.string()) for name in condition.names}
    codes = np.broadcast_to(condition.evaluate(Columns(columns, len(messages))), len(messages))
    return "".join("FTNE"[code] for code in codes)
