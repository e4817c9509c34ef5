"""What every test may use."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

# Before they are imported: a helper that finds something wrong says what it has found.
pytest.register_assert_rewrite("tests.support")

from reput.config.message_store import FlushDiskType, MessageStoreConfig
from tests.support.compared import COMPARED
from tests.support.examples import register_profiles
from tests.support.marked import running
from tests.support.patience import be_patient
from tests.support.shares import mark_what_is_not_drawn
from tests.support.spark_jvm import start_fast

pytest_plugins = ["tests.support.async_tests"]
register_profiles()
gc.disable()  # while tests are collected: next to nothing of that is garbage
# Whoever starts a process in the background of a script lets it ignore Ctrl-C, and its children too.
signal.signal(signal.SIGINT, signal.default_int_handler)
be_patient()
start_fast()


@pytest.fixture
def small_config() -> MessageStoreConfig:
    """Files so small that a few hundred messages roll every kind of them; a put waits for no sync."""
    return MessageStoreConfig(
        flush_disk_type=FlushDiskType.ASYNC_FLUSH,
        mapped_file_size_commit_log=16 * 1024,
        mapped_file_size_consume_queue=20 * 50,
        max_hash_slot_num=100,
        max_index_num=400,
        max_message_size=4096,
    )


#: Markers of tests that `make test` leaves out, and what the closing line calls these tests.
MARKERS = {
    "java": "with Apache RocketMQ itself or its clients (a JDK and Maven, Go, Node)",
    "browser": "in a browser (Chromium)",
    "spark": "on Spark",
    "slow": "that take long",
}
#: How many tests with each of these markers `-m` has left out of this run.
LEFT_OUT = dict.fromkeys(MARKERS, 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let what a test starts ask for its markers."""
    with running(item):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sampled tests have their markers before `-m` looks at them."""
    mark_what_is_not_drawn(items)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count what is left to `make test-all`, a test with several markers by the first one."""
    for item in items:
        if item.get_closest_marker("campaign"):
            continue
        if name := next(filter(item.get_closest_marker, MARKERS), None):
            LEFT_OUT[name] += 1


def pytest_collection_finish() -> None:
    """What thousands of tests are made of stays: the garbage collector need not walk over it again and again."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several (`pytest -n`) gives its counts to the one that prints."""
    gc.unfreeze()  # what is frozen, by a test of Spark's workers too, is else reported as leaked by DuckDB
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["compared"] = dict(COMPARED)
        session.config.workeroutput["left_out"] = LEFT_OUT


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """One of several processes has ended; one that was killed gives nothing."""
    output = getattr(node, "workeroutput", {})
    COMPARED.update(output.get("compared", {}))
    LEFT_OUT.update(output.get("left_out", {}))  # each process leaves out the same


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The counts that lab/interop.md speaks of."""
    if COMPARED:
        terminalreporter.write_line(
            "compared with Apache RocketMQ: " + ", ".join(f"{n} {what}" for what, n in COMPARED.items())
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    """The closing line: what `make test-all` adds to this run."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter and config.option.markexpr and any(LEFT_OUT.values()):
        kinds = ", ".join(f"{LEFT_OUT[name]} {kind}" for name, kind in MARKERS.items() if LEFT_OUT[name])
        reporter.write_line(f"make test-all adds {sum(LEFT_OUT.values())} tests: {kinds}")
