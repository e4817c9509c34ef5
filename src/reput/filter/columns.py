"""Properties of many messages, by name, as an expression looks at them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.filter.java_numbers import NumberKind, numbers_of


class Columns:
    """Texts of the properties that an expression names; what several comparisons need is made once.

    Args:
        texts: For each name a text a message, null if the message lacks the property. They may be no UTF-8.
        rows: Number of messages.
    """

    def __init__(self, texts: Mapping[str, pa.StringArray], rows: int) -> None:
        self.texts = texts
        self.rows = rows
        self._present: dict[str, npt.NDArray[np.bool_]] = {}
        self._numbers: dict[tuple[str, NumberKind], tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]] = {}

    def is_present(self, name: str) -> npt.NDArray[np.bool_]:
        """bool[rows]: whether the message has the property."""
        found = self._present.get(name)
        if found is None:
            found = self._present[name] = self.texts[name].is_valid().to_numpy(zero_copy_only=False)
        return found

    def is_true(self, name: str) -> npt.NDArray[np.bool_]:
        """bool[rows]: whether the property is "true" in any case (`Boolean.valueOf`)."""
        return flags(pc.equal(pc.ascii_lower(self.texts[name]), "true"))

    def numbers(self, name: str, kind: NumberKind) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """See `numbers_of`."""
        found = self._numbers.get((name, kind))
        if found is None:
            found = self._numbers[name, kind] = numbers_of(self.texts[name], kind)
        return found


def flags(values: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Flags of Arrow's as NumPy's, null as False."""
    found: npt.NDArray[np.bool_] = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return found
