"""Parser of SQL92 expressions (`SelectorParser`): `a > 3 AND region IN ('east', 'west')` becomes a condition.

Needs lark, which comes with `reput[broker]`; it is imported by the first `parse`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from reput.filter.expression_error import ExpressionError
from reput.filter.expressions import (
    FALSE,
    NULL,
    TRUE,
    Condition,
    Constant,
    Number,
    Operand,
    PropertyExpression,
    Text,
    between,
    condition,
    conjunction,
    disjunction,
    equal,
    in_list,
    is_null,
    negate,
    negation,
    not_between,
    order,
    search,
)
from reput.filter.java_numbers import NumberKind
from reput.formats.java import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from lark import Lark

#: Bound of one expression, so that compiling takes the broker's loop a few ms at most. A list of IN is one token.
MAX_TOKENS = 1024

_BLANK = r"(?:[ \t\n\r\f]|--[^\n\r]*[\n\r]|\/\*[^*]*\*(?:\*|[^*\/][^*]*\*)*\/)"
_TEXT = r"'[^']*(?:''[^']*)*'"
_END = r"(?![A-Za-z0-9_$])"
_SEARCHES = "CONTAINS STARTSWITH ENDSWITH".split()
_KEYWORDS = "NOT AND OR BETWEEN IN TRUE FALSE NULL IS".split() + _SEARCHES
_KEYWORD_TERMINALS = "\n".join(f"_{word}.2: /{word}{_END}/i" for word in _KEYWORDS if word not in ("IN", *_SEARCHES))

#: Priorities and looks ahead make the lexer take the longest token, as JavaCC's does.
_GRAMMAR = rf"""
?start: or_expression
?or_expression: and_expression (_OR and_expression)*
?and_expression: equality (_AND equality)*
?equality: comparison
    | equality "=" comparison   -> equal
    | equality "<>" comparison   -> not_equal
    | equality _IS _NULL   -> is_null
    | equality _IS _NOT _NULL   -> is_not_null
?comparison: unary
    | comparison ORDER unary   -> order
    | comparison SEARCH TEXT   -> search
    | comparison _NOT SEARCH TEXT   -> not_search
    | comparison _BETWEEN unary _AND unary   -> between
    | comparison _NOT _BETWEEN unary _AND unary   -> not_between
    | comparison IN_LIST   -> in_list
    | comparison _NOT IN_LIST   -> not_in_list
?unary: "+" unary
    | "-" unary   -> negate
    | _NOT unary   -> negation
    | primary
?primary: TEXT   -> text
    | DECIMAL   -> decimal
    | FLOAT   -> floating_point
    | _TRUE   -> true
    | _FALSE   -> false
    | _NULL   -> null
    | ID   -> property
    | "(" or_expression ")"

ORDER: />=|<=|>|<(?!>)/
SEARCH.2: /(?:{"|".join(_SEARCHES)}){_END}/i
IN_LIST.3: /IN{_BLANK}*\({_BLANK}*{_TEXT}{_BLANK}*(?:,{_BLANK}*{_TEXT}{_BLANK}*)*\)/i
{_KEYWORD_TERMINALS}
FLOAT.1: /(?:[0-9]+\.[0-9]*(?:E[+-]?[0-9]+)?|\.[0-9]+(?:E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+)/i
DECIMAL: /0|[1-9][0-9]*L?/i
TEXT: /{_TEXT}/
ID: /(?!(?:{"|".join(_KEYWORDS)}){_END})[A-Z_$][A-Z0-9_$]*/i
BLANK.4: /{_BLANK}+/
%ignore BLANK
"""


_LISTED = re.compile(f"{_BLANK}|(?P<text>{_TEXT})")


def parse(text: str) -> Condition | ExpressionError:
    """The condition that an expression means, or what is wrong with it; use `compile_expression`."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    parser = _parser().parse_interactive(text)
    position: int | None = len(text)
    try:
        for count, token in enumerate(parser.lexer_thread.lex(parser.parser_state)):
            if count == MAX_TOKENS:
                return ExpressionError(f"the expression has more than {MAX_TOKENS} words and signs")
            try:
                parser.feed_token(token)
            except UnexpectedToken:
                position = token.start_pos
                break
        return condition(parser.feed_eof())
    except UnexpectedToken:
        return ExpressionError(f"the expression is wrong at character {position}")
    except UnexpectedCharacters as error:
        return ExpressionError(f"the expression is wrong at character {error.pos_in_stream}")
    except ExpressionError as error:
        return error


@cache
def _parser() -> Lark:
    from lark import Lark

    nodes = {rule: partial(_make, node) for rule, node in _NODES.items()}
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=SimpleNamespace(**nodes))


def _make(node: Callable[..., Operand], children: list[Any]) -> Operand:
    return node(*children)


def _decode(token: str) -> str:
    """A text without its quotes."""
    return token[1:-1].replace("''", "'")


def _decode_list(token: str) -> tuple[str, ...]:
    """The texts of a list of IN, between which there may be comments."""
    return tuple(_decode(found["text"]) for found in _LISTED.finditer(token) if found["text"])


def _decimal(token: str) -> Number:
    digits = token.rstrip("lL")
    if len(digits) > 19 or int(digits) > INT64_MAX:
        raise ExpressionError(f"{digits[:30]} is no number of 64 bits")
    value = int(digits)
    return Number(value, NumberKind.INTEGER if value <= INT32_MAX else NumberKind.LONG)


def _floating_point(token: str) -> Number:
    value = float(token)
    if value in (0.0, math.inf):  # as in RocketMQ, 0.0 is none
        raise ExpressionError(f"{token[:30]} is too great or too small")
    return Number(value, NumberKind.DOUBLE)


#: What makes the node of each rule.
_NODES: dict[str, Callable[..., Operand]] = {
    "or_expression": disjunction,
    "and_expression": conjunction,
    "equal": equal,
    "not_equal": lambda left, right: negation(equal(left, right)),
    "is_null": is_null,
    "is_not_null": lambda operand: negation(is_null(operand)),
    "order": order,
    "search": lambda operand, name, text: search(operand, name, _decode(text), negated=False),
    "not_search": lambda operand, name, text: search(operand, name, _decode(text), negated=True),
    "between": between,
    "not_between": not_between,
    "in_list": lambda operand, texts: in_list(operand, _decode_list(texts), negated=False),
    "not_in_list": lambda operand, texts: in_list(operand, _decode_list(texts), negated=True),
    "negate": negate,
    "negation": negation,
    "text": lambda token: Text(_decode(token)),
    "decimal": _decimal,
    "floating_point": _floating_point,
    "true": lambda: Constant(TRUE),
    "false": lambda: Constant(FALSE),
    "null": lambda: Constant(NULL),
    "property": lambda token: PropertyExpression(str(token)),
}
