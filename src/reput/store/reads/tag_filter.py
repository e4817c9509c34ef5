"""Tag expressions of pulls, as `a || b`: which messages they choose."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files import Mapping
from reput.formats.java import string_hash
from reput.kernels.queues.index_search import scratch_row
from reput.kernels.records.tags import keep_matching_tags

#: Characters of a tag expression that is remembered: a client may send others of megabytes, and of each another one.
_MOST_REMEMBERED = 512


class TagFilter(NamedTuple):
    """A tag expression, ready for the kernels: hashes int32[n], and the texts one after the other.

    Addresses are taken once, as asking for one costs 1 us.
    """

    hashes: npt.NDArray[np.int32]
    address: int
    texts: npt.NDArray[np.uint8]
    texts_address: int
    text_offsets: npt.NDArray[np.int32]

    def keep_matching(self, mapping: Mapping, base_offset: int, pairs: int, count: int) -> int:
        """Keep the pairs of messages whose tags have a wanted text, at the front; returns their number.

        Args:
            mapping: The log file of the messages.
            base_offset: Its first commit log offset.
            pairs: Address of int64[count, 2], commit log offset and size of each message; changed.
            count: Number of messages.
        """
        return int(
            keep_matching_tags(
                mapping.address, mapping.size, base_offset, pairs, count, self.texts_address, self.text_offsets,
                *scratch_row(),
            )
        )  # fmt: skip


def parse_tags(expression: str) -> TagFilter | None:
    """Parse a tag expression such as `a || b`; None for empty or `*`, all tags (`FilterAPI.buildSubscriptionData`)."""
    parse = _parse if len(expression) <= _MOST_REMEMBERED else _parse.__wrapped__
    return parse(expression)


@lru_cache(maxsize=1024)
def _parse(expression: str) -> TagFilter | None:
    if expression.strip() in ("", "*"):
        return None
    tags = [tag for tag in (text.strip() for text in expression.split("||")) if tag]
    hashes = np.array([string_hash(tag) for tag in tags], np.int32)
    encoded = [tag.encode("utf-8", "replace") for tag in tags]  # as Java: half of a pair is "?"
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    texts = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
    return TagFilter(hashes, hashes.ctypes.data, texts, texts.ctypes.data, offsets)
