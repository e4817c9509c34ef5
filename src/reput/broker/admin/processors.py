"""All processors of administration."""

from __future__ import annotations

from reput.broker.admin.client_call_processor import ClientCallProcessor
from reput.broker.admin.config_processor import ConfigProcessor
from reput.broker.admin.connection_processor import ConnectionProcessor
from reput.broker.admin.offset_processor import OffsetProcessor
from reput.broker.admin.queue_processor import QueueProcessor
from reput.broker.admin.runtime_processor import RuntimeProcessor
from reput.broker.admin.statistics_processor import StatisticsProcessor
from reput.broker.admin.topic_processor import TopicProcessor
from reput.broker.broker_to_client import BrokerToClient
from reput.broker.request_table import Processor
from reput.broker.state import BrokerState
from reput.files import FileLayer


def admin_processors(
    state: BrokerState, clients: BrokerToClient, files: FileLayer, config_path: str | None
) -> tuple[Processor, ...]:
    """The processors of what operators ask.

    Args:
        state: The broker's.
        clients: Asks clients.
        files: The file layer.
        config_path: The broker.conf in which changes of keys are kept, if there is one.
    """
    return (
        TopicProcessor(state),
        StatisticsProcessor(state),
        ConnectionProcessor(state),
        OffsetProcessor(state),
        QueueProcessor(state),
        RuntimeProcessor(state),
        ConfigProcessor(state, files, config_path),
        ClientCallProcessor(state, clients),
    )
