"""SendAttempts: one send, to one broker after the other until one has it (`DefaultMQProducerImpl.sendDefaultImpl`)."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from reput.client.instance.client_instance import ClientInstance
from reput.client.instance.send_request import SendRequest
from reput.client.instance.send_result import SendResult
from reput.client.producing.mq_fault_strategy import FAILED_S, MQFaultStrategy, may_pass
from reput.errors import MQBrokerError, MQClientError, RemotingError
from reput.remoting.codes import version_name
from reput.remoting.queue_tables import QueueKey

#: The first version of a broker that has timers (V5_0_0).
_VERSION_TIMERS = 413


class Sent(NamedTuple):
    """A send that a broker has taken: a result for each message, which broker, and how long it took."""

    results: list[SendResult]
    address: str
    seconds: float


class SendAttempts:
    """Sends to queues.

    Args:
        client: Knows where the brokers are.
        faults: Which of them answer.
        group: The producer's, as brokers know it.
        timeout_s: How long one attempt may take.
        attempts: How many there are, if the queue does not matter.
    """

    def __init__(
        self, client: ClientInstance, faults: MQFaultStrategy, group: str, timeout_s: float, attempts: int
    ) -> None:
        self._client = client
        self._faults = faults
        self._group = group
        self._timeout_s = timeout_s
        self._attempts = attempts

    async def send(
        self, request: SendRequest, queue: QueueKey | None, *, needs_timer: bool = False, needs_heartbeat: bool = False
    ) -> Sent:
        """Send to one queue, or to queues of one broker after the other. Errors as of `Producer.send`.

        `needs_heartbeat`: the broker will ask this producer something, so it must know it.
        """
        client, faults, loop = self._client, self._faults, asyncio.get_running_loop()
        tried: list[str] = []
        errors: list[RemotingError] = []
        for _ in range(self._attempts if queue is None else 1):
            queues = await client.routes.publish_queues(request.topic)
            to = queue or faults.select(queues, tried, loop.time())
            tried.append(to.broker_name)
            begun = loop.time()
            try:
                address = client.master(to.broker_name)
                if needs_timer:
                    await _check_timers(client, address)
                if needs_heartbeat:
                    await client.version(address)
                results = await client.api.send(address, self._group, to, request, self._timeout_s)
            except MQBrokerError as error:
                if queue is not None or not may_pass(error):
                    raise
                errors.append(error)
            except RemotingError as error:
                faults.sent(to.broker_name, FAILED_S, loop.time())
                errors.append(error)
                await client.routes.renew(request.topic)
            else:
                seconds = loop.time() - begun
                faults.sent(to.broker_name, seconds, loop.time())
                return Sent(results, address, seconds)
        reasons = "; ".join(dict.fromkeys(map(str, errors)))
        found = MQClientError(f"topic {request.topic}: not sent after {len(errors)} attempts: {reasons}")
        found.retriable = True
        found.peer = ";".join(dict.fromkeys(error.peer for error in errors if error.peer))
        raise found


async def _check_timers(client: ClientInstance, address: str) -> None:
    """Raises MQClientError if a broker would deliver a message with a timer at once."""
    version = await client.version(address)
    if version < _VERSION_TIMERS:
        raise MQClientError(
            f"{address}: a broker of {version_name(version)} has no timers, and would deliver the message at once: "
            "give a delay_ms that is one of its levels, or a delay_level"
        )
