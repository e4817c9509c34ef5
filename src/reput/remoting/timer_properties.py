"""Properties by which a producer says when its message is due, and what of them a copy of the message gets.

Without arrays: sends of clients need them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from reput.formats.properties import (
    DELAY,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRAN_MSG,
)

_Value = TypeVar("_Value")

#: What a producer asks for its time with, in the order in which they count.
TIMER_REQUESTS = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
#: Properties that say when a message is due: no broker looks for them inside of a batch.
NOT_IN_BATCHES = frozenset((DELAY, *TIMER_REQUESTS))
#: Properties of a transaction: a producer of rows ends none, so a row with them would never be seen by consumers.
TRANSACTION = frozenset((TRAN_MSG, PGROUP))
#: What a copy of a message with REAL_TOPIC does not get: a broker has kept that message back, until its time came.
DONE = TRANSACTION | NOT_IN_BATCHES | {REAL_TOPIC, REAL_QID}


def of_copy(properties: Mapping[str, _Value]) -> dict[str, _Value]:
    """The properties of a row that is sent: none of a transaction, and no time if its message has waited for it."""
    left_out = DONE if REAL_TOPIC in properties else TRANSACTION
    return {name: value for name, value in properties.items() if name not in left_out}
