"""Memory in the place of a map whose pages were all asked for, for kernels that read maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reput.kernels.machine.mapped_pages import PART_SHIFT, MapFields


def map_of(data: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """A block that begins with the `MapFields` of an array; hold both while a kernel reads."""
    block = np.full(5 + (data.nbytes >> PART_SHIFT) // 8 + 1, -1, np.int64)
    block[:4] = MapFields(data.ctypes.data, data.nbytes, block.ctypes.data + 32, 4096)
    return block
