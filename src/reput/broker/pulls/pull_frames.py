"""PullFrames: plain pulls of known forms, from the frame to the answer, in a few calls of kernels."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reput.broker.appends.loop_dispatch import LoopDispatch
from reput.broker.clock import BrokerClock
from reput.broker.rpc_latency import RpcLatency
from reput.broker.view import BrokerView
from reput.config.broker import BrokerConfig
from reput.errors import ReputError
from reput.formats.consumers import MessageModel
from reput.formats.java import INT32_MAX
from reput.formats.metadata import SubscriptionGroupConfig, TopicConfig
from reput.kernels.wire import pull_frames as kernels
from reput.kernels.wire.pull_frames import ANSWER_ROOM, MARK, AnswerTexts, PullReader
from reput.remoting.codes import PullSysFlag, RequestCode
from reput.remoting.pull_frames import KnownForms, found_texts, prove_form
from reput.remoting.pull_headers import PullMessageRequestHeader
from reput.remoting.subscription_data import SubscriptionData, build_subscription_data, is_tag_type
from reput.service.broker_stats_manager import BrokerStatsManager
from reput.service.consumer_manager import ConsumerManager
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.subscription_group_manager import INDEX_PERM_READ, SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.transport.channel import Channel
from reput.transport.connection import Connection

_CODES = RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE
#: How clients begin the headers of pulls.
PULL_BEGINS = tuple(b'{"code":%d,' % code for code in _CODES)
#: Forms that are known, and bytes of the records of an answer.
_MOST_FORMS, _MOST_SIZE = 4096, 1 << 20


@dataclass(slots=True, eq=False)
class _Form:
    """Content that pulls with one header but for three numbers have in common, and what they were allowed by.

    Attributes:
        code: Of the request.
        header: With other numbers.
        is_plain: It has no expression of another language than tags.
        tags: The wanted ones; None takes all messages.
        is_by_request: Its subscription is in the header; else it is `subscription`, of its group.
        commits: It commits commitOffset.
        places: Which number of a header is queueOffset, commitOffset and opaque.
        texts: Of the answer.
        config, group, topic, subscription: As they were when a pull was answered.
    """

    code: int
    header: PullMessageRequestHeader
    is_plain: bool
    tags: str | None
    is_by_request: bool
    commits: bool
    places: tuple[int, int, int]
    texts: AnswerTexts
    config: BrokerConfig
    group: SubscriptionGroupConfig
    topic: TopicConfig
    subscription: SubscriptionData


class PullFrames:
    """Answers pulls as `PullMessageProcessor` does, which answers the first one of a form, and whatever is not plain.

    The checks of the processor depend on the form, and on what `_Form` keeps: as long as each of these is still the
    same object, they say the same, so nobody has to tell of a change. What else the processor looks at is looked at for
    each pull: resets, members of the group, the queue's ends, whether pages are in memory.

    Args:
        view, clock, store, topics, groups, offsets, consumers, stats, rpc_latency, dispatch: The broker's.
        is_usable: No request is checked, and the broker is no slave.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager[Channel],
        stats: BrokerStatsManager,
        rpc_latency: RpcLatency | None,
        dispatch: LoopDispatch,
        *,
        is_usable: bool,
    ) -> None:
        self._view, self._clock, self._store, self._topics, self._groups = view, clock, store, topics, groups
        self._offsets, self._consumers, self._stats, self._rpc_latency = offsets, consumers, stats, rpc_latency
        self._dispatch = dispatch
        self._is_usable = is_usable
        self._reader = PullReader()
        self._forms = KnownForms[bytes, _Form](_MOST_FORMS)
        #: Form of a request that is not known, and the topics as they were before the processor looked at them.
        self._unknown: tuple[bytes, Mapping[str, TopicConfig]] | None = None
        self._answer = np.empty(_MOST_SIZE + ANSWER_ROOM, np.uint8)
        self._answer_view, self._answer_address = self._answer.data, int(self._answer.ctypes.data)

    def take(self, connection: Connection) -> bytes | None:
        """Answer the next request; None if it is to be taken in the plain way, and then nothing has changed."""
        self._unknown = None
        try:
            return self._take(connection) if self._is_usable else None
        except ReputError:  # the plain way says what it is
            return None

    def _take(self, connection: Connection) -> bytes | None:
        since_s = 0.0 if self._rpc_latency is None else time.perf_counter()
        reader, (begin, end) = self._reader, connection.frames.window()
        key = reader.read(begin, end)
        if key is None:
            return None
        form = self._forms.get(key)
        if form is None or not self._holds(form):
            if form is not None or key not in self._forms:
                self._unknown = key, self._topics.topic_config_table
            return None
        offset, commit_offset, opaque = map(reader.number, form.places)
        header, size = form.header, reader.end - begin
        if not form.is_plain or opaque > INT32_MAX or not self._dispatch.passed_all():
            return None
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        offsets = self._offsets
        if offsets.has_offset_reset(topic, group, queue_id):
            return None
        run = self._store.find_pull(topic, queue_id, offset, header.max_msg_nums, form.tags, _MOST_SIZE)
        if run is None:
            return None
        following = run.following
        answer_size = kernels.write_found(
            form.texts.address, following, run.min_offset, run.max_offset, opaque, run.segments, run.segment_count,
            self._answer_address,
        )  # fmt: skip
        offsets.commit_pull_offset(group, topic, queue_id, following)
        if form.commits:
            offsets.commit_offset(group, topic, queue_id, commit_offset, self._clock.now_ms())
        self._stats.inc_group_get(group, topic, run.messages, run.size)
        if self._rpc_latency is not None:
            self._rpc_latency.sent({form.code: 1}, since_s)
        connection.frames.taken(size)
        return bytes(self._answer_view[:answer_size])

    def _holds(self, form: _Form) -> bool:
        """Whether the processor would allow it, as it did when the form was learned."""
        header = form.header
        group = self._groups.find_subscription_group_config(header.consumer_group, self._clock.now_ms())
        return (
            group is form.group
            and self._topics.select_topic_config(header.topic) is form.topic
            and self._view.config is form.config
            and (form.is_by_request or self._subscription(header, form.group) is form.subscription)
        )

    def _subscription(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> SubscriptionData | None:
        """The subscription of a group to the topic, by its heartbeats; None if it may not pull."""
        name, topic = header.consumer_group, header.topic
        info = self._consumers.consumer_group_info(name)
        if (
            info is None
            or (not group.consume_broadcast_enable and info.message_model is MessageModel.BROADCASTING)
            or self._groups.forbidden(name, topic) & 1 << INDEX_PERM_READ
        ):
            return None
        return info.subscription_table.get(topic)

    def answered(self) -> None:
        """Learn the form of the request that was not known: the processor has answered it with messages just now."""
        unknown, self._unknown = self._unknown, None
        if unknown is None:
            return
        key, topics = unknown
        if self._forms.may_learn(key):
            self._forms[key] = self._learned(key, topics)

    def _learned(self, key: bytes, topics: Mapping[str, TopicConfig]) -> _Form | None:
        proven = prove_form(key.split(MARK))
        if proven is None or proven.command.code not in _CODES or proven.command.flag:
            return None
        header = PullMessageRequestHeader(*proven.header)
        flags, name, topic_name = header.sys_flag, header.consumer_group, header.topic
        group = self._groups.find_subscription_group_config(name, self._clock.now_ms())
        topic = topics.get(topic_name)  # not as it is now: a thread may have changed it since the processor's look
        if topic is None:
            return None
        assert group is not None
        is_by_request = bool(flags & PullSysFlag.SUBSCRIPTION)
        subscription: SubscriptionData | None
        if is_by_request:
            subscription = build_subscription_data(topic_name, header.subscription, header.expression_type)
        else:
            subscription = self._subscription(header, group)
        assert subscription is not None
        has_tags = bool(subscription.tags) and not subscription.class_filter_mode
        return _Form(
            code=proven.command.code,
            header=header,
            is_plain=is_tag_type(subscription.expression_type),
            tags=subscription.sub_string if has_tags else None,
            is_by_request=is_by_request,
            commits=bool(flags & PullSysFlag.COMMIT_OFFSET),
            places=proven.places,
            texts=AnswerTexts(found_texts(group.broker_id, topic.topic_sys_flag, group.group_sys_flag)),
            config=self._view.config,
            group=group,
            topic=topic,
            subscription=subscription,
        )
