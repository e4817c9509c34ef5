"""Frames between a master and a slave: reports of the slave, and pieces of the log (`DefaultHAConnection`)."""

from __future__ import annotations

from struct import Struct

#: Slave to master: the slave's log end.
REPORT = Struct(">q")
#: Master to slave: commit log offset of the first byte, and how many bytes follow; none: a sign of life.
FRAME_HEADER = Struct(">qi")
#: Bytes of a frame at the most, its header counted: a slave of RocketMQ's buffers no more.
MAX_FRAME_SIZE = 4 << 20
#: Seconds after which either side tells that it lives, and after which it takes the other one for gone.
HEARTBEAT_S, SILENCE_S = 5.0, 20.0
