"""A master in threads: what a broker says of its log, and the log itself on an HA port, as a test wants it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reput.formats.metadata import TopicConfig, Topics, encode_metadata
from reput.formats.replication import FRAME_HEADER, REPORT
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand, decode_command, encode_command, frame_size


class FakeMaster:
    """Serves the log of a store's files.

    Attributes:
        log: Commit log offset of its first byte, and the bytes from there on; may be replaced at any time.
        file_size: `mappedFileSizeCommitLog`.
        topics: By name.
        begins: Of topics that were deleted, by name.
        told: What it says of its log's begin and end; None: the truth.
        refuses: It answers nothing but that it does not know who asks; the log it serves all the same.
        hangs_up: It ends the connection of whoever asks something; the log it serves all the same.
        asked: Codes of what it was asked.
        piece: Bytes of a frame at the most.
        change: Changes each frame before it is sent.
        cut_after: Frames after which it closes a connection; None: never.
        reports: All reports, a list for each connection.
    """

    def __init__(self, log: tuple[int, bytes], file_size: int) -> None:
        self.log, self.file_size = log, file_size
        self.topics: dict[str, TopicConfig] = {}
        self.begins: dict[str, int] = {}
        self.told: tuple[int, int] | None = None
        self.refuses = self.hangs_up = False
        self.asked: list[int] = []
        self.piece = 32_768
        self.cut_after: int | None = None
        self.change: Callable[[int, bytes], tuple[int, bytes]] = lambda offset, body: (offset, body)
        self.reports: list[list[int]] = []
        self._ha, self._remoting = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
        self._ha_port = self._ha.getsockname()[1]
        self._open: set[socket.socket] = set()
        for server, serve in ((self._ha, self._replicate), (self._remoting, self._answer)):
            threading.Thread(target=self._accept, args=(server, serve), daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._remoting.getsockname()[1]}"

    @property
    def ha_address(self) -> str:
        return f"127.0.0.1:{self._ha_port}"

    def close_ha(self) -> None:
        """Nobody listens at its HA port any more."""
        self._close(self._ha)

    def close(self) -> None:
        self._close(self._ha, self._remoting, *self._open)

    @staticmethod
    def _close(*sockets: socket.socket) -> None:
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, server: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        def run(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                serve(connection)

        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                self._open.add(connection)
                threading.Thread(target=run, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        data = b""
        while received := connection.recv(4096):
            data += received
            while len(data) >= 8 and len(data) >= (size := frame_size(data[:8])):
                command, data = decode_command(data[:size]), data[size:]
                self.asked.append(command.code)
                if self.hangs_up:
                    return
                if self.refuses:
                    answer = RemotingCommand(
                        ResponseCode.NO_PERMISSION, command.opaque, remark="check signature failed."
                    )
                else:
                    answer = RemotingCommand(0, opaque=command.opaque, body=self._body(command.code))
                answer.flag = 1
                connection.sendall(encode_command(answer))

    def _body(self, code: int) -> bytes:
        begin, data = self.log
        if code == RequestCode.GET_BROKER_CONFIG:
            return f"haListenPort={self._ha_port}\nmappedFileSizeCommitLog={self.file_size}\n".encode()
        if code == RequestCode.GET_ALL_TOPIC_CONFIG:
            return encode_metadata(Topics(self.topics, begin_offset_table=self.begins))
        first, last = self.told or (begin, begin + len(data))
        return json.dumps({"table": {"commitLogMinOffset": str(first), "commitLogMaxOffset": str(last)}}).encode()

    def _replicate(self, connection: socket.socket) -> None:
        """Frames from the first report on, a heartbeat at each further report where nothing is to be sent.

        Report 0 is for all of the log, as of reput's master.
        """
        reports: list[int] = []
        self.reports.append(reports)
        at = self._report(connection, reports) or self.log[0]
        connection.setblocking(False)
        frames = 0
        while self.cut_after is None or frames < self.cut_after:
            begin, data = self.log
            body = data[at - begin : at - begin + min(self.piece, self.file_size - at % self.file_size)]
            if not body:
                connection.settimeout(0.05)
                connection.sendall(FRAME_HEADER.pack(at, 0))
            with suppress(TimeoutError, BlockingIOError):
                self._report(connection, reports)
            if body:
                connection.settimeout(None)
                offset, changed = self.change(at, body)
                connection.sendall(FRAME_HEADER.pack(offset, len(changed)) + changed)
                at += len(body)
                frames += 1
                connection.setblocking(False)

    def _report(self, connection: socket.socket, reports: list[int]) -> int:
        received = connection.recv(REPORT.size)
        if len(received) != REPORT.size:
            raise OSError("a follower has closed the connection")
        reports.append(REPORT.unpack(received)[0])
        return reports[-1]


def log_of(store: Path, end: int, begin: int = 0) -> tuple[int, bytes]:
    """The log of a store from the file that begins at `begin` up to an offset."""
    files = sorted((store / "commitlog").iterdir())
    data = b"".join(path.read_bytes() for path in files if int(path.name) >= begin)
    return begin, data[: end - begin]


@contextmanager
def fake_master(log: tuple[int, bytes], file_size: int) -> Iterator[FakeMaster]:
    master = FakeMaster(log, file_size)
    try:
        yield master
    finally:
        master.close()
