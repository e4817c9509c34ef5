"""The broker's requests by their codes: who takes them, where they wait, and which see what was sent before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from reput.broker.sends.reply_message_processor import REPLY_CODES
from reput.broker.sends.send_message_processor import SEND_CODES
from reput.config.broker import BrokerConfig
from reput.remoting.body_bounds import most_body
from reput.remoting.codes import RequestCode
from reput.transport.request_queue import RequestQueue
from reput.transport.requests import Handler, Observer, Refusal, Requests

#: Requests that see all messages that were sent before them.
_SEES_MESSAGES = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.DELETE_TOPIC_IN_BROKER,  # so that no unit of a deleted message is still to come
    RequestCode.QUERY_CONSUMER_OFFSET,  # of a new group: by the queue's first message
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.CONSUMER_SEND_MSG_BACK,  # this and what follows: a unit proves the record at their offset
    RequestCode.END_TRANSACTION,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
)
#: Requests that see all messages of their topic that were sent before them.
_SEES_TOPIC = (RequestCode.POP_MESSAGE,)
_QUERIES = RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID


class Processor(Protocol):
    """Takes requests of some codes."""

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""


def request_table(
    processors: Iterable[Processor],
    config: BrokerConfig,
    sending: RequestQueue,
    with_all_messages: Callable[[Handler], Handler],
    with_messages_of_topic: Callable[[Handler], Handler],
    observer: Observer | None = None,
    refusal: Refusal | None = None,
) -> Requests:
    """The requests of all processors.

    Args:
        processors: Each code is taken by one of them.
        config: Says how many requests wait.
        sending: Where sends wait.
        with_all_messages: Makes a handler that sees all messages which were sent before its request.
        with_messages_of_topic: Makes one that sees those of its topic.
        observer: Gets how long requests take.
        refusal: The answer to a request that may not be done; without it, all may.
    """
    handlers = {code: handler for one in processors for code, handler in one.handlers().items()}
    handlers |= {code: with_all_messages(handlers[code]) for code in _SEES_MESSAGES}
    handlers |= {code: with_messages_of_topic(handlers[code]) for code in _SEES_TOPIC}
    queries = RequestQueue("queries", config.query_thread_pool_queue_capacity)
    replies = RequestQueue("replies", config.reply_thread_pool_queue_capacity)
    transactions = RequestQueue("ends of transactions", config.end_transaction_pool_queue_capacity)
    others = RequestQueue("requests", config.admin_broker_thread_pool_queue_capacity)
    queues: dict[int, RequestQueue] = {
        **dict.fromkeys((*SEND_CODES, RequestCode.CONSUMER_SEND_MSG_BACK), sending),
        **dict.fromkeys(REPLY_CODES, replies),
        **dict.fromkeys(_QUERIES, queries),
        RequestCode.END_TRANSACTION: transactions,
    }
    return Requests(handlers, queues, others, observer, refusal, most_body)
