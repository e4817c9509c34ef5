"""Parser of SQL92 expressions: its bounds, and what its errors say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from reput.filter.compiled_expressions import MAX_LENGTH, compile_expression
from reput.filter.expression_error import ExpressionError
from reput.filter.expressions import MAX_DEPTH
from reput.filter.selector_parser import MAX_TOKENS
from tests.support.expressions import outcome


def test_an_expression_names_its_properties_and_counts_its_comparisons() -> None:
    condition = compile_expression("a > 3 AND (b IS NULL OR a IN ('x', 'y'))")
    assert condition.names == {"a", "b"}
    assert condition.comparisons == 6  # AND, OR, three comparisons, and NULL


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a >", "wrong at character 3"),
        ("a > #", "wrong at character 4"),
        ("a = 5 NOT b", "wrong at character 10"),
        ("a > 'x'", "have no order"),
        ("a = NULL", "IS NULL asks for it"),
        ("5", "no condition"),
        ("a BETWEEN 5 AND 1", "the first is greater"),
        ("a = 9223372036854775808", "no number of 64 bits"),
        ("a = 0.0", "too great or too small"),
        ("5 IN ('5')", "IN is for a property"),
    ],
)
def test_an_error_says_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ExpressionError, match=said):
        compile_expression(text)


def test_nesting_is_bounded() -> None:
    assert outcome("NOT " * (MAX_DEPTH - 1) + "a", [{"a": "x"}]) == "T"  # one condition is the property's
    with pytest.raises(ExpressionError, match=f"more than {MAX_DEPTH} conditions"):
        compile_expression("NOT " * MAX_DEPTH + "a")
    assert outcome("(" * 400 + "a = 'x'" + ")" * 400, [{"a": "x"}]) == "T"  # brackets alone nest nothing


def test_words_are_bounded_and_a_list_is_one_of_them() -> None:
    assert outcome(" OR ".join(["a = 'x'"] * (MAX_TOKENS // 4)), [{"a": "x"}]) == "T"
    with pytest.raises(ExpressionError, match="words and signs"):
        compile_expression(" OR ".join(["a = 'x'"] * (MAX_TOKENS // 4 + 1)))
    texts = ", ".join(f"'{i}'" for i in range(3000))
    assert outcome(f"a IN ({texts})", [{"a": "2999"}, {"a": "3000"}]) == "TF"


def test_length_is_bounded() -> None:
    with pytest.raises(ExpressionError, match=f"{MAX_LENGTH} are the most"):
        compile_expression("a = 'x" + "x" * MAX_LENGTH + "'")


def test_a_text_with_a_lone_surrogate_equals_nothing() -> None:
    assert outcome("a = '\ud800' OR a IN ('\ud800') OR a CONTAINS '\ud800'", [{"a": "x"}]) == "F"


def test_lark_and_arrow_are_imported_by_the_first_expression() -> None:
    code = (
        "import sys; from reput.filter.compiled_expressions import compile_expression, take_short\n"
        "assert take_short(['a = 5']) and sys.modules.keys().isdisjoint({'lark', 'numpy', 'pyarrow'})\n"
        "compile_expression('a = 5')\n"
        "assert {'lark', 'pyarrow'} <= sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
