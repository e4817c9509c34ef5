"""A process that opens stores read-only, looks at the newest messages, and closes, whatever is done to them meanwhile.

    python -m lab.campaign.soak.reader FILE STORE...

It tells FILE what it has read, or what was wrong.
"""

from __future__ import annotations

import sys
import time

import reput
from lab.campaign.soak.load import PLAIN_TOPICS
from lab.campaign.soak.telling import Teller, check_message
from reput.log.directory import is_gone

_NEWEST = 100
_PAUSE_S = 1


def look(path: str, teller: Teller) -> None:
    """The newest messages of each queue follow each other, bodies are right, and keys lead to their own messages."""
    with reput.MessageStore.open(path, read_only=True) as store:
        if store.recovery.damage is not None:
            raise store.recovery.damage
        for queue in store.queues():
            if queue.topic not in PLAIN_TOPICS:
                continue
            offset = max(queue.min_offset, queue.max_offset - _NEWEST)
            keys = []
            while offset < queue.max_offset:
                result = store.get_message(queue.topic, queue.queue_id, offset)
                if result.status is not reput.GetMessageStatus.FOUND:
                    break
                for message in result.messages():
                    assert message.queue_offset == offset, f"{queue.topic} {queue.queue_id}: {offset} is left out"
                    keys.append(check_message(message))
                    offset += 1
            teller.count("read", len(keys))
            for key, found in store.query_messages(queue.topic, keys[:5]).items():
                assert len(found) <= 1, f"{key} is there {len(found)} times"
                for message in found:
                    assert check_message(message) == key
                    teller.count("read by key")
    teller.count("opened read-only")


def main() -> None:
    told, *paths = sys.argv[1:]
    teller = Teller(told)
    while True:
        for path in paths:
            try:
                look(path, teller)
            except reput.StoreFormatError:  # before the first start of its writer
                teller.count("no store yet")
            except BaseException as error:
                if is_gone(error):
                    teller.count("readers overtaken by retention")
                    continue
                teller.fail(error)
            time.sleep(_PAUSE_S)
        teller.tell_counts()


if __name__ == "__main__":
    main()
