"""The store of a shop on one morning, which the pages of the documentation look at."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

from reput import Message, MessageStore

#: 2026-05-04, 08:00 UTC; a message is stored every 20 s.
MORNING_S = 1_777_881_600


def make_shop(path: Path) -> Path:
    """120 orders and 60 payments of 40 minutes, with JSON in their bodies, tags and keys."""
    with MessageStore.open(path, small=True) as store:
        for number in range(120):
            with patch("time.time", lambda now_s=MORNING_S + 20 * number: now_s):
                order = {"id": number, "region": ("eu", "us", "asia")[number % 3], "total": 10 + number % 7}
                tag = "shipped" if number % 4 == 3 else "paid"
                store.put_message(
                    Message("orders", json.dumps(order).encode(), tags=tag, keys=[f"o-{number}"]), queue_id=number % 2
                )
                if number % 2:
                    payment = Message("payments", json.dumps({"order": number}).encode(), keys=[f"o-{number}"])
                    store.put_message(payment, queue_id=0)
        store.wait_dispatched()
    return path
