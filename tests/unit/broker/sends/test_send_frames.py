"""The kernel of sends gives the same bytes in the log, and the same answers, as one send at a time."""

from __future__ import annotations

import random
from contextlib import nullcontext
from pathlib import Path

import pytest

import reput
from reput.broker.broker import BrokerController
from reput.errors import StoreFullError
from reput.kernels.wire.send_frames import SendFrames, Stop
from reput.remoting.codes import RequestCode, SerializeType
from reput.remoting.command import RemotingCommand, decode_command, encode_command
from tests.support.fed_broker import Peer, serve, without_ids
from tests.support.frames import recorded_frames
from tests.support.send_streams import send_stream


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.123)
    monkeypatch.setattr("random.randrange", lambda *_: 0)  # the queue of a send that leaves it to the broker
    # Files are made at once, so that each answer is, too: answers that wait for files would come in another order.
    monkeypatch.setattr("reput.broker.appends.loop_dispatch.NeverWaiting", nullcontext)


@pytest.mark.usefixtures("still_clock")
@pytest.mark.parametrize("seed", range(4))
def test_a_stream_of_sends_gives_the_same_log_and_the_same_answers_as_one_send_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    stream, reads = b"".join(send_stream(seed, 300)), []
    while stream:
        size = rng.choice([100, 5_000, 60_000])
        reads.append(stream[:size])
        stream = stream[size:]
    taken = {True: 0, False: 0}
    take = SendFrames.take
    ports: dict[bool, int] = {}

    def results(plain_way: bool) -> tuple[bytes, bytes]:
        def work(controller: BrokerController, peer: Peer) -> None:
            def counted(kernel: SendFrames, *arguments: int) -> Stop:
                stop = take(kernel, *arguments)
                taken[plain_way] += sum(kernel.sends.values())
                return stop

            monkeypatch.setattr(SendFrames, "take", counted)
            ports[plain_way] = int(controller.address.rpartition(":")[2])
            for read in reads:
                for _ in peer.feed(read):
                    controller._services.sends.take_all(peer)  # type: ignore[arg-type]

        log, peer = serve(tmp_path / str(plain_way), work, plain_way=plain_way)
        return without_ids(log, ports[plain_way]), without_ids(peer.written, ports[plain_way])

    assert results(plain_way=False) == results(plain_way=True)
    assert taken[False] > 100, "the kernel must take most of them"
    assert taken[True] == 0


@pytest.mark.parametrize("client", ["Java 4.9.7", "Java client 5.3.3", "Node ali-ons", "go", "C++"])
def test_the_sends_that_real_clients_wrote_are_plain(tmp_path: Path, client: str) -> None:
    codes = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
    sends = [
        one.frame
        for one in recorded_frames()
        if client in one.name
        and one.header["code"] in codes
        and not one.header["flag"] & 1
        and not (b"DELAY" in one.frame or b"TRAN_MSG" in one.frame)
    ]
    assert sends
    plain = [0]

    def work(controller: BrokerController, peer: Peer) -> None:
        kernel, store = controller._services.sends._kernel, controller._state.store
        for frame in sends:
            command = decode_command(frame)
            fields = command.ext_fields or {}
            topic = fields.get("b") or fields["topic"]
            kernel.topics.add_topic(topic, store.loop_writer().number_queues(topic, 8))
            for _ in peer.feed(frame):
                controller._services.sends.take_all(peer)  # type: ignore[arg-type]
            plain[0] += kernel.records > 0

    _, peer = serve(tmp_path, work)
    assert plain[0] == len(sends)
    answered = [frame for frame in sends if not decode_command(frame).is_one_way]
    assert [answer.code for answer in peer.answers()] == [0] * len(answered)


def test_a_file_without_room_and_a_full_buffer_of_answers_stop_no_send(tmp_path: Path) -> None:
    send = RemotingCommand(
        RequestCode.SEND_MESSAGE_V2,
        ext_fields={"a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1", "h": "0"},
        body=bytes(10_000),
        serialize_type=SerializeType.ROCKETMQ,
    )
    count = 100  # four files of 256 KiB

    def work(controller: BrokerController, peer: Peer) -> None:
        words, kernel = controller._services.sends._kernel.words, controller._services.sends._kernel
        assert isinstance(kernel, SendFrames)
        from reput.kernels.wire.send_words import S_ANSWERS, S_ANSWERS_END

        words[S_ANSWERS_END // 8] = words[S_ANSWERS // 8] + 5_000  # two answers
        for opaque in range(count):
            send.opaque = opaque
            for _ in peer.feed(encode_command(send)):
                controller._services.sends.take_all(peer)  # type: ignore[arg-type]

    log, peer = serve(tmp_path, work)
    answers = peer.answers()
    assert [answer.opaque for answer in answers] == list(range(count))
    assert [int((answer.ext_fields or {})["queueOffset"]) for answer in answers] == list(range(count))
    assert len(log) > 3 * (1 << 18)


def test_a_large_message_goes_into_the_rest_of_a_file_where_it_fits(tmp_path: Path) -> None:
    fields = {"a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1", "h": "0"}
    frame = encode_command(RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=bytes(80_000)))

    def work(controller: BrokerController, peer: Peer) -> None:
        for _ in range(3):
            for _ in peer.feed(frame):
                controller._services.sends.take_all(peer)  # type: ignore[arg-type]

    log, peer = serve(tmp_path, work)
    assert len(peer.answers()) == 3
    assert 240_000 < len(log) < 1 << 18, "all in the first file"


def test_a_store_that_takes_nothing_more_answers_whole_frames_and_waits_for_the_rest(tmp_path: Path) -> None:
    fields = {"a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1", "h": "0"}
    frame = encode_command(RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=b"x"))

    def work(controller: BrokerController, peer: Peer) -> None:
        controller._state.store._log.refuse_while_full(StoreFullError("the disk is full"))
        for read in (frame + frame[:20], frame[20:]):
            for _ in peer.feed(read):
                controller._services.sends.take_all(peer)  # type: ignore[arg-type]
        controller._state.store._log.refuse_while_full(None)

    _, peer = serve(tmp_path, work)
    assert [answer.code for answer in peer.answers()] == [14, 14]


def test_a_topic_that_changes_is_looked_at_again(tmp_path: Path) -> None:
    fields = {"a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1", "h": "0"}
    frame = encode_command(RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=b"x"))

    def work(controller: BrokerController, peer: Peer) -> None:
        store = controller._state.store
        for queues in (4, 4, 2, 4):
            store.update_topics([reput.TopicConfig("orders", queues, queues)])
            for _ in peer.feed(frame):
                controller._services.sends.take_all(peer)  # type: ignore[arg-type]

    _, peer = serve(tmp_path, work)
    assert [answer.code for answer in peer.answers()] == [0, 0, 29, 0]


def test_a_store_whose_records_the_kernel_does_not_write_is_served_the_plain_way(tmp_path: Path) -> None:
    options = {"enabled_append_prop_crc": True}

    def work(controller: BrokerController, peer: Peer) -> None:
        for _ in peer.feed(b"".join(send_stream(1, 20))):
            controller._services.sends.take_all(peer)  # type: ignore[arg-type]
        assert controller._services.sends._kernel.records == 0

    _, peer = serve(tmp_path, work, **options)
    assert any(answer.code == 0 for answer in peer.answers())
