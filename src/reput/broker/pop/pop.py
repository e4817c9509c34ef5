"""Pop: the processors and services of POP, and what they share."""

from __future__ import annotations

from reput.broker.pop.ack_message_processor import AckMessageProcessor
from reput.broker.pop.pop_long_polling_service import PopLongPollingService
from reput.broker.pop.pop_message_processor import PopMessageProcessor
from reput.broker.pop.pop_offsets import PopOffsets
from reput.broker.pop.pop_revive_service import PopReviveService
from reput.broker.pop.revive_messages import ReviveMessages
from reput.broker.state import BrokerState
from reput.transport.connection import Connection


class Pop:
    """What a broker has for POP.

    Attributes:
        processors: What takes the requests.
        polling: Pops that wait for messages; a listener of dispatch.
    """

    def __init__(self, state: BrokerState) -> None:
        offsets, revive = PopOffsets(state), ReviveMessages(state)
        self.polling = PopLongPollingService(state)
        self.processors = (
            PopMessageProcessor(state, offsets, revive, self.polling),
            AckMessageProcessor(state, revive),
        )
        self._revive_service = PopReviveService(state, revive, lambda: 0)

    def start(self) -> None:
        """Revive from now on what nobody acks."""
        self._revive_service.start()

    def connection_closed(self, connection: Connection) -> None:
        """Forget the pops of a connection."""
        self.polling.connection_closed(connection)

    async def stop(self) -> None:
        """Answer the pops that wait, and revive nothing more."""
        await self.polling.stop()
        await self._revive_service.stop()
