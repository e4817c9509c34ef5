"""Stalls of a broker's event loop: how late it answers a cheap request while it has other work.

`python -m lab.bench.loop_stalls HOST:PORT SECONDS` prints one JSON object; beside a load, in a process of its own. The
request asks who is in a group that nobody is in. It reads no message and waits for nothing, so its answer comes as soon
as the loop turns. Apache's broker answers it, too.
"""

from __future__ import annotations

import json
import socket
import sys
import time

import numpy as np
import numpy.typing as npt

from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand, encode_command
from reput.remoting.frame_buffer import FrameBuffer

#: One request is due every millisecond. While an answer is late, all requests count that were due meanwhile.
_INTERVAL_S = 0.001


def stalls(address: str, seconds: float) -> npt.NDArray[np.float64]:
    """float64[requests], in seconds: how long after it was due each request was answered.

    Args:
        address: "host:port" of a broker.
        seconds: How long to ask.
    """
    host, _, port = address.rpartition(":")
    fields = {"consumerGroup": "nobody"}
    frame = encode_command(RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, 1, ext_fields=fields))
    count = int(seconds / _INTERVAL_S)
    late = np.empty(count)
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames, begin, answered = FrameBuffer(), time.perf_counter(), 0.0
        for number in range(count):
            due = begin + number * _INTERVAL_S
            if answered < due:
                time.sleep(max(0.0, due - time.perf_counter()))
                connection.sendall(frame)
                while frames.frame() is None:
                    size = connection.recv_into(frames.room())
                    if not size:
                        raise ConnectionError(f"{address}: closed the connection")
                    frames.received(size)
                answered = time.perf_counter()
            late[number] = answered - due
    return late


def main() -> None:
    """Ask the broker of the command line, and print percentiles in milliseconds."""
    address, seconds = sys.argv[1:]
    late = stalls(address, float(seconds)) * 1000
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    print(json.dumps({name: round(float(np.quantile(late, share)), 3) for name, share in shares.items()}))


if __name__ == "__main__":
    main()
