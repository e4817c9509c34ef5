"""ExpressionFilter: chooses messages by an SQL92 expression (`ExpressionMessageFilter`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reput.filter.compiled_expressions import compile_expression

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

#: Comparisons up to which an event loop may wait: a call of the filter takes some 10 us for each of them.
_SHORT = 32
#: Messages of one pull, and comparisons with all of them.
_MOST_ROWS, _MOST_COMPARISONS = 800, 25_600


class ExpressionFilter:
    """A `reput.store.reads.message_filter.MessageFilter`.

    A message whose evaluation throws, or gives null, is not wanted.

    Args:
        expression: An SQL92 expression.

    Raises:
        ExpressionError: It does not compile.
    """

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._condition = compile_expression(expression)
        self.names = tuple(sorted(self._condition.names))
        comparisons = self._condition.comparisons
        self.is_short = comparisons <= _SHORT
        self.most_rows = min(_MOST_ROWS, max(_MOST_COMPARISONS // comparisons, 1))

    def matches(self, texts: Mapping[str, pa.StringArray], rows: int) -> npt.NDArray[np.bool_]:
        """bool[rows]: which messages are wanted."""
        return self._condition.is_true(texts, rows)
