"""The block that Python and the kernel of `send_frames` share: int64 words at an address."""

from __future__ import annotations

from reput.formats.record_layout import MAX_PROPERTIES_SIZE
from reput.kernels.records.log_room import ROOM_WORDS
from reput.kernels.wire.remoting_header import HEADER_WORDS

#: Words of the block after those of `log_room`, by their positions in bytes.
(
    B_AT, B_NEEDED, B_RECORDS, B_SENDS, B_SENDS_V1, B_SENDS_BATCH, B_ANSWERED,  # results
    B_ANSWERS, B_ANSWERS_END,
    B_SLOTS, B_SLOT_MASK, B_TOPICS,
    B_BORN_HOST, B_STORE_HOST, B_STORE_HOST_HEX,
    B_SUFFIX, B_SUFFIX_SIZE, B_CLUSTER, B_CLUSTER_SIZE, B_BATCH_SUFFIX_SIZE,
    B_MAX_BODY, B_IS_SYNC, B_TAKES_BATCH_PROPERTIES,
    B_UNIQUE_PREFIX, B_MONTH_BEGIN, B_COUNTER,
    B_SCRATCH, B_TEXTS, B_TEXT_ENDS, B_TABLE,
    B_HEADER,
) = range(ROOM_WORDS * 8, 36 * 8, 8)  # fmt: skip
#: Words of a block.
BLOCK_WORDS = 35 + HEADER_WORDS

#: A topic of the table, in int64 words: address and size of its name, its number of queues, address of their numbers.
T_NAME, T_NAME_SIZE, T_QUEUES, T_NUMBERS = 0, 8, 16, 24
TOPIC_WORDS = 4

#: Most properties of a plain send, and most messages of a plain batch.
MOST_NAMES, MOST_ITEMS = 32, 4096
#: Positions in the scratch: properties that were escaped, places of their names, sizes of a batch's records.
NAMES_AT = MAX_PROPERTIES_SIZE + 64
SIZES_AT = NAMES_AT + 16 * MOST_NAMES
SCRATCH_SIZE = SIZES_AT + 4 * MOST_ITEMS
