"""One Java process a RocketMQ version for the whole run: a start costs a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.interop.apache import VERSIONS, Apache
from tests.interop.witness import COMPARED


@pytest.fixture(scope="session")
def processes() -> Iterator[dict[str, Apache]]:
    with ExitStack() as stack:
        yield {version: stack.enter_context(Apache(version)) for version in VERSIONS}


@pytest.fixture(params=VERSIONS)
def apache(request: pytest.FixtureRequest, processes: dict[str, Apache]) -> Iterator[Apache]:
    """The process of a version; not itself of the session's scope, as a table's lines would each begin a new one."""
    process = processes[request.param]
    yield process
    if process.has_open_store:  # the test failed
        process.kill()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The counts that docs/design/interop.md speaks of."""
    if COMPARED:
        terminalreporter.write_line(
            "compared with Apache RocketMQ: " + ", ".join(f"{n} {what}" for what, n in COMPARED.items())
        )
