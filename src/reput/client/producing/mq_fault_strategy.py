"""MQFaultStrategy: which broker a send goes to, away from those that were slow or silent (`MQFaultStrategy`)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from reput.errors import AccessDeniedError, MQBrokerError, RemotingError
from reput.remoting.codes import ResponseCode
from reput.remoting.queue_tables import QueueKey

#: Seconds of a send, and seconds for which its broker gets no other send (`latencyMax`, `notAvailableDuration`).
_AWAY_S = ((15.0, 30.0), (5.0, 10.0), (3.0, 6.0), (1.8, 5.0), (0.55, 2.0))
#: A send that failed counts as one of this duration in seconds.
FAILED_S = 10.0
#: Refusals after which another broker may do what is asked (`DefaultMQProducer.retryResponseCodes`).
_TRY_ANOTHER = frozenset(
    {
        ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.GO_AWAY,
    }
)  # fmt: skip


class MQFaultStrategy:
    """Chooses queues in turn, and prefers brokers that answer quickly. Times are a loop's, in seconds."""

    def __init__(self) -> None:
        self._turn = random.randrange(1 << 16)
        self._away_until: dict[str, float] = {}

    def sent(self, broker_name: str, seconds: float, now: float) -> None:
        """Note how long a send took."""
        away = next((away for at_least, away in _AWAY_S if seconds >= at_least), 0.0)
        if away:
            self._away_until[broker_name] = now + away
        else:
            self._away_until.pop(broker_name, None)

    def is_available(self, broker_name: str, now: float) -> bool:
        """Whether a broker is worth another send."""
        return self._away_until.get(broker_name, now) <= now

    def select(self, queues: Sequence[QueueKey], tried: Sequence[str], now: float) -> QueueKey:
        """The next queue: of a broker that is available and was not tried, else one not tried, else any."""
        self._turn += 1
        turn = self._turn % len(queues)
        if not tried and self.is_available(queues[turn].broker_name, now):  # nearly always
            return queues[turn]
        in_turn = (*queues[turn:], *queues[:turn])
        for queue in in_turn:
            if queue.broker_name not in tried and self.is_available(queue.broker_name, now):
                return queue
        return next((queue for queue in in_turn if queue.broker_name not in tried), in_turn[0])


def may_be_too_large(error: Exception) -> bool:
    """Whether a broker that refused a batch may take its messages in smaller ones; of this batch it has stored nothing.

    No broker tells how much it takes: `maxMessageSize`, and what a file of its log holds, are its own.
    """
    return isinstance(error, MQBrokerError) and error.code == ResponseCode.MESSAGE_ILLEGAL


def may_pass(error: RemotingError) -> bool:
    """Whether another try may help, later or at another broker: there was no answer, or one of a broker in trouble."""
    if isinstance(error, AccessDeniedError):
        return False
    return not isinstance(error, MQBrokerError) or error.code in _TRY_ANOTHER
