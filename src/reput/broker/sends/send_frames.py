"""SendFrameProcessor: what one read brings, in one call of a kernel if its frames are plain sends."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from reput.broker.appends.send_path import SendPath
from reput.broker.clock import BrokerClock
from reput.broker.pop.ack_frames import AckFrames
from reput.broker.pulls.pull_frames import PULL_BEGINS, PullFrames
from reput.broker.rpc_latency import RpcLatency
from reput.broker.sends.kernel_topics import KernelTopics
from reput.broker.sends.read_answers import ReadAnswers
from reput.broker.sends.send_back_frames import SendBackFrames
from reput.broker.sends.send_message_processor import SEND_CODES
from reput.broker.topic_creation import TopicCreation
from reput.broker.view import BrokerView
from reput.config.broker import BrokerConfig
from reput.config.message_store import FlushDiskType, MessageStoreConfig
from reput.errors import ReputError, WouldWaitError
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.hosts import HOST_V4_SIZE
from reput.formats.java import INT32_MAX
from reput.formats.timer_log import TIMER_TOPIC
from reput.formats.unique_id import UniqueIds
from reput.kernels.records.log_room import LogRoom
from reput.kernels.wire.send_frames import SendFrames, Stop
from reput.log.store_host import encode_store_host
from reput.remoting.ack_frames import ACK_BEGIN
from reput.remoting.codes import VERSION, RequestCode
from reput.remoting.command import RemotingCommand, encode_answer, encode_command
from reput.remoting.pull_frames import PullDecoder
from reput.remoting.recall_handle import HANDLE_VERSION
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.connection import Connection
from reput.transport.requests import Requests

#: How clients begin the headers of the most frequent requests but sends, after the two words of a frame.
_ODD = tuple(
    b'{"code":%d,' % code
    for code in (
        RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.HEART_BEAT,
        RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.GET_MAX_OFFSET,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.CONSUMER_SEND_MSG_BACK,
    )
)  # fmt: skip
_SEND_BACK_BEGIN = b'{"code":%d,' % RequestCode.CONSUMER_SEND_MSG_BACK


class SendFrameProcessor:
    """Takes all frames of a connection's read: plain sends in a kernel, all others one by one, in their order.

    Args:
        view, clock, store, topics, creation, send_path, rpc_latency: The broker's.
        requests: Takes one frame in the plain way.
        acks, send_backs: Take acks, and messages that are sent back, that come together.
        pulls: Takes plain pulls.
        is_checked: Requests are checked, so the kernel takes none: each is checked in the plain way.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        store: MessageStore,
        topics: TopicConfigManager,
        creation: TopicCreation,
        send_path: SendPath,
        rpc_latency: RpcLatency | None,
        requests: Requests,
        acks: AckFrames,
        send_backs: SendBackFrames,
        pulls: PullFrames,
        *,
        is_checked: bool,
    ) -> None:
        self._view, self._clock, self._send_path = view, clock, send_path
        self._queue = send_path.queue
        self._requests = requests
        self._acks, self._send_backs, self._plain_pulls = acks, send_backs, pulls
        self._on_append = send_path.on_append
        self._replicas = send_path.replicas
        store_config, config = store.config, view.config
        self._is_sync = store_config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        host = encode_store_host(store_config)
        self._unique_ids = UniqueIds(host, os.getpid())
        self._is_usable = (
            not is_checked and len(host) == HOST_V4_SIZE and _is_plain(store_config) and _is_text(config.region_id)
        )
        levels = send_path.writer.number_queues(SCHEDULE_TOPIC, len(store_config.delay_levels_ms))
        timers = send_path.writer.number_queues(TIMER_TOPIC, 1)
        prefix = self._unique_ids.prefix
        self._kernel = _send_kernel(host, prefix, (levels, timers), store_config, config, is_sync=send_path.waits)
        self._topics = KernelTopics(view, store, topics, creation, send_path.writer, self._kernel.topics)
        self._answers = ReadAnswers(send_path, rpc_latency, self._kernel)
        self._has_appended = False
        self._pulls = PullDecoder()

    def take_all(self, connection: Connection) -> None:
        """Take all whole frames of a connection, and send what is to be answered at once in one write.

        Raises:
            WouldWaitError: In `NeverWaiting`: the next frame needs room in the log, which is to be made elsewhere.
        """
        if connection.frames.begins_with(8, *PULL_BEGINS):
            self._take_pulls(connection)
            if not len(connection.frames):
                return
        host, now_ms = connection.host, self._clock.now_ms()
        starts_at = self._view.config.start_accept_send_request_time_stamp
        is_refused = now_ms < starts_at or (self._replicas is not None and self._replicas.are_not_enough)
        if not self._is_usable or len(host) != HOST_V4_SIZE or is_refused:  # the plain way says why
            self._requests.take_all(connection)
            return
        self._topics.look()
        answers, frames = self._answers, connection.frames
        self._kernel.begin(host, self._unique_ids.month_begin_ms(now_ms), now_ms)
        answers.begin()
        self._has_appended = False
        try:
            while len(frames) and connection.takes_more():
                stop, size = (Stop.ODD, 0) if self._is_odd(connection) else self._take_plain(connection)
                frames.taken(size)
                if stop is Stop.NO_ANSWER_ROOM:
                    answers.take_sends(connection)
                    answers.write(connection)
                elif stop is Stop.NO_ROOM and self._make_room():
                    continue
                elif stop is Stop.DONE or not self._take_odd(connection):
                    break
        finally:
            frames.taken(0)  # gives back the memory of a large frame
            answers.take_sends(connection)
            answers.write(connection)
            self._tell_appended()

    def _take_pulls(self, connection: Connection) -> None:
        """Take the pulls that come first: what sends need is not looked at for them."""
        try:
            while connection.frames.begins_with(8, *PULL_BEGINS) and connection.takes_more():
                if not self._take_odd(connection):
                    break
        finally:
            connection.frames.taken(0)  # gives back the memory of a large frame
            self._answers.write(connection)

    def _is_odd(self, connection: Connection) -> bool:
        """Whether the kernel need not look; a look takes 10 us if it is in vain."""
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
            end_offset = self._send_path.writer.append_written(write)
        except ReputError:  # the plain way answers what it is, or says that a send is to wait
            return Stop.ODD, 0
        if kernel.records:
            self._has_appended = True
            self._answers.count_sends(end_offset)
        return stop, kernel.at - begin

    def _make_room(self) -> bool:
        """Go on in the next log file; False if the plain way is to say why there is no room, or not yet."""
        try:
            self._send_path.writer.make_room(self._kernel.needed)
        except ReputError:  # no file can hold so much, the file is not there yet, or the disk is full
            return False
        return True

    def _take_odd(self, connection: Connection) -> bool:
        """Take the next frame in the plain way, or several together; False if it is not whole yet."""
        is_pull = connection.frames.begins_with(8, *PULL_BEGINS)
        if is_pull:
            self._tell_appended()
            found = self._plain_pulls.take(connection)
            if found is not None:
                self._keep(connection, found)
                return True
        elif not self._is_sync and connection.frames.begins_with(8, ACK_BEGIN):
            self._tell_appended()
            self._answers.take_sends(connection)
            if self._acks.take(connection, self._answers.keep):
                return True
        elif connection.frames.begins_with(8, _SEND_BACK_BEGIN) and not self._queue.is_full(connection):
            self._tell_appended()
            self._answers.take_sends(connection)
            taken, answers, end_offset = self._send_backs.take(connection)
            if taken:
                self._has_appended = True
                self._answers.take(connection, RequestCode.CONSUMER_SEND_MSG_BACK, taken, answers, end_offset)
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
            self._keep(connection, encode_answer(answer))
        if is_pull and isinstance(answer, bytes):
            self._plain_pulls.answered()
        if command.code in SEND_CODES and not command.is_response:
            self._topics.learn(command)
        return True

    def _keep(self, connection: Connection, answer: bytes) -> None:
        """Keep the answer to a request for the next write, behind those to sends."""
        self._answers.take_sends(connection)
        self._answers.keep(answer)
        if self._answers.are_large:
            self._answers.write(connection)

    def _tell_appended(self) -> None:
        if self._has_appended:
            self._has_appended = False
            self._on_append()


def _send_kernel(
    host: bytes,
    unique_prefix: str,
    numbers: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]],
    store_config: MessageStoreConfig,
    config: BrokerConfig,
    *,
    is_sync: bool,
) -> SendFrames:
    """The kernel of a broker; `host` is of its messages, and with `is_sync` answers wait."""
    trace_on = "true" if config.trace_on else "false"
    return SendFrames(
        store_host=host[:HOST_V4_SIZE],
        properties=(
            f"MSG_REGION\x01{config.region_id}\x02TRACE_ON\x01{trace_on}\x02".encode(),
            f"CLUSTER\x01{config.broker_cluster_name}\x02".encode(),
        ),
        answer_fields=f'"MSG_REGION":"{config.region_id}","TRACE_ON":"{trace_on}"'.encode(),
        answer_end=f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'.encode(),
        unique_prefix=unique_prefix.encode(),
        schedule=(SCHEDULE_TOPIC.encode(), numbers[0]),
        timers=(TIMER_TOPIC.encode(), numbers[1]),
        # A slot takes all messages unless the configuration says how many: then somebody has to look into the slot.
        max_delay_ms=1000 * store_config.timer_max_delay_sec if _takes_times(store_config) else 0,
        precision_ms=store_config.timer_precision_ms,
        handle=(f"{HANDLE_VERSION} ".encode(), f" {config.broker_name} ".encode()),
        max_body_size=store_config.max_message_size,
        is_sync=is_sync,
        takes_batch_properties=store_config.dispatch_rules.items_take_batch_properties,
    )


def _is_plain(config: MessageStoreConfig) -> bool:
    """Whether records are as the kernel writes them."""
    return not config.enabled_append_prop_crc


def _takes_times(config: MessageStoreConfig) -> bool:
    """Whether every message may wait for its time, however many wait for it."""
    return config.timer_wheel_enable and config.timer_congest_num_each_slot == INT32_MAX


def _is_text(text: str) -> bool:
    """Whether a text goes into JSON as it is."""
    return encode_command(RemotingCommand(0, remark=text)).find(f'"{text}"'.encode()) > 0
