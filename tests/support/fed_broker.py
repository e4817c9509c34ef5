"""A broker that is fed with frames without sockets, in its plain way or by its kernels; its clock may stand still."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import reput
from reput.broker.broker import BrokerController
from reput.config.broker import BrokerConfig
from reput.config.message_store import MessageStoreConfig
from reput.formats.hosts import encode_host
from reput.remoting.command import RemotingCommand, decode_command, encode_answer, frame_size
from reput.remoting.frame_buffer import FrameBuffer
from tests.support.send_streams import TOPICS

#: What a broker makes for a message without an id has its process in it, and two ways count by themselves.
_MADE_IDS = re.compile(rb"(UNIQ_KEY\x01|transactionId\":\")[0-9A-F]{32}")
_HANDLES = re.compile(rb"(?<=recallHandle\":\")[^\"]+")


class Peer:
    """A connection without a socket: what is fed is received, what is written is kept."""

    def __init__(self) -> None:
        self.frames = FrameBuffer()
        self.remote = "127.0.0.1:5555"
        self.host = encode_host(self.remote)
        self.is_open, self.is_paused = True, False
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def answer(self, answer: RemotingCommand | bytes) -> None:
        self.write(encode_answer(answer))

    def takes_more(self) -> bool:
        return self.is_open and not self.is_paused

    def feed(self, data: bytes) -> Iterator[None]:
        """Receive bytes, read by read."""
        while data:
            room = self.frames.room()
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self.frames.received(size)
            data = data[size:]
            yield

    def answers(self) -> list[RemotingCommand]:
        found, rest = [], self.written
        while rest:
            size = frame_size(rest)
            found.append(decode_command(rest[:size]))
            rest = rest[size:]
        return found


def serve(
    path: Path, work: Callable[[BrokerController, Peer], None], *, plain_way: bool = False, **options: object
) -> tuple[bytes, Peer]:
    """(the bytes of the log, the peer) after a broker did some work; its clock stands still."""

    async def run() -> tuple[bytes, Peer]:
        config = MessageStoreConfig.from_mapping(
            {"flush_disk_type": "ASYNC_FLUSH", "mapped_file_size_commit_log": 1 << 18, **options},
            MessageStoreConfig(listen_port=0),
        )
        controller = BrokerController(str(path), BrokerConfig(), config, namesrv_port=0)
        await controller.start()
        try:
            state, peer = controller._state, Peer()
            state.store.update_topics([reput.TopicConfig(name, queues, queues) for name, queues in TOPICS])
            controller._services.sends._is_usable &= not plain_way
            work(controller, peer)
            files = state.store._log.queue.mapped_files
            return b"".join(bytes(file.view[: file.wrote_position]) for file in files), peer
        finally:
            await controller.stop()

    return asyncio.run(run())


def without_ids(data: bytes, port: int) -> bytes:
    """Bytes with made ids left out, and the broker's port, which differs from start to start."""
    host = encode_host(f"127.0.0.1:{port}")
    data = data.replace(host, bytes(8)).replace(host.hex().upper().encode(), b"0" * 16)
    data = _HANDLES.sub(lambda handle: base64.urlsafe_b64decode(handle[0]).rpartition(b" ")[0], data)
    return _MADE_IDS.sub(rb"\g<1>", data)
