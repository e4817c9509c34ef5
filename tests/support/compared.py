"""Count of comparisons with Apache RocketMQ in this run, by all its processes; conftest.py prints it."""

from __future__ import annotations

from collections import Counter

COMPARED: Counter[str] = Counter()
