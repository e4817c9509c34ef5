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


def admin_processors(state: BrokerState, clients: BrokerToClient, config_path: str | None) -> tuple[Processor, ...]:
    """The processors of what operators ask.

    Args:
        state: The broker's.
        clients: Asks clients.
        config_path: The broker.conf in which changes of keys are kept, if there is one.
    """
    view, clock, pools, store = state.view, state.clock, state.pools, state.store
    topics, groups, offsets, consumers = state.topics, state.groups, state.offsets, state.consumers
    config_files, registration, stats = state.config_files, state.registration, state.stats
    return (
        TopicProcessor(clock, pools, store, topics, groups, offsets, config_files, registration, stats),
        StatisticsProcessor(view, clock, pools, store, topics, groups, offsets, consumers, stats),
        ConnectionProcessor(pools, consumers, state.producers),
        OffsetProcessor(view, clock, pools, store, topics, offsets, consumers, config_files),
        QueueProcessor(pools, store, topics, consumers),
        RuntimeProcessor(
            view, clock, pools, store, registration, state.send_path.queue, state.timers, stats, state.slave, state.ha
        ),
        ConfigProcessor(view, clock, pools, store, registration, state.change_config, state.files, config_path),
        ClientCallProcessor(view, clock, pools, store, topics, groups, offsets, consumers, state.found_names, clients),
    )
