"""The words that Python and the kernels of `send_back_frames` share (`shared_words`)."""

from __future__ import annotations

from reput.kernels.records.log_room import ROOM_WORDS
from reput.kernels.wire.remoting_header import HEADER_WORDS

#: Words after `log_room`'s, by their positions in bytes.
(
    S_NEEDED, S_ANSWERED, S_ORIGIN, S_ORIGIN_SIZE, S_IS_DEAD,  # results
    S_ROWS, S_RECORDS, S_ANSWERS, S_ANSWERS_END,
    S_GROUP, S_GROUP_SIZE, S_RETRY, S_RETRY_SIZE, S_RETRY_QUEUES, S_MOST_TIMES,
    S_DEAD, S_DEAD_SIZE, S_DEAD_NUMBER,  # the topic of dead letters; size 0: it is not there
    S_SCHEDULE, S_SCHEDULE_SIZE, S_LEVELS, S_NUMBERS,
    S_STORE_HOST, S_RANDOM, S_NAMES, S_SCRATCH,
    S_HEAD, S_HEAD_SIZE, S_TAIL, S_TAIL_SIZE, S_TABLE,
    S_HEADER,
) = range(ROOM_WORDS * 8, (ROOM_WORDS + 32) * 8, 8)  # fmt: skip
#: Their number.
WORDS = ROOM_WORDS + 31 + HEADER_WORDS

#: A request, in int64 words: what it asks for, and the address of the frame after it.
R_OFFSET, R_LEVEL, R_MOST_TIMES, R_OPAQUE, R_END = range(0, 40, 8)
ROW_WORDS = 5
#: A request that leaves the limit of attempts to its group.
OF_GROUP = -1
#: Most requests of a call, and room for the answer to one.
MOST_REQUESTS, ANSWER_BYTES = 64, 256
