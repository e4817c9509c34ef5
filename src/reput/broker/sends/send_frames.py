"""SendFrameProcessor: what one read brings, in one call of a kernel where its frames are plain sends."""

from __future__ import annotations

import os
import time

from reput.broker.pop.ack_frames import AckFrames
from reput.broker.sends.send_message_processor import SEND_CODES
from reput.broker.state import BrokerState
from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.errors import ReputError, WouldWaitError
from reput.formats.hosts import HOST_V4_SIZE
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.formats.metadata import TopicConfig, TopicFilterType
from reput.formats.record_layout import V1_MAX_TOPIC_SIZE
from reput.formats.unique_id import UniqueIds
from reput.kernels.records.log_room import LogRoom
from reput.kernels.wire.send_frames import SendFrames, Stop
from reput.log.queue_types import is_batch_cq
from reput.log.store_host import encode_store_host
from reput.remoting.ack_frames import ACK_BEGIN
from reput.remoting.codes import VERSION, PermName, RequestCode
from reput.remoting.command import RemotingCommand, encode_command
from reput.remoting.pull_frames import PullDecoder
from reput.remoting.send_headers import decode_send_header
from reput.remoting.topic_validator import NOT_ALLOWED_SEND_TOPICS, SYSTEM_TOPIC_PREFIX, validate_topic
from reput.transport.connection import Connection
from reput.transport.requests import WRITE_AT, Requests, encode_answer

#: How clients begin the headers of the most frequent requests but sends, after the two words of a frame.
_ODD = tuple(
    b'{"code":%d,' % code
    for code in (
        RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.HEART_BEAT,
        RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.GET_MAX_OFFSET,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    )
)  # fmt: skip


class SendFrameProcessor:
    """Takes all frames of a connection's read: plain sends in a kernel, all others one by one, in their order.

    Args:
        state: The broker's.
        requests: Takes one frame in the plain way.
        acks: Takes acks that come together.
        is_checked: Requests are checked, so the kernel takes none: each is checked in the plain way.
    """

    def __init__(self, state: BrokerState, requests: Requests, acks: AckFrames, *, is_checked: bool) -> None:
        self._state = state
        self._queue = state.sending
        self._requests = requests
        self._acks = acks
        self._answers = state.answers
        self._on_append = state.on_append
        store_config, config = state.store.config, state.config
        self._is_sync = store_config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._waits, self._replicas = state.waits, state.replicas
        host = encode_store_host(store_config)
        self._unique_ids = UniqueIds(host, os.getpid())
        trace_on = "true" if config.trace_on else "false"
        self._is_usable = (
            not is_checked and len(host) == HOST_V4_SIZE and _is_plain(store_config) and _is_text(config.region_id)
        )
        self._kernel = SendFrames(
            store_host=host[:HOST_V4_SIZE],
            properties=(
                f"MSG_REGION\x01{config.region_id}\x02TRACE_ON\x01{trace_on}\x02".encode(),
                f"CLUSTER\x01{config.broker_cluster_name}\x02".encode(),
            ),
            answer_fields=f'"MSG_REGION":"{config.region_id}","TRACE_ON":"{trace_on}"'.encode(),
            answer_end=f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'.encode(),
            unique_prefix=self._unique_ids.prefix.encode(),
            max_body_size=store_config.max_message_size,
            is_sync=self._waits,
            takes_batch_properties=store_config.dispatch_rules.items_take_batch_properties,
        )
        self._configs: dict[str, TopicConfig] = {}
        self._topics: object = None
        self._end_offset = 0
        self._has_appended = self._has_answers = False
        self._latency = state.rpc_latency
        self._since_s = 0.0
        self._sends: dict[int, int] = dict.fromkeys(SEND_CODES, 0)
        self._pulls = PullDecoder()
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0

    def take_all(self, connection: Connection) -> None:
        """Take all whole frames of a connection, and send what is to be answered at once in one write.

        Raises:
            WouldWaitError: In `NeverWaiting`: the next frame needs room in the log, which is to be made elsewhere.
        """
        host, now_ms = connection.host, self._state.now_ms()
        starts_at = self._state.config.start_accept_send_request_time_stamp
        is_refused = now_ms < starts_at or (self._replicas is not None and self._replicas.are_not_enough)
        if not self._is_usable or len(host) != HOST_V4_SIZE or is_refused:  # the plain way says why
            self._requests.take_all(connection)
            return
        self._look_at_topics()
        kernel, frames = self._kernel, connection.frames
        kernel.begin(host, self._unique_ids.month_begin_ms(now_ms))
        self._has_appended = self._has_answers = False
        if self._latency is not None:
            self._since_s = time.perf_counter()
        try:
            while len(frames) and connection.takes_more():
                stop, size = (Stop.ODD, 0) if self._is_odd(connection) else self._take_plain(connection)
                frames.taken(size)
                if stop is Stop.NO_ANSWER_ROOM:
                    self._send_answers(connection)
                    self._write(connection)
                elif stop is Stop.NO_ROOM and self._make_room():
                    continue
                elif stop is Stop.DONE or not self._take_odd(connection):
                    break
        finally:
            frames.taken(0)  # gives back the memory of a large frame
            self._send_answers(connection)
            self._write(connection)
            self._tell_appended()

    def _is_odd(self, connection: Connection) -> bool:
        """Whether the kernel need not look; a look takes 10 us where it is in vain."""
        return connection.frames.begins_with(8, *_ODD) or self._queue.is_full(connection)

    def _take_plain(self, connection: Connection) -> tuple[Stop, int]:
        """Take plain sends; returns (why it stopped, bytes that were taken)."""
        kernel, (begin, end) = self._kernel, connection.frames.window()
        stop = Stop.ODD

        def write(room: LogRoom) -> int:
            nonlocal stop
            stop = kernel.take(begin, end, room)
            return kernel.log_address - room.address

        try:
            end_offset = self._state.writer.append_written(write)
        except ReputError:  # the plain way answers what it is, or says that a send is to wait
            return Stop.ODD, 0
        if kernel.records:
            self._has_appended = self._has_answers = True
            for code, count in kernel.sends.items():
                self._sends[code] += count
            self._end_offset = end_offset
        return stop, kernel.at - begin

    def _make_room(self) -> bool:
        """Go on in the next log file; False where the plain way is to say why there is no room, or not yet."""
        try:
            self._state.writer.make_room(self._kernel.needed)
        except ReputError:  # no file can hold so much, the file is not there yet, or the disk is full
            return False
        return True

    def _take_odd(self, connection: Connection) -> bool:
        """Take the next frame in the plain way, or acks together; False where it is not whole yet."""
        if not self._is_sync and connection.frames.begins_with(8, ACK_BEGIN):
            self._tell_appended()
            self._send_answers(connection)
            if self._acks.take(connection, self._keep):
                return True
        frame = connection.frames.frame()
        if frame is None:
            return False
        command = self._pulls.decode(frame)
        self._tell_appended()  # a request sees what was sent before it
        try:
            answer = self._requests.take(connection, command)
        except WouldWaitError:
            connection.frames.put_back(len(frame))
            raise
        if answer is not None:
            self._send_answers(connection)
            self._keep(encode_answer(answer))
            if self._unsent_bytes >= WRITE_AT:
                self._write(connection)
        if command.code in SEND_CODES and not command.is_response:
            self._learn(command)
        return True

    def _tell_appended(self) -> None:
        if self._has_appended:
            self._has_appended = False
            self._on_append()

    def _send_answers(self, connection: Connection) -> None:
        if self._waits:
            if self._has_answers:
                self._answers.add_frames(connection, self._kernel.take_answers(), self._sends, self._end_offset)
                self._has_answers = False
                self._sends = dict.fromkeys(SEND_CODES, 0)
        elif self._kernel.answered:
            self._keep(self._kernel.take_answers())
            if self._latency is not None:
                self._latency.sent(self._sends, self._since_s)
                self._sends = dict.fromkeys(SEND_CODES, 0)

    def _keep(self, answers: bytes) -> None:
        self._unsent.append(answers)
        self._unsent_bytes += len(answers)

    def _write(self, connection: Connection) -> None:
        if self._unsent:
            connection.write(b"".join(self._unsent))
            self._unsent.clear()
            self._unsent_bytes = 0

    # -- topics

    def _look_at_topics(self) -> None:
        """Forget the topics that have changed since the last read; `brokerPermission` makes all of them anew."""
        metadata = self._state.store.topic_metadata
        if metadata is self._topics:
            return
        self._topics, topics = metadata, metadata.topic_config_table
        if any(topics.get(name) is not config or not self._takes(config) for name, config in self._configs.items()):
            self._configs.clear()
            self._kernel.topics.forget_topics()

    def _learn(self, command: RemotingCommand) -> None:
        """Let the kernel take sends to the topic of a request, if nobody has to look into them."""
        try:
            topic = decode_send_header(command.code, command.ext_fields).topic
        except ReputError:
            return
        config = self._state.topics.select_topic_config(topic)
        if config is None or topic in self._configs or not self._takes(config):
            return
        if self._state.creation.is_creating(topic):  # sends that wait for it are first
            return
        queues = max(config.write_queue_nums, config.read_queue_nums)
        try:
            self._kernel.topics.add_topic(topic, self._state.writer.number_queues(topic, queues))
        except ReputError:
            return
        self._configs[topic] = config

    def _takes(self, config: TopicConfig) -> bool:
        name = config.topic_name
        return (
            validate_topic(name) is None
            and len(name.encode()) <= V1_MAX_TOPIC_SIZE
            and name not in NOT_ALLOWED_SEND_TOPICS
            and not name.startswith((RETRY_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX))
            and config.topic_filter_type is TopicFilterType.SINGLE_TAG
            and not is_batch_cq(config)
            and config.attributes.get("cleanup.policy") != "COMPACTION"
            and (bool(self._state.config.broker_permission & PermName.WRITE) or not config.order)
        )


def _is_plain(config: MessageStoreConfig) -> bool:
    """Whether records are as the kernel writes them."""
    return not config.enabled_append_prop_crc


def _is_text(text: str) -> bool:
    """Whether a text goes into JSON as it is."""
    return encode_command(RemotingCommand(0, remark=text)).find(f'"{text}"'.encode()) > 0
