"""Properties by which a producer says when its message is due. Without arrays: sends of clients need them."""

from __future__ import annotations

from reput.formats.properties import DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS

#: What a producer asks for its time with, in the order in which they count.
TIMER_REQUESTS = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
#: Properties that say when a message is due: no broker looks for them inside of a batch.
NOT_IN_BATCHES = frozenset((DELAY, *TIMER_REQUESTS))
