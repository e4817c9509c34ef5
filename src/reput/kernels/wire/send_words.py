"""The words that Python and the kernel of `send_frames` share (`shared_words`)."""

from __future__ import annotations

from reput.formats.record_layout import MAX_PROPERTIES_SIZE
from reput.kernels.records.log_room import ROOM_WORDS
from reput.kernels.wire.remoting_header import HEADER_WORDS

#: Words after `log_room`'s, by their positions in bytes.
(
    S_AT, S_NEEDED, S_RECORDS, S_SENDS, S_SENDS_V1, S_SENDS_BATCH, S_ANSWERED,  # results
    S_LEVEL, S_LEVEL_AT, S_LEVEL_SIZE,  # of the send at hand: its delay level, 0 for none, and where its text stands
    S_TIME, S_TIME_UNIT,  # of the send at hand: the number that says when it is due, -1 for none, and its ms
    S_WAITS_IN, S_OUT_MS,  # of the send at hand: the topic where it waits, 0 for none, and the time of its slot
    S_ANSWERS, S_ANSWERS_END,
    S_SLOTS, S_SLOT_MASK, S_TOPICS, S_SCHEDULE, S_TIMERS,
    S_NOW_MS, S_MAX_DELAY_MS, S_PRECISION_MS, S_HANDLE, S_HANDLE_SIZE,
    S_BORN_HOST, S_STORE_HOST, S_STORE_HOST_HEX,
    S_SUFFIX, S_SUFFIX_SIZE, S_CLUSTER, S_CLUSTER_SIZE, S_BATCH_SUFFIX_SIZE,
    S_MAX_BODY, S_IS_SYNC, S_TAKES_BATCH_PROPERTIES,
    S_UNIQUE_PREFIX, S_MONTH_BEGIN, S_COUNTER,
    S_SCRATCH, S_TEXTS, S_TEXT_ENDS, S_TABLE,
    S_HEADER,
) = range(ROOM_WORDS * 8, 50 * 8, 8)  # fmt: skip
#: Their number.
WORDS = 49 + HEADER_WORDS

#: A topic of the table, in int64 words: address and size of its name, its number of queues, address of their numbers.
T_NAME, T_NAME_SIZE, T_QUEUES, T_NUMBERS = 0, 8, 16, 24
TOPIC_WORDS = 4

#: Most properties of a plain send, and most messages of a plain batch.
MOST_NAMES, MOST_ITEMS = 32, 4096
#: Positions in the scratch: properties that were escaped, places of their names, sizes of a batch's records.
NAMES_AT = MAX_PROPERTIES_SIZE + 64
SIZES_AT = NAMES_AT + 16 * MOST_NAMES
SCRATCH_SIZE = SIZES_AT + 4 * MOST_ITEMS
