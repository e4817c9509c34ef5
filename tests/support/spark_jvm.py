"""Options of the JVMs of Spark that tests start, each for seconds."""

from __future__ import annotations

import os

#: One compiler, and a garbage collector without threads: a session with two small queries takes 14 s of processors
#: instead of 21. Both make long jobs slower, which tests do not have.
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def start_fast() -> None:
    """Let the JVMs of this process, and of those that it starts, have these options before their own."""
    os.environ["SPARK_SUBMIT_OPTS"] = FAST_START
