"""What every test may use."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import settings

from reput.config.message_store import MessageStoreConfig
from tests.compared import COMPARED

# A slow machine is no finding; the examples are the same in every run, so that a red run can be repeated.
settings.register_profile("reput", deadline=None, derandomize=True)
settings.load_profile("reput")
# Whoever starts a process in the background of a script lets it ignore Ctrl-C, and its children too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def small_config() -> MessageStoreConfig:
    """Files so small that a few hundred messages roll every kind of them."""
    return MessageStoreConfig(
        mapped_file_size_commit_log=16 * 1024,
        mapped_file_size_consume_queue=20 * 50,
        max_hash_slot_num=100,
        max_index_num=400,
        max_message_size=4096,
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several (`pytest -n`) gives its counts to the one that prints."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["compared"] = dict(COMPARED)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """One of several processes has ended; one that was killed gives nothing."""
    COMPARED.update(getattr(node, "workeroutput", {}).get("compared", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The counts that docs/design/interop.md speaks of."""
    if COMPARED:
        terminalreporter.write_line(
            "compared with Apache RocketMQ: " + ", ".join(f"{n} {what}" for what, n in COMPARED.items())
        )
